// Sends batches to a store and finds out what became of them. The store acknowledges before it stores, drops rows when
// its memory is full, and appends a row whose id it has already; so nothing is sent again before it was looked for, and
// at the end rows are counted. Every step is in the journal first.
//
// Threads: one at a time. Calls block.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "flight/longbow.h"
#include "ingest/dataset_wait.h"
#include "ingest/journal.h"

namespace quarrel {

// What was found in the store when it had taken in everything.
struct StoreState {
  std::uint64_t rows = 0;       // of the journal's, each counted once
  std::uint64_t missing = 0;    // were sent, and are not there
  std::uint64_t repeated = 0;   // are there twice or more; known only after a look at every row
  std::uint64_t unindexed = 0;  // are there, but no search finds them
};

class RowSender {
 public:
  using Note = DatasetWait::Note;

  // All of them must outlive this.
  RowSender(LongbowClient& client, std::string dataset, DatasetSchema schema, Journal& journal,
            const SendOptions& options, Note note);

  // A batch with its rows' ids. Returns when the store has queued it, or is known to have it; rows of it that are
  // known to be missing are so in the journal. `stop` ends all of it, also a batch on its way. Throws
  // LongbowError, and Error: io of the journal, cancelled; then the batch is unsure, and the journal knows that.
  void send(VectorBatch& batch, std::span<const std::uint32_t> ids, const std::stop_token& stop);

  // Waits until the store has taken in everything, then counts rows, and looks for them where the count does not show
  // that all are there. Throws as above, and Error: busy where the store takes too long, usage where another gives ids
  // too.
  StoreState settle(const std::stop_token& stop);

  std::uint64_t bytes_sent() const noexcept { return bytes_; }

 private:
  // What one attempt came to.
  enum class Attempt { done, again, look };
  Attempt attempt(VectorBatch& batch, std::uint64_t number, bool last, const std::stop_token& stop);
  bool look_for(std::uint64_t number, std::span<const std::uint32_t> ids, const std::stop_token& stop);
  // How often each of these ids is in the store, as far as ids lie in their range.
  std::vector<std::uint8_t> seen(std::span<const std::uint32_t> ids, const std::stop_token& stop);
  void refuse_rows_of_others(const std::stop_token& stop);

  LongbowClient& client_;
  const std::string dataset_;
  const DatasetSchema schema_;
  Journal& journal_;
  const SendOptions options_;
  const DatasetWait store_;  // the same dataset, where it has to be waited for
  std::uint64_t bytes_ = 0;
};

// A dataset that no journal knows of: the first id that is free, and how many rows it has, those that were deleted
// among them. Its ids are numbers. Reads all of it.
RowsBefore rows_before(LongbowClient& client, const std::string& dataset, const std::stop_token& stop);

}  // namespace quarrel
