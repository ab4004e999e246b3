// A client of Longbow, the vector store, over Arrow Flight. No word of Arrow is here: its library is opened at run time
// (flight/module.h) by those who use a store. Called by commands, by the server's routes and by what feeds a dataset.
//
// What a caller must know of the store (docs/longbow.md has the rest):
//  - Success of a stream means that rows are queued. They show in scans and searches later (`wait_until_ready`); rows
//    that the store dropped for lack of memory are missing without an error, so count them.
//  - A repeated id is a second row, never a replacement. Nothing here sends rows twice by itself: a stream that failed
//    is the caller's to judge (`LongbowError::after_failure`).
//  - Searches order by Euclidean distance: vectors of length 1 make that the order of cosines.
//
// Threads: a client may be used by many at once; a stream by one at a time, which may change. Calls block. Each ends
// within its time limit; calls that take a stop token end soon after a stop is requested, with Error(cancelled): what
// cannot be cancelled is left to its time limit, and the store may still act on it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "flight/address.h"
#include "flight/batch.h"

namespace quarrel {

// What a caller may do about a call that failed. Unless it says `retry`, rows of a stream may have been stored.
enum class AfterFailure {
  give_up,    // it would fail again
  retry,      // nothing was stored: the same call may succeed later
  read_back,  // rows may or may not have been stored: find out which before sending them again
};

// Says in its message which verb failed on which dataset at which host, and why. Kinds: not_found (no such dataset or
// id), bad_input (the store refuses what was sent), unsupported (it does not know the call), busy (full, or too many
// calls), io (not reachable, gone, too slow, its certificate is not trusted, or it does not take our token), cancelled.
class LongbowError : public Error {
 public:
  LongbowError(ErrorKind kind, const std::string& message, AfterFailure after_failure)
      : Error(kind, message), after_failure_(after_failure) {}
  AfterFailure after_failure() const noexcept { return after_failure_; }

 private:
  AfterFailure after_failure_;
};

struct LongbowOptions {
  // Each call with one answer, as a whole: info, schemas, lists, actions, searches, look-ups. No further attempt begins
  // when so long has passed since the first.
  std::chrono::milliseconds call_timeout = std::chrono::seconds(30);
  // One batch of a stream, sent or received, and the end of a stream: the store may block a sender while it is busy.
  std::chrono::milliseconds batch_timeout = std::chrono::seconds(180);
  // Calls that change nothing are repeated so often where that may help, after pauses that double from the first.
  int attempts = 4;
  std::chrono::milliseconds first_pause = std::chrono::milliseconds(100);
  std::string token = {};               // sent as `authorization: Bearer …`, and only with TLS or to this machine
  std::string root_certificates = {};   // PEM: who is trusted with TLS; empty: whom the system trusts
  std::string client_certificate = {};  // PEM, with its key, where the server asks for one
  std::string client_key = {};
  int connections = 4;                                 // most to each port; calls beyond share them
  std::size_t largest_batch = std::size_t{256} << 20;  // bytes; the store takes 512 MiB
};

// Since the client was made, for progress and metrics.
struct LongbowCounters {
  std::uint64_t calls = 0;
  std::uint64_t failures = 0;  // after all attempts; of streams, those that their caller gave up
  std::uint64_t retries = 0;   // also of streams, where their caller sent again
  std::uint64_t slow_downs = 0;
  std::uint64_t rows_sent = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t rows_received = 0;
  std::uint64_t bytes_received = 0;
  double seconds = 0;  // that calls took, in sum
};

struct StreamResult {
  std::uint64_t batches = 0;
  std::uint64_t rows = 0;
  std::uint64_t bytes = 0;
  bool slow_down = false;                 // the store asked for a pause before the next stream
  std::vector<std::string> notices = {};  // other things that it said, as it said them
};

// Batches on their way into one dataset. One stream for many batches: the store gathers what one stream brings.
class VectorStream {
 public:
  // One that was not closed is cancelled: what became of its rows is not known.
  virtual ~VectorStream() = default;

  // Sends the rows and returns when the network has taken them; blocks while the store does. The batch may be cleared
  // or appended elsewhere afterwards. Throws Error(bad_input) for one without rows or of another schema, and
  // LongbowError; then the stream is over.
  virtual void append(VectorBatch& batch) = 0;
  // Batches that the store says it has queued. `put` knows that of none before its end.
  virtual std::uint64_t acknowledged() const noexcept = 0;
  // Ends the stream and waits until the store has queued everything. Throws LongbowError.
  virtual StreamResult close() = 0;
};

enum class Comparison { equal, not_equal, less, less_or_equal, greater, greater_or_equal };

// All filters of a call must hold. Columns of int64, float32, float64 and utf8 can be compared.
struct RowFilter {
  std::string field;
  Comparison comparison = Comparison::equal;
  std::string value;

