#include "support/fake_longbow.h"

#include <algorithm>
#include <cmath>
#include <thread>

namespace quarrel::test {
namespace {

class FakeBatch final : public VectorBatch {
 public:
  FakeBatch(DatasetSchema schema, std::size_t capacity, FakeLongbow& owner)
      : schema_(std::move(schema)),
        capacity_(capacity),
        values_(capacity * static_cast<std::size_t>(schema_.dimension), std::nanf("")),
        owner_(owner) {
    owner_.most_batches = std::max(owner_.most_batches.load(), ++owner_.batches_alive);
  }
  ~FakeBatch() override { --owner_.batches_alive; }

  const DatasetSchema& schema() const noexcept override { return schema_; }
  std::size_t capacity() const noexcept override { return capacity_; }
  std::size_t rows() const noexcept override { return rows_.size(); }
  std::size_t bytes() const noexcept override { return bytes_; }
  std::size_t add(const BatchRow& row) override {
    if (rows_.size() == capacity_ || row.columns.size() != schema_.columns.size() || row.id < 0 ||
        row.id > kLargestVectorId) {
      throw Error(ErrorKind::bad_input, "the row does not fit");
    }
    rows_.push_back({.id = row.id, .text = std::string(row.text), .columns = {row.columns.begin(), row.columns.end()}});
    bytes_ += row.text.size() + static_cast<std::size_t>(schema_.dimension) * sizeof(float);
    return rows_.size() - 1;
  }
  std::span<float> vector(std::size_t row) override {
    const auto width = static_cast<std::size_t>(schema_.dimension);
    return std::span(values_).subspan(row * width, width);
  }
  void set_vector(std::size_t row, std::span<const float> values) override {
    std::ranges::copy(values, vector(row).begin());
  }
  void clear() override { rows_.clear(); }

  std::vector<FakeRow> filled() {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const std::span<float> values = vector(i);
      rows_[i].vector.assign(values.begin(), values.end());
    }
    return rows_;
  }

 private:
  const DatasetSchema schema_;
  const std::size_t capacity_;
  std::vector<float> values_;
  std::vector<FakeRow> rows_;
  std::size_t bytes_ = 0;
  FakeLongbow& owner_;
};

class FakeStream final : public VectorStream {
 public:
  FakeStream(FakeLongbow& owner, DatasetSchema schema, std::stop_token stop)
      : owner_(owner), schema_(std::move(schema)), stop_(std::move(stop)) {}
  void append(VectorBatch& batch) override {
    if (owner_.on_put) owner_.on_put();
    auto& filled = dynamic_cast<FakeBatch&>(batch);
    rows_ = filled.filled();
    bytes_ += batch.bytes();
  }
  std::uint64_t acknowledged() const noexcept override { return 0; }
  StreamResult close() override {
    owner_.wait_while(owner_.stall_puts, stop_, AfterFailure::read_back);
    owner_.take(schema_, rows_);
    return {.batches = 1, .rows = rows_.size(), .bytes = bytes_};
  }

 private:
  FakeLongbow& owner_;
  const DatasetSchema schema_;
  const std::stop_token stop_;
  std::vector<FakeRow> rows_;
  std::uint64_t bytes_ = 0;
};

bool matches(const FakeRow& row, const RowFilter& filter) {
  const std::int64_t value = std::stoll(filter.value);
  switch (filter.comparison) {
    case Comparison::equal: return row.id == value;
    case Comparison::greater_or_equal: return row.id >= value;
    case Comparison::less_or_equal: return row.id <= value;
    default: throw Error(ErrorKind::unsupported, "no such filter here");
  }
}

}  // namespace

std::map<std::string, int> FakeLongbow::texts() const {
  std::map<std::string, int> counts;
  for (const FakeRow& row : rows) ++counts[row.text];
  return counts;
}

