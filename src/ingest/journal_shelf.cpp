#include "ingest/journal_shelf.h"

#include <algorithm>

namespace quarrel {

std::unique_ptr<Journal> JournalShelf::kept(const std::filesystem::path& path) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(journals_, path, [](const auto& journal) { return journal->path(); });
  if (found == journals_.end()) return nullptr;
  std::unique_ptr<Journal> journal = std::move(*found);
  journals_.erase(found);
  return journal;
}

JournalShelf::Lease JournalShelf::take(const std::filesystem::path& path, const JournalSubject& subject) {
  std::unique_ptr<Journal> journal = kept(path);
  if (journal && journal->resume()) {
    Lease lease(*this, std::move(journal));
    (*lease).require(subject);
    return lease;
  }
  if (journal) {
    const std::scoped_lock lock(mutex_);
    bytes_read_ += journal->bytes_read();
  }
  journal.reset();
  return {*this, std::make_unique<Journal>(path, subject)};
}

void JournalShelf::put_back(std::unique_ptr<Journal> journal) noexcept {
  std::list<std::unique_ptr<Journal>> kept;
  try {
    if (journal->release()) kept.push_front(std::move(journal));
  } catch (...) {  // it is read anew the next time; so is one that there is no memory to keep
  }
  const std::scoped_lock lock(mutex_);
  if (kept.empty()) bytes_read_ += journal->bytes_read();
  journals_.splice(journals_.begin(), kept);
  std::size_t bytes = 0;
  for (auto each = journals_.begin(); each != journals_.end();) {
    bytes += (*each)->memory();
    const bool is_last_used = each == journals_.begin();
    const bool fits = bytes <= most_bytes_ && static_cast<std::size_t>(std::distance(journals_.begin(), each)) < most_;
    if (is_last_used || fits) {
      ++each;
    } else {
      bytes_read_ += (*each)->bytes_read();
      bytes -= (*each)->memory();
      each = journals_.erase(each);
    }
  }
}

std::uint64_t JournalShelf::bytes_read() const {
  const std::scoped_lock lock(mutex_);
  std::uint64_t bytes = bytes_read_;
  for (const auto& journal : journals_) bytes += journal->bytes_read();
  return bytes;
}

std::size_t JournalShelf::size() const {
  const std::scoped_lock lock(mutex_);
  return journals_.size();
}

}  // namespace quarrel