  bool operator==(const RowFilter&) const = default;
};

// FIELD=VALUE, or with !=, <, <=, > or >= in the place of the sign. Throws Error(usage).
RowFilter read_row_filter(std::string_view text);

struct StoredColumn {
  std::string_view name;
  std::string_view value;  // numbers as text; empty where there is none
  bool null = false;
};

// A row as a scan finds it. What it points to is good until the visitor returns.
struct StoredRow {
  std::optional<std::int64_t> id = {};         // where ids are numbers
  std::string_view id_text = {};               // the id as text in any case
  std::span<const float> vector = {};          // empty: the row has none
  std::optional<std::int64_t> timestamp = {};  // nanoseconds since 1970
  std::string_view text = {};
  std::span<const StoredColumn> columns = {};  // all others, in the dataset's order
};

// False ends the scan.
using RowVisitor = std::function<bool(const StoredRow&)>;

// What the time limit of a scan is for.
enum class ScanLimit {
  each_batch,  // however many there are
  whole_call,  // a look-up: few rows are wanted
};

struct SearchRequest {
  std::span<const float> vector = {};
  std::int32_t k = 10;
  std::vector<RowFilter> filters = {};
  std::string text_query = {};  // not empty: texts count too, and the store applies no filters
  double alpha = 0.5;           // with a text query: 1 is vectors alone, 0 texts alone
};

// Which of the store's ways a search goes. Each gives the same hits; a ticket's are remembered by the store for a
// minute, whatever is stored meanwhile.
enum class SearchPath {
  automatic,  // a ticket where there are filters or a text query, otherwise an exchange
  exchange,
  ticket,
  action,
};

struct SearchHit {
  std::uint64_t id = 0;
  float score = 0;  // higher is nearer; only the order has a meaning
};

struct DatasetInfo {
  std::string name;
  std::int64_t batches = 0;  // record batches, as the store counts: not rows
  std::int64_t bytes = 0;
};

struct ColumnInfo {
  std::string name;
  std::string type;  // in Arrow's words
};

struct StoredSchema {
  std::vector<ColumnInfo> columns = {};
  std::int32_t dimension = 0;  // 0: there is no vector column that the store would search
  std::optional<IdType> id_type = {};
  std::optional<VectorType> vector_type = {};
  std::vector<std::pair<std::string, std::string>> properties = {};
};

enum class ReadyState { ready, busy, missing };

struct Readiness {
  ReadyState state = ReadyState::missing;
  std::optional<std::int64_t> indexed = {};  // rows that a search can find; absent where the store does not say
  std::string reason = {};
};

class LongbowClient {
 public:
  virtual ~LongbowClient() = default;

  // Memory for `rows` rows. Throws Error(bad_input) for a dimension below 1, no rows, column names that clash, or more
  // than `largest_batch`.
  virtual std::unique_ptr<VectorBatch> new_batch(const DatasetSchema& schema, std::size_t rows) const = 0;

  // DoPut: makes the dataset where there is none. Waits first where the store has asked for a pause. Nothing is sent
  // before the first batch, so that most failures show there.
  virtual std::unique_ptr<VectorStream> put(const std::string& dataset, const DatasetSchema& schema,
                                            std::stop_token stop = {}) = 0;
  // DoExchange: the same with an acknowledgement a batch, and without the store's check that the schema fits the
  // dataset's.
  virtual std::unique_ptr<VectorStream> ingest(const std::string& dataset, const DatasetSchema& schema,
                                               std::stop_token stop = {}) = 0;

  // DoGet: rows in any order, and how many there were. A dataset that is there and empty has none. Filters are checked
  // against the dataset's schema first, since the store leaves rows out without a word where one does not fit: throws
  // Error(bad_input). Deleted rows show where there are filters. A scan that fails midway is not repeated.
  virtual std::uint64_t scan(const std::string& dataset, const std::vector<RowFilter>& filters,
                             const RowVisitor& visitor, std::stop_token stop = {},
                             ScanLimit limit = ScanLimit::each_batch) = 0;

  // The nearest first, `k` at most whatever the store sends. Throws Error(bad_input) for no vector, k below 1, or
  // filters beside a text query.
  virtual std::vector<SearchHit> search(const std::string& dataset, const SearchRequest& request,
                                        SearchPath path = SearchPath::automatic, std::stop_token stop = {}) = 0;

  virtual DatasetInfo info(const std::string& dataset, std::stop_token stop = {}) = 0;
  // Names with `contains` in them, in the store's order.
  virtual std::vector<std::string> datasets(const std::string& contains = {}, std::stop_token stop = {}) = 0;
  // Empty: the dataset is there and has no rows yet.
  virtual std::optional<StoredSchema> schema(const std::string& dataset, std::stop_token stop = {}) = 0;
  // As it was when it was last asked for, for what is done with every search: a column, once there, keeps its type.
  virtual std::optional<StoredSchema> remembered_schema(const std::string& dataset, std::stop_token stop = {}) = 0;

  virtual Readiness readiness(const std::string& dataset, std::stop_token stop = {}) = 0;
  // Asks until the dataset is ready with at least `rows` rows, or the time is over: the last answer, which may be
  // another one. Ready with fewer rows is final too: the store has dropped the others.
  virtual Readiness wait_until_ready(const std::string& dataset, std::int64_t rows, std::chrono::milliseconds patience,
                                     std::stop_token stop = {}) = 0;

  // By the id as text. The newest row with that id no longer shows in scans without filters; searches may still find
  // it.
  virtual void remove(const std::string& dataset, const std::string& id) = 0;
  virtual void remove_dataset(const std::string& dataset) = 0;
  // The store's own statistics of a dataset, JSON as it says it.
  virtual std::string statistics(const std::string& dataset) = 0;

  virtual LongbowCounters counters() const noexcept = 0;
  // Whether a stream that failed is sent again or given up is its caller's to decide, who says here what it did.
  virtual void note_retry() noexcept = 0;
  virtual void note_failure() noexcept = 0;
  virtual const LongbowAddress& address() const noexcept = 0;
};

}  // namespace quarrel
