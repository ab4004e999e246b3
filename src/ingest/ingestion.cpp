#include "ingest/ingestion.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/counted.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/thread_name.h"

namespace quarrel {
namespace {

// How often whoever watches is asked while this thread waits.
constexpr std::chrono::milliseconds kWatchEvery{50};

// Of every dataset, beside those of the store.
constexpr std::array<std::string_view, 3> kTextColumns = {"doc_id", "source", "metadata"};

std::int64_t now_in_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Rows on their way. The reading thread fills it, the embedder writes the vectors, the sending thread sends it.
struct IngestBatch {
  std::unique_ptr<VectorBatch> rows;
  std::vector<std::uint32_t> ids;
  std::vector<std::string> texts;  // until they are embedded
  std::atomic<bool> embedded = false;
};

// One pass over the texts: what the threads share.
class Pass {
 public:
  Pass(TextEmbedder& embedder, LongbowClient& client, const DatasetSchema& schema, Journal& journal, RowSender& sender,
       const IngestOptions& options, const IngestCalls& calls, IngestProgress& progress)
      : embedder_(embedder),
        client_(client),
        schema_(schema),
        journal_(journal),
        sender_(sender),
        options_(options),
        calls_(calls),
        progress_(progress),
        thread_([this](const std::stop_token& stop) { send_all(stop); }) {}

  // What still runs ends before the memory that it writes to goes.
  ~Pass() {
    running_.clear();
    std::unique_lock lock(mutex_);
    closed_ = true;
    queue_.clear();
    changed_.notify_all();
    changed_.wait(lock, [this] { return embedding_ == 0; });
    lock.unlock();
    thread_.request_stop();
  }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  void run(TextSource& source);
  // Rows known to be missing that were read again.
  std::uint64_t found_again() const noexcept { return found_again_; }

 private:
  struct Running {
    std::weak_ptr<IngestBatch> batch;
    std::unique_ptr<TextEmbedder::Work> work;
  };
  void add(const TextRecord& record, std::uint32_t id);
  void launch();
  void embedded(std::shared_ptr<IngestBatch> batch, TextEmbedder::Outcome outcome);
  void send_all(const std::stop_token& stop);
  // Waits on this thread, asking whoever watches, until `ready` says so. Throws what went wrong on another thread.
  template <typename Ready>
  void wait_until(const Ready& ready);
  void look();

  TextEmbedder& embedder_;
  LongbowClient& client_;
  const DatasetSchema& schema_;
  Journal& journal_;
  RowSender& sender_;
  const IngestOptions& options_;
  const IngestCalls& calls_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  IngestProgress& progress_;  // under the mutex
  std::exception_ptr error_;
  std::size_t alive_ = 0;      // batches between `launch` and their end
  std::size_t embedding_ = 0;  // of these, being embedded
  bool closed_ = false;        // nothing more will be queued
  std::deque<std::shared_ptr<IngestBatch>> queue_;

  // Of the thread that reads.
  std::shared_ptr<IngestBatch> filling_;
  std::vector<Running> running_;
  std::uint64_t found_again_ = 0;
  std::jthread thread_;  // last: it uses the others
};

void Pass::look() {
  std::unique_lock lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  const IngestProgress now = progress_;
  lock.unlock();
  if (calls_.watch && !calls_.watch(now)) fail(ErrorKind::cancelled, "the run was interrupted");
}

template <typename Ready>
void Pass::wait_until(const Ready& ready) {
  for (;;) {
    look();
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kWatchEvery, [&] { return ready() || error_; }) && !error_) return;
  }
}

void Pass::run(TextSource& source) {
  TextRecord record;
  while (source.next(record)) {
    const Journal::Claimed claimed = journal_.claim(key_of(record));
    {
      const std::scoped_lock lock(mutex_);
      ++progress_.texts;
      if (claimed.claim == Journal::Claim::stored) ++progress_.stored_before;
      if (claimed.claim == Journal::Claim::repeated) ++progress_.repeated;
      if (claimed.claim == Journal::Claim::send) ++progress_.waiting;
    }
    if (claimed.again) ++found_again_;
    if (claimed.claim == Journal::Claim::send) {
      add(record, claimed.id);
    } else if (source.counts().texts % 256 == 0) {
      look();
    }
  }
  if (filling_) launch();
  wait_until([this] { return alive_ == 0; });
}

void Pass::add(const TextRecord& record, std::uint32_t id) {
  if (!filling_) {
    wait_until([this] { return alive_ < options_.batches; });
    filling_ = std::make_shared<IngestBatch>();
    filling_->rows = client_.new_batch(schema_, options_.batch_rows);
  }
  std::vector<std::string_view> columns{record.id, record.source,
                                        record.metadata.empty() ? record.position : record.metadata};
  columns.insert(columns.end(), record.columns.begin(), record.columns.end());
  filling_->rows->add({.id = id, .timestamp = now_in_nanoseconds(), .text = record.text, .columns = columns});
  filling_->ids.push_back(id);
  filling_->texts.push_back(record.text);
  if (filling_->ids.size() == options_.batch_rows || filling_->rows->bytes() >= options_.batch_bytes) launch();
}