void FakeLongbow::wait_while(const std::atomic<bool>& flag, const std::stop_token& stop, AfterFailure after) {
  if (!flag) return;
  if (!stop.stop_possible()) throw LongbowError(ErrorKind::io, "nobody could stop this call", after);
  ++stalled;
  while (flag && !stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  --stalled;
  if (flag) throw LongbowError(ErrorKind::cancelled, "it was stopped", after);
}

Fault FakeLongbow::next_fault() {
  const int call = calls++;
  return call >= fault_at && call < fault_at + faults ? fault : Fault::none;
}

void FakeLongbow::fail_call(Fault kind, const char* verb) const {
  const std::string message = std::string(verb) + " of fake/texts failed";
  switch (kind) {
    case Fault::killed:
    case Fault::killed_midway:
    case Fault::killed_after: throw Killed();
    case Fault::reject: throw LongbowError(ErrorKind::bad_input, message, AfterFailure::give_up);
    case Fault::refuse: throw LongbowError(ErrorKind::busy, message, AfterFailure::retry);
    default: throw LongbowError(ErrorKind::io, message, AfterFailure::read_back);
  }
}

void FakeLongbow::take(const DatasetSchema& schema, std::span<const FakeRow> sent) {
  ++puts;
  const Fault now = next_fault();
  std::size_t stored = sent.size();
  switch (now) {
    case Fault::refuse:
    case Fault::lose:
    case Fault::reject:
    case Fault::killed:
    case Fault::drop: stored = 0; break;
    case Fault::lose_half:
    case Fault::killed_midway:
    case Fault::drop_half: stored = sent.size() / 2; break;
    default: break;
  }
  if (now != Fault::killed && now != Fault::refuse && now != Fault::reject) {
    if (exists && dimension != schema.dimension) {
      throw LongbowError(ErrorKind::bad_input, "schema mismatch", AfterFailure::give_up);
    }
    exists = true;
    dimension = schema.dimension;
  }
  const bool answered = now == Fault::none || now == Fault::drop || now == Fault::drop_half;
  std::vector<FakeRow>& there = answered || late_polls == 0 ? rows : coming;
  there.insert(there.end(), sent.begin(), sent.begin() + static_cast<std::ptrdiff_t>(stored));
  if (!answered) fail_call(now, "DoPut");
}

std::unique_ptr<VectorBatch> FakeLongbow::new_batch(const DatasetSchema& schema, std::size_t count) const {
  return std::make_unique<FakeBatch>(schema, count, const_cast<FakeLongbow&>(*this));
}

std::unique_ptr<VectorStream> FakeLongbow::put(const std::string&, const DatasetSchema& schema, std::stop_token stop) {
  return std::make_unique<FakeStream>(*this, schema, std::move(stop));
}

std::unique_ptr<VectorStream> FakeLongbow::ingest(const std::string&, const DatasetSchema& schema,
                                                  std::stop_token stop) {
  return std::make_unique<FakeStream>(*this, schema, std::move(stop));
}

std::uint64_t FakeLongbow::scan(const std::string&, const std::vector<RowFilter>& filters, const RowVisitor& visitor,
                                std::stop_token stop, ScanLimit) {
  ++scans;
  wait_while(silent, stop, AfterFailure::retry);
  const Fault now = next_fault();
  if (now == Fault::killed || now == Fault::refuse || now == Fault::lose) fail_call(now, "DoGet");
  if (!exists) throw LongbowError(ErrorKind::not_found, "no dataset", AfterFailure::give_up);
  std::uint64_t found = 0;
  const std::vector<FakeRow> given = on_scan ? on_scan(filters) : rows;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const FakeRow& row = given[given.size() - 1 - i];  // no order is promised
    if (i == given.size() / 2 && now != Fault::none && now != Fault::drop && now != Fault::drop_half) {
      fail_call(now, "DoGet");
    }
    const bool wanted = std::ranges::all_of(filters, [&](const RowFilter& filter) { return matches(row, filter); });
    const bool hidden = filters.empty() && removed.contains(row.id);
    if (!on_scan && (!wanted || hidden)) continue;
    ++found;
    const std::vector<std::string> names{"doc_id", "source", "metadata"};
    std::vector<StoredColumn> columns;
    for (std::size_t c = 0; c < std::min(names.size(), row.columns.size()); ++c) {
      columns.push_back({.name = names[c], .value = row.columns[c]});
    }
    if (!visitor({.id = row.id, .vector = row.vector, .text = row.text, .columns = columns})) break;
  }
  return found;
}

