// A store in memory with Longbow's manners: it acknowledges before it stores, appends a repeated id, and fails at the
// call that a test chooses, in the way that a test chooses. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "flight/longbow.h"

namespace quarrel::test {

// What happens at one call.
enum class Fault {
  none,
  refuse,         // nothing is stored, the call may be tried again
  lose,           // nothing is stored, and nobody can know
  lose_answer,    // all is stored, and nobody can know
  lose_half,      // half is stored, and nobody can know
  drop,           // acknowledged, and never stored
  drop_half,      // acknowledged, and half of it never stored
  reject,         // it would fail again
  killed,         // our process ends before the call …
  killed_midway,  // … while half was stored …
  killed_after,   // … or before its answer comes
};
inline constexpr Fault kFaults[] = {Fault::refuse,        Fault::lose,        Fault::lose_answer, Fault::lose_half,
                                    Fault::drop,          Fault::drop_half,   Fault::reject,      Fault::killed,
                                    Fault::killed_midway, Fault::killed_after};

// Stands for the end of the process: nothing that runs may catch it and go on.
struct Killed : std::runtime_error {
  Killed() : std::runtime_error("killed") {}
};

struct FakeRow {
  std::int64_t id = 0;
  std::string text = {};
  std::vector<std::string> columns = {};
  std::vector<float> vector = {};
};

class FakeLongbow final : public LongbowClient {
 public:
  // --- what a test sets and asks
  Fault fault = Fault::none;
  int fault_at = 0;                      // the call that it happens at, from 0
  int faults = 1;                        // so many calls in a row
  std::atomic<int> busy_polls = 0;       // so often it is busy before it is ready
  std::atomic<bool> stall_puts = false;  // batches are not taken until a stop is requested, and nobody can know
  std::atomic<bool> silent = false;      // the same of questions: nobody answers them
  std::atomic<int> stalled = 0;          // calls that wait so
  std::string id_column = "int64";       // its type, in Arrow's words; empty: there is none
  std::int64_t unindexed = 0;
  std::vector<FakeRow> rows;
  std::set<std::int64_t> removed;  // ids that a scan without filters leaves out
  // Rows of a put without an answer come only after so many questions for its readiness. Until then it is busy, or does
  // not know of them: ready, with what it had.
  std::vector<FakeRow> coming;
  int late_polls = 0;
  bool late_is_busy = true;
  bool exists = false;
  std::int32_t dimension = 0;                   // of the dataset
  std::optional<StoredSchema> remembered = {};  // what is told of the columns unasked; none: nothing
  std::atomic<int> calls = 0;
  std::atomic<int> puts = 0;
  std::atomic<int> scans = 0;
  std::atomic<int> schemas = 0;  // questions for the columns
  std::atomic<int> batches_alive = 0;
  std::atomic<int> most_batches = 0;
  std::function<void()> on_put = {};                                                        // before a batch is sent
  std::function<void()> on_readiness = {};                                                  // before it is told
  std::function<std::vector<FakeRow>(const std::vector<RowFilter>& filters)> on_scan = {};  // what a scan gives instead

  // How often each id, and each text, is there.
  std::map<std::string, int> texts() const;

  // --- LongbowClient
  std::unique_ptr<VectorBatch> new_batch(const DatasetSchema& schema, std::size_t count) const override;
  std::unique_ptr<VectorStream> put(const std::string& dataset, const DatasetSchema& schema,
                                    std::stop_token stop = {}) override;
  std::unique_ptr<VectorStream> ingest(const std::string& dataset, const DatasetSchema& schema,
                                       std::stop_token stop = {}) override;
  std::uint64_t scan(const std::string& dataset, const std::vector<RowFilter>& filters, const RowVisitor& visitor,
                     std::stop_token stop = {}, ScanLimit limit = ScanLimit::each_batch) override;
  std::vector<SearchHit> search(const std::string& dataset, const SearchRequest& request, SearchPath path,
                                std::stop_token stop = {}) override;
  DatasetInfo info(const std::string& dataset, std::stop_token stop = {}) override;
  std::vector<std::string> datasets(const std::string& contains = {}, std::stop_token stop = {}) override;
  std::optional<StoredSchema> schema(const std::string& dataset, std::stop_token stop = {}) override;
  std::optional<StoredSchema> remembered_schema(const std::string& dataset, std::stop_token stop = {}) override;
  Readiness readiness(const std::string& dataset, std::stop_token stop = {}) override;
  Readiness wait_until_ready(const std::string& dataset, std::int64_t count, std::chrono::milliseconds patience,
                             std::stop_token stop = {}) override;
  void remove(const std::string& dataset, const std::string& id) override;
  void remove_dataset(const std::string& dataset) override;
  std::string statistics(const std::string& dataset) override;
  LongbowCounters counters() const noexcept override { return {.failures = failures_, .retries = retries_}; }
  void note_retry() noexcept override { ++retries_; }
  void note_failure() noexcept override { ++failures_; }
  const LongbowAddress& address() const noexcept override { return address_; }

  // Of the stream that `put` gives.
  void take(const DatasetSchema& schema, std::span<const FakeRow> sent);
  // Waits while `flag` holds and no stop is requested; then, or where none can be, the call fails.
  void wait_while(const std::atomic<bool>& flag, const std::stop_token& stop, AfterFailure after);

 private:
  Fault next_fault();
  [[noreturn]] void fail_call(Fault fault, const char* verb) const;
  // Asked for its readiness once more. False: there are rows that do not show yet.
  bool shows_all();

  int polls_ = 0;  // since rows are coming
  std::atomic<std::uint64_t> retries_ = 0;
  std::atomic<std::uint64_t> failures_ = 0;
  LongbowAddress address_{.host = "fake", .dataset = "texts"};
};

}  // namespace quarrel::test
