// What a dataset was sent: which text has which id, which batch was on its way, which was acknowledged, which rows were
// seen in the store. One journal a dataset, kept over runs, so that a run goes on where another was killed, and every
// text is stored once.
//
// An id belongs to a text forever. It is written down, and on the disk, before the row is sent; so after a crash any
// row that may be in the store has its id here, and `unsure` says which of them have to be looked for.
//
// Threads: any thread may call; each call is one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ingest/journal_file.h"
#include "ingest/text_source.h"

namespace quarrel {

// What the rows of one dataset have in common: a journal is good for one of these.
struct JournalSubject {
  std::string dataset = {};     // the address
  std::string model = {};       // a fingerprint of the file
  std::string model_name = {};  // what to call it in a message; not compared
  std::int32_t dimension = 0;   // of the vectors
  std::string settings = {};    // how texts become vectors: pooling, normalising, prefix
  std::vector<std::string> columns = {};
};

// Rows that were in the dataset before its journal was begun.
struct RowsBefore {
  std::uint32_t first_id = 0;  // the first that is free
  std::uint64_t rows = 0;
};

class Journal {
 public:
  // What is to be done with a text.
  enum class Claim {
    send,      // with the id that comes with this
    stored,    // nothing: an earlier run has sent it
    repeated,  // nothing: this run has had it already
  };
  struct Claimed {
    Claim claim = Claim::send;
    std::uint32_t id = 0;
    bool again = false;  // it was sent before, and is known to be missing
  };
  struct Counts {
    std::uint64_t stored = 0;        // seen in the store, or counted there
    std::uint64_t acknowledged = 0;  // queued by the store, not seen yet
    std::uint64_t unsure = 0;        // sent without an answer
    std::uint64_t missing = 0;       // known not to be there
    std::uint64_t there() const noexcept { return stored + acknowledged; }
    std::uint64_t sent() const noexcept { return stored + acknowledged + unsure + missing; }
  };

  // Opens it, and makes it where it is to be written. One that is only read can be asked what it knows, and claims are
  // forgotten with it. Throws what JournalFile throws, and Error(usage) where it belongs to another dataset, model or
  // way to make vectors: one with which no row was ever sent belongs to nothing.
  Journal(const std::filesystem::path& path, const JournalSubject& subject,
          JournalAccess access = JournalAccess::write);

  // Lets others write it, for whoever uses it again later; what was claimed and not sent is forgotten. False: it is no
  // longer what its file is, and has to go. So has one with which nothing was sent, and its file with it: a server
  // would keep one for each name that somebody has thought of.
  bool release();
  // Takes it again, with what others have added to it: the next run. False: it has to be opened anew. Throws as opening
  // does; after that it has to go.
  bool resume();
  // Throws Error(usage) where it belongs to something else.
  void require(const JournalSubject& subject) const;
  std::uint64_t bytes_read() const;  // of its file
  std::size_t memory() const;        // bytes that it takes

  // No row was sent with it before it was opened, and `begin` has to be called before anything else.
  bool is_new() const;
  void begin(const RowsBefore& before);
  RowsBefore before() const;

  // Throws Error(bad_input) when all numbers of 32 bits are used.
  Claimed claim(const TextKey& key);

  // A batch is about to be sent: on the disk when this returns. Gives the batch's number.
  std::uint64_t sending(std::span<const std::uint32_t> ids);
  void acknowledged(std::uint64_t batch);
  // A batch without an answer was looked for: its rows are in the store but for these.
  void looked_for(std::uint64_t batch, std::span<const std::uint32_t> missing);
  // So was everything that was ever sent. On the disk when this returns, unless it was known.
  void looked_for_all(std::span<const std::uint32_t> missing);

  Counts counts() const;
  // That a new text would get.
  std::uint64_t next_id() const;
  // Ids in ascending order: those that were sent without an answer; those known to be missing; all that were ever sent.
  std::vector<std::uint32_t> unsure() const;
  std::vector<std::uint32_t> missing() const;
  std::vector<std::uint32_t> sent() const;
  const std::filesystem::path& path() const noexcept { return file_.path(); }

 private:
  class Change;
  enum class State : std::uint8_t { unused, claimed, sent, acknowledged, stored, missing };
  struct Row {
    TextKey key;
    State state = State::unused;
    bool open = false;  // its id is in open_
  };

  void read_entry(std::uint8_t kind, std::string_view payload);
  void read_subject(std::string_view payload);
  void read_sending(std::string_view payload);
  void read_looked_for(std::string_view payload);
  std::optional<std::uint32_t> find(const TextKey& key) const;
  void add_to_table(std::uint32_t id);
  void put_in_table(std::uint32_t entry) noexcept;
  void add_rows(std::size_t count);
  Row& row(std::uint32_t id);
  void set(std::uint32_t id, State state);
  // Of a batch that was not settled yet: its ids, which are forgotten.
  std::vector<std::uint32_t> settle(std::uint64_t batch);
  void settle_all(std::span<const std::uint32_t> missing);
  std::vector<std::uint32_t> open_ids(State state) const;
  void write(std::uint8_t kind, std::string_view payload, bool on_disk);
  void forget_claims();

  mutable std::mutex mutex_;
  JournalSubject subject_;  // that was asked for; then what the file says
  bool is_new_ = true;
  bool torn_ = false;  // a change has failed: who knows whether the file has what this has
  RowsBefore before_;
  std::vector<Row> rows_;             // of id before_.first_id + index
  std::vector<std::uint32_t> table_;  // open addressing over rows_: index + 1, 0 is free
  std::size_t in_table_ = 0;
  // Rows that are not known to be stored, and some that have become so: what is done for each request of a server, and
  // for each entry that is read, must not look at all rows.
  std::vector<std::uint32_t> open_;
  std::map<std::uint64_t, std::vector<std::uint32_t>> batches_;  // ids by number; those that are settled have gone
  std::uint64_t next_batch_ = 0;
  std::array<std::uint64_t, 6> counts_{};  // by state
  std::size_t first_of_run_ = 0;           // rows from here on were claimed by this run
  JournalFile file_;                       // last: reading it fills the others
};

// Where a dataset's journal lies unless the user says otherwise: below `folder`, where the program keeps such things.
std::filesystem::path journal_path(const std::filesystem::path& folder, const std::string& dataset);

}  // namespace quarrel
