// Texts from a source through a model into a dataset of a vector store, each exactly once however often the run is
// interrupted: the journal says what was sent, the store is asked what became of it, and what is missing is sent again.
//
// Embedding and sending overlap: this thread reads texts and fills batches, the model's engine writes the vectors
// straight into them, a thread of our own sends them. A few batches exist at a time, so memory stays what it is.
//
// Called by `quarrel embed --to` and the server; on one thread, which it blocks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "ingest/row_sender.h"
#include "ingest/text_source.h"

namespace quarrel {

// What turns texts into vectors: a model, or something simpler in a test.
class TextEmbedder {
 public:
  // A batch that is being embedded. Cancels it when it goes, and then `done` may still come.
  class Work {
   public:
    virtual ~Work() = default;
  };
  struct Outcome {
    std::exception_ptr error = {};
    std::uint64_t tokens = 0;
  };

  virtual ~TextEmbedder() = default;
  virtual std::int32_t dimension() const = 0;
  // Writes the vector of text i to `places[i]`. `done` is called once, on any thread, perhaps before this returns, and
  // must not block; the places are good until then. Throws Error for texts that cannot be embedded; then `done` is not
  // called.
  virtual std::unique_ptr<Work> start(std::span<const std::string> texts, std::vector<std::span<float>> places,
                                      std::function<void(Outcome)> done) = 0;
};

struct IngestOptions {
  std::size_t batch_rows = 1024;
  std::size_t batch_bytes = std::size_t{16} << 20;  // about; a batch of long texts has fewer rows
  std::size_t batches = 4;  // that exist at a time: being filled, embedded, waiting, on their way
  int passes = 3;           // over the texts, where rows were lost
  SendOptions send = {};
};

// So far; read by `watch`.
struct IngestProgress {
  std::uint64_t texts = 0;          // read, in this pass
  std::uint64_t stored_before = 0;  // of these, sent by earlier runs
  std::uint64_t repeated = 0;       // of these, read before in this run
  std::uint64_t waiting = 0;        // of these, not sent yet
  std::uint64_t embedded = 0;
  std::uint64_t tokens = 0;
  std::uint64_t sent = 0;
  std::uint64_t bytes = 0;  // sent
  bool settling = false;    // all is sent, and the store takes it in
  int pass = 1;
};

struct IngestReport {
  // `texts`, `stored_before`, `repeated` and `sent` as the first pass has them: further ones only repeat what was lost.
  IngestProgress progress = {};
  StoreState store = {};  // at the end
  // Rows that were sent earlier, are not in the dataset, and whose texts were not read this time.
  std::uint64_t gone = 0;
};

struct IngestCalls {
  // Called now and then on the calling thread; false ends the run with Error(cancelled).
  std::function<bool(const IngestProgress&)> watch = {};
  // Something that a person should hear of. From more than one thread.
  RowSender::Note note = {};
};

// Names of columns that somebody wants beside those which every dataset has. Throws Error(usage) that says which of
// them cannot be one: it is asked before a model is loaded or a journal begun.
void check_column_names(std::span<const std::string> names);

// The columns of what is stored: id, vector, timestamp, text, and doc_id, source, metadata with those that `columns`
// name.
DatasetSchema ingest_schema(std::int32_t dimension, const std::vector<std::string>& columns,
                            const std::string& model_name);

// Throws what the source, the embedder and the sender throw. After any of these, and after the process was killed, a
// further call with the same source, journal and dataset goes on.
IngestReport ingest(TextSource& source, TextEmbedder& embedder, LongbowClient& client, const std::string& dataset,
                    const DatasetSchema& schema, Journal& journal, const IngestOptions& options,
                    const IngestCalls& calls);

}  // namespace quarrel