std::vector<SearchHit> FakeLongbow::search(const std::string&, const SearchRequest& request, SearchPath,
                                           std::stop_token) {
  std::vector<SearchHit> hits;
  for (const FakeRow& row : rows) {
    if (!std::ranges::all_of(request.filters, [&](const RowFilter& filter) { return matches(row, filter); })) continue;
    double squares = 0;
    for (std::size_t i = 0; i < row.vector.size(); ++i) squares += std::pow(row.vector[i] - request.vector[i], 2);
    hits.push_back(
        {.id = static_cast<std::uint64_t>(row.id), .score = static_cast<float>(1 / (1 + std::sqrt(squares)))});
  }
  std::ranges::stable_sort(hits, std::ranges::greater{}, &SearchHit::score);
  hits.resize(std::min(hits.size(), static_cast<std::size_t>(request.k)));
  return hits;
}

DatasetInfo FakeLongbow::info(const std::string& dataset, std::stop_token) { return {.name = dataset}; }
std::vector<std::string> FakeLongbow::datasets(const std::string&, std::stop_token) { return {"texts"}; }

std::optional<StoredSchema> FakeLongbow::schema(const std::string&, std::stop_token stop) {
  ++schemas;
  wait_while(silent, stop, AfterFailure::retry);
  if (!exists) throw LongbowError(ErrorKind::not_found, "no dataset", AfterFailure::give_up);
  if (rows.empty()) return std::nullopt;
  StoredSchema schema{.dimension = dimension};
  if (!id_column.empty()) {
    schema.columns.push_back({.name = "id", .type = id_column});
    schema.id_type = id_column == "string" ? IdType::utf8 : IdType::int64;
  }
  return schema;
}

std::optional<StoredSchema> FakeLongbow::remembered_schema(const std::string& dataset, std::stop_token stop) {
  return remembered ? remembered : schema(dataset, std::move(stop));
}

bool FakeLongbow::shows_all() {
  if (coming.empty()) return true;
  if (polls_++ < late_polls) return false;
  rows.insert(rows.end(), coming.begin(), coming.end());
  coming.clear();
  polls_ = 0;
  return true;
}

Readiness FakeLongbow::readiness(const std::string&, std::stop_token stop) {
  if (on_readiness) on_readiness();
  wait_while(silent, stop, AfterFailure::retry);
  const Fault now = next_fault();
  const bool harmless = now == Fault::none || now == Fault::drop || now == Fault::drop_half;
  if (!harmless) fail_call(now, "check_readiness");
  if (busy_polls > 0) {  // as a whole: it does not look at the dataset then
    --busy_polls;
    return {.state = ReadyState::busy};
  }
  if (!exists) return {.state = ReadyState::missing};
  const bool is_late = !shows_all();
  if (is_late && late_is_busy) return {.state = ReadyState::busy};
  return {.state = ReadyState::ready, .indexed = std::ssize(rows) - unindexed};
}

Readiness FakeLongbow::wait_until_ready(const std::string& dataset, std::int64_t, std::chrono::milliseconds,
                                        std::stop_token stop) {
  Readiness last;
  do {
    last = readiness(dataset, stop);
  } while (last.state == ReadyState::busy && !stop.stop_requested());
  return last;
}

void FakeLongbow::remove(const std::string&, const std::string& id) { removed.insert(std::stoll(id)); }
void FakeLongbow::remove_dataset(const std::string&) {
  rows.clear();
  removed.clear();
  coming.clear();
  polls_ = 0;
  exists = false;
}
std::string FakeLongbow::statistics(const std::string&) { return "{}"; }

}  // namespace quarrel::test