void Pass::launch() {
  std::shared_ptr<IngestBatch> batch = std::exchange(filling_, nullptr);
  std::vector<std::span<float>> places;
  for (std::size_t row = 0; row < batch->ids.size(); ++row) places.push_back(batch->rows->vector(row));
  std::erase_if(running_, [](const Running& each) {
    const std::shared_ptr<IngestBatch> there = each.batch.lock();
    return !there || there->embedded.load();
  });
  running_.reserve(running_.size() + 1);
  {
    const std::scoped_lock lock(mutex_);
    ++alive_;
    ++embedding_;
  }
  std::unique_ptr<TextEmbedder::Work> work;
  try {
    work = embedder_.start(batch->texts, std::move(places),
                           [this, batch](TextEmbedder::Outcome outcome) { embedded(batch, std::move(outcome)); });
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    --embedding_;
    throw;
  }
  running_.push_back({.batch = batch, .work = std::move(work)});
}

// On the embedder's thread.
void Pass::embedded(std::shared_ptr<IngestBatch> batch, TextEmbedder::Outcome outcome) {
  const std::scoped_lock lock(mutex_);
  --embedding_;
  batch->embedded = true;
  if (outcome.error && !error_) error_ = outcome.error;
  if (!outcome.error) {
    progress_.embedded += batch->ids.size();
    progress_.tokens += outcome.tokens;
    batch->texts = {};
    if (!closed_) queue_.push_back(std::move(batch));
  }
  changed_.notify_all();
}

void Pass::send_all(const std::stop_token& stop) {
  name_thread("quarrel-send");
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!changed_.wait(lock, stop, [this] { return !queue_.empty(); })) return;
    std::shared_ptr<IngestBatch> batch = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      sender_.send(*batch->rows, batch->ids, stop);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) {
      if (!error_) error_ = error;
      changed_.notify_all();
      return;
    }
    progress_.sent += batch->ids.size();
    progress_.waiting -= batch->ids.size();
    batch.reset();
    --alive_;
    progress_.bytes = sender_.bytes_sent();
    changed_.notify_all();
  }
}

// On a thread of its own, so that this one can ask whoever watches.
StoreState settle_watched(RowSender& sender, const IngestCalls& calls, IngestProgress& progress) {
  progress.settling = true;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  StoreState state;
  std::exception_ptr error;
  std::jthread thread([&](const std::stop_token& stop) {
    name_thread("quarrel-settle");
    try {
      state = sender.settle(stop);
    } catch (...) {
      error = std::current_exception();
    }
    const std::scoped_lock lock(mutex);
    done = true;
    changed.notify_all();
  });
  for (bool ended = false; !ended;) {
    if (calls.watch && !calls.watch(progress)) {
      thread.request_stop();
      thread.join();
      fail(ErrorKind::cancelled, "the run was interrupted");
    }
    std::unique_lock lock(mutex);
    ended = changed.wait_for(lock, kWatchEvery, [&] { return done; });
  }
  thread.join();
  progress.settling = false;
  if (error) std::rethrow_exception(error);
  return state;
}

}  // namespace

void check_column_names(std::span<const std::string> names) {
  std::set<std::string_view> own(kStoreColumns.begin(), kStoreColumns.end());
  own.insert(kTextColumns.begin(), kTextColumns.end());
  std::set<std::string_view> seen;
  for (const std::string& name : names) {
    if (name.empty()) fail(ErrorKind::usage, "the name of a column is empty");
    if (!is_utf8(name)) fail(ErrorKind::usage, "the name of the column '{}' is not UTF-8", printable(name, 120));
    if (own.contains(name)) fail(ErrorKind::usage, "every dataset has a column '{}' of its own", name);
    if (!seen.insert(name).second) fail(ErrorKind::usage, "the column '{}' is named twice", printable(name, 120));
  }
}

DatasetSchema ingest_schema(std::int32_t dimension, const std::vector<std::string>& columns,
                            const std::string& model_name) {
  DatasetSchema schema{.dimension = dimension, .columns = {kTextColumns.begin(), kTextColumns.end()}};
  schema.columns.insert(schema.columns.end(), columns.begin(), columns.end());
  schema.properties = {{"quarrel.model", model_name}};
  return schema;
}

IngestReport ingest(TextSource& source, TextEmbedder& embedder, LongbowClient& client, const std::string& dataset,
                    const DatasetSchema& schema, Journal& journal, const IngestOptions& options,
                    const IngestCalls& calls) {
  IngestReport report;
  IngestProgress& progress = report.progress;
  RowSender sender(client, dataset, schema, journal, options.send, calls.note);
  // What another run has left open is settled first, so that the first pass sends what that one lost.
  report.store = settle_watched(sender, calls, progress);
  IngestProgress first;
  for (progress.pass = 1;; ++progress.pass) {
    {
      Pass pass(embedder, client, schema, journal, sender, options, calls, progress);
      pass.run(source);
      if (progress.pass == 1) report.gone = report.store.missing - std::min(report.store.missing, pass.found_again());
    }
    if (progress.pass == 1) first = progress;
    report.store = settle_watched(sender, calls, progress);
    report.store.missing -= std::min(report.store.missing, report.gone);
    if (report.store.missing == 0 || progress.pass == options.passes || !source.rewind()) break;
    calls.note(fmt::format("the store has lost {}; sending again", counted(report.store.missing, "row")));
    progress.texts = progress.stored_before = progress.repeated = 0;
  }
  progress.texts = first.texts;
  progress.stored_before = first.stored_before;
  progress.repeated = first.repeated;
  progress.sent = first.sent;
  if (report.gone > 0) {
    calls.note(fmt::format("the dataset lacks {} that earlier runs sent; run those texts again to store them",
                           counted(report.gone, "row")));
  }
  return report;
}

}  // namespace quarrel
