// Journals that are used again and again, kept in memory in between: a server writes a few rows a request, and would
// read the whole journal for each of them otherwise. While one lies here, other processes may write it; whoever takes
// it next reads what they have added.
//
// Called by the server. Threads: any. A journal that is taken is one caller's; another who asks for it meanwhile is
// refused, as another process would be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "ingest/journal.h"

namespace quarrel {

class JournalShelf {
 public:
  // A journal in use. Goes back when this goes.
  class Lease {
   public:
    Lease(JournalShelf& shelf, std::unique_ptr<Journal> journal) : shelf_(shelf), journal_(std::move(journal)) {}
    Lease(Lease&&) noexcept = default;
    ~Lease() {
      if (journal_) shelf_.put_back(std::move(journal_));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Lease& operator=(Lease&&) = delete;

    Journal& operator*() const noexcept { return *journal_; }

   private:
    JournalShelf& shelf_;
    std::unique_ptr<Journal> journal_;
  };

  // `most`: so many are kept, and the one that was used last whatever it takes; the others take at most `most_bytes`
  // with it.
  JournalShelf(std::size_t most, std::size_t most_bytes) : most_(most), most_bytes_(most_bytes) {}
  JournalShelf(const JournalShelf&) = delete;
  JournalShelf& operator=(const JournalShelf&) = delete;

  // Throws what Journal throws. The shelf must outlive the lease.
  Lease take(const std::filesystem::path& path, const JournalSubject& subject);

  // Of files, by all that were taken and have come back.
  std::uint64_t bytes_read() const;
  std::size_t size() const;

 private:
  std::unique_ptr<Journal> kept(const std::filesystem::path& path);
  void put_back(std::unique_ptr<Journal> journal) noexcept;

  const std::size_t most_, most_bytes_;
  mutable std::mutex mutex_;                      // guards all below
  std::list<std::unique_ptr<Journal>> journals_;  // the one used last comes first
  std::uint64_t bytes_read_ = 0;                  // by journals that have gone
};

}  // namespace quarrel
