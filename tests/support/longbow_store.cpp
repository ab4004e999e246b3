#include "support/longbow_store.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>
#include <arrow/util/byte_size.h>
#include <arrow/util/float16.h>
#include <arrow/util/key_value_metadata.h>
#include <arrow/util/logging.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace quarrel::longbow {
namespace {

using Batch = std::shared_ptr<arrow::RecordBatch>;

constexpr std::int64_t kChunkRows = 4096;

template <typename T>
std::optional<T> number(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string text_of(const arrow::Array& column, std::int64_t row) {
  if (column.IsNull(row)) return "";
  if (column.type_id() == arrow::Type::STRING)
    return std::string(static_cast<const arrow::StringArray&>(column).GetView(row));
  return column.GetScalar(row).ValueOrDie()->ToString();
}

template <typename T>
bool holds(const std::string& comparison, const T& left, const T& right) {
  if (comparison == "=" || comparison == "eq" || comparison == "==") return left == right;
  if (comparison == "!=" || comparison == "neq") return left != right;
  if (comparison == "<" || comparison == "lt") return left < right;
  if (comparison == "<=" || comparison == "le") return left <= right;
  if (comparison == ">" || comparison == "gt") return left > right;
  return left >= right;
}

// Whether a row passes; nothing where the filter says nothing of such a column, or its value is none of its type.
std::optional<bool> passes(const arrow::RecordBatch& batch, std::int64_t row, const Filter& filter) {
  const auto column = batch.GetColumnByName(filter.field);
  if (column == nullptr) return std::nullopt;
  const std::string text = text_of(*column, row);
  if (column->type_id() == arrow::Type::STRING) return holds(filter.comparison, text, filter.value);
  if (column->type_id() == arrow::Type::INT64) {
    const auto right = number<std::int64_t>(filter.value);
    if (!right) return std::nullopt;
    return holds(filter.comparison, static_cast<const arrow::Int64Array&>(*column).Value(row), *right);
  }
  if (column->type_id() != arrow::Type::FLOAT && column->type_id() != arrow::Type::DOUBLE) return std::nullopt;
  const auto right = number<double>(filter.value);
  const auto left = number<double>(text);
  if (!right || !left) return std::nullopt;
  return holds(filter.comparison, *left, *right);
}

// Filters that say nothing are passed over; where all of them are, the row is left out.
bool passes_all(const arrow::RecordBatch& batch, std::int64_t row, const std::vector<Filter>& filters) {
  bool bound = filters.empty();
  for (const Filter& filter : filters) {
    const auto passed = passes(batch, row, filter);
    if (passed && !*passed) return false;
    bound = bound || passed.has_value();
  }
  return bound;
}

// The columns of the first batch that was ever stored: what came later is left out, what is missing is null.
Batch in_columns(const Batch& batch, const std::shared_ptr<arrow::Schema>& schema) {
  arrow::ArrayVector columns;
  for (const auto& field : schema->fields()) {
    auto column = batch->GetColumnByName(field->name());
    columns.push_back(column != nullptr ? column
                                        : arrow::MakeArrayOfNull(field->type(), batch->num_rows()).ValueOrDie());
  }
  return arrow::RecordBatch::Make(schema, batch->num_rows(), std::move(columns));
}

// The rows of `batch` that are kept, in pieces.
void append_rows(const Batch& batch, const std::vector<bool>& kept, std::vector<Batch>& pieces) {
  std::int64_t row = 0;
  while (row < batch->num_rows()) {
    std::int64_t end = row;
    while (end < batch->num_rows() && end - row < kChunkRows && kept[static_cast<std::size_t>(end)]) ++end;
    if (end > row) pieces.push_back(batch->Slice(row, end - row));
    row = std::max(end, row + (end == row ? 1 : 0));
  }
}

std::vector<float> vector_at(const arrow::FixedSizeListArray& column, std::int64_t row) {
  const auto values = column.value_slice(row);
  std::vector<float> result(static_cast<std::size_t>(values->length()));
  for (std::int64_t i = 0; i < values->length(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (values->type_id() == arrow::Type::FLOAT) {
      result[at] = static_cast<const arrow::FloatArray&>(*values).Value(i);
    } else if (values->type_id() == arrow::Type::HALF_FLOAT) {
      result[at] =
          arrow::util::Float16::FromBits(static_cast<const arrow::HalfFloatArray&>(*values).Value(i)).ToFloat();
    }
  }
  return result;
}

// Through 32 bits; a text that is no number comes back as the row's own number.
std::uint64_t id_of(const arrow::RecordBatch& batch, std::int64_t row, std::uint64_t internal) {
  const auto column = batch.GetColumnByName("id");
  if (column == nullptr) return internal;
  const auto value = number<std::int64_t>(text_of(*column, row));
  return value ? static_cast<std::uint32_t>(*value) : internal;
}

struct Candidate {
  Hit hit;
  double distance = 0;
  bool has_text = false;
};

// The order of both lists merged by their ranks.
void fuse(std::vector<Candidate>& candidates, double alpha) {
  constexpr double kRank = 60;
  std::vector<std::size_t> by_text(candidates.size());
  std::size_t rank = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].has_text) by_text[i] = ++rank;
  }
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const double dense = alpha / (kRank + static_cast<double>(i) + 1);
    const double text = by_text[i] == 0 ? 0 : (1 - alpha) / (kRank + static_cast<double>(by_text[i]));
    candidates[i].hit.score = static_cast<float>(dense + text);
  }
  std::ranges::stable_sort(candidates, std::ranges::greater(), [](const Candidate& c) { return c.hit.score; });
}

}  // namespace

void Store::set_visible_after(std::optional<std::chrono::milliseconds> delay) {
  const std::lock_guard lock(mutex_);
  delay_ = delay;
}

void Store::show_all() {
  const std::lock_guard lock(mutex_);
  for (auto& [name, dataset] : datasets_) {
    for (Pending& pending : dataset.pending) dataset.batches.push_back(std::move(pending.batch));
    dataset.pending.clear();
  }
}

void Store::set_most_rows(std::optional<std::int64_t> rows) {
  const std::lock_guard lock(mutex_);
  most_rows_ = rows;
}

arrow::Result<Store::Dataset*> Store::find(const std::string& name) {
  const auto found = datasets_.find(name);
  if (found == datasets_.end()) return arrow::Status::KeyError("dataset not found: ", name);
  show_due(found->second);
  return &found->second;
}

void Store::show_due(Dataset& dataset) {
  const Clock::time_point now = Clock::now();
  std::vector<Pending> later;
  for (Pending& pending : dataset.pending) {
    if (pending.due && *pending.due <= now) {
      dataset.batches.push_back(std::move(pending.batch));
    } else {
      later.push_back(std::move(pending));
    }
  }
  dataset.pending = std::move(later);
}

// A file a batch, with its dataset's name in the schema; it has its name once it is whole.
void Store::write(const std::string& dataset, const arrow::RecordBatch& batch) {
  if (folder_.empty()) return;
  const auto schema = batch.schema()->WithMetadata(arrow::key_value_metadata({"dataset"}, {dataset}));
  const std::filesystem::path path = folder_ / (std::to_string(1'000'000 + files_++) + ".arrow");
  const std::filesystem::path partial = path.string() + ".partial";
  const auto sink = arrow::io::FileOutputStream::Open(partial.string()).ValueOrDie();
  const auto writer = arrow::ipc::MakeStreamWriter(sink, schema).ValueOrDie();
  ARROW_CHECK_OK(writer->WriteRecordBatch(*batch.ReplaceSchemaMetadata(schema->metadata())));
  ARROW_CHECK_OK(writer->Close());
  ARROW_CHECK_OK(sink->Close());
  std::filesystem::rename(partial, path);
}

arrow::Status Store::set_folder(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".arrow") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  for (const auto& file : files) {
    ARROW_ASSIGN_OR_RAISE(auto source, arrow::io::ReadableFile::Open(file.string()));
    ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ipc::RecordBatchStreamReader::Open(source));
    ARROW_ASSIGN_OR_RAISE(const std::string dataset, reader->schema()->metadata()->Get("dataset"));
    ARROW_RETURN_NOT_OK(open(dataset, reader->schema()));
    ARROW_ASSIGN_OR_RAISE(auto batches, reader->ToRecordBatches());
    take(dataset, std::move(batches));
  }
  const std::lock_guard lock(mutex_);
  folder_ = folder;
  files_ = static_cast<int>(files.size());
  return arrow::Status::OK();
}

arrow::Status Store::open(const std::string& name, const std::shared_ptr<arrow::Schema>& schema) {
  const std::lock_guard lock(mutex_);
  Dataset& dataset = datasets_[name];
  for (const auto& field : schema->fields()) {
    const auto known = dataset.types.find(field->name());
    if (known != dataset.types.end() && !known->second->Equals(*field->type())) {
      return arrow::Status::Invalid("schema mismatch: column ", field->name(), " is ", known->second->ToString(),
                                    ", not ", field->type()->ToString());
    }
  }
  for (const auto& field : schema->fields()) dataset.types.emplace(field->name(), field->type());
  return arrow::Status::OK();
}

void Store::take(const std::string& name, std::vector<Batch> batches) {
  const std::lock_guard lock(mutex_);
  for (Batch& batch : batches) {
    if (most_rows_ && rows_ >= *most_rows_) return;
    if (most_rows_) batch = batch->Slice(0, std::min(batch->num_rows(), *most_rows_ - rows_));
    rows_ += batch->num_rows();
    write(name, *batch);
    Pending pending{.due = {}, .batch = std::move(batch)};
    if (delay_) pending.due = Clock::now() + *delay_;
    datasets_[name].pending.push_back(std::move(pending));
  }
}

arrow::Result<std::vector<Batch>> Store::scan(const std::string& name, const std::vector<Filter>& filters) {
  const std::lock_guard lock(mutex_);
  ARROW_ASSIGN_OR_RAISE(const Dataset* dataset, find(name));
  std::vector<Batch> pieces;
  if (dataset->batches.empty()) return pieces;
  const auto schema = dataset->batches.front()->schema();
  for (std::size_t b = dataset->batches.size(); b-- > 0;) {
    const Batch batch = in_columns(dataset->batches[b], schema);
    std::vector<bool> kept(static_cast<std::size_t>(batch->num_rows()));
    for (std::int64_t row = 0; row < batch->num_rows(); ++row) {
      // Rows that were removed show again where there are filters.
      const bool removed = filters.empty() && dataset->removed.contains({b, row});
      kept[static_cast<std::size_t>(row)] = !removed && passes_all(*batch, row, filters);
    }
    append_rows(batch, kept, pieces);
  }
  // The columns are told in any case.
  if (pieces.empty()) pieces.push_back(dataset->batches.front()->Slice(0, 0));
  return pieces;
}

arrow::Result<std::vector<Hit>> Store::search(const Query& query) {
  if (query.k < 1) return arrow::Status::Invalid("k must be positive");
  if (query.vector.empty() && query.text.empty()) return arrow::Status::Invalid("no vector and no text query");
  const std::lock_guard lock(mutex_);
  ARROW_ASSIGN_OR_RAISE(const Dataset* dataset, find(query.dataset));
  std::vector<Candidate> candidates;
  std::uint64_t internal = 0;
  for (const Batch& batch : dataset->batches) {
    const auto column = batch->GetColumnByName("vector");
    if (column == nullptr || column->type_id() != arrow::Type::FIXED_SIZE_LIST)
      return arrow::Status::Invalid("no index");
    const auto& vectors = static_cast<const arrow::FixedSizeListArray&>(*column);
    for (std::int64_t row = 0; row < batch->num_rows(); ++row, ++internal) {
      const std::vector<float> values = vector_at(vectors, row);
      if (values.size() != query.vector.size()) {
        return arrow::Status::Invalid("dimension mismatch: expected ", values.size(), ", got ", query.vector.size());
      }
      if (query.text.empty() && !passes_all(*batch, row, query.filters)) continue;
      double sum = 0;
      for (std::size_t i = 0; i < values.size(); ++i) sum += std::pow(double{values[i]} - double{query.vector[i]}, 2);
      const double distance = std::sqrt(sum);
      const auto text = batch->GetColumnByName("text");
      candidates.push_back(
          {.hit = {.id = id_of(*batch, row, internal), .score = static_cast<float>(1 / (1 + distance))},
           .distance = distance,
           .has_text =
               text != nullptr && !query.text.empty() && text_of(*text, row).find(query.text) != std::string::npos});
    }
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::distance);
  if (!query.text.empty()) fuse(candidates, query.alpha);
  std::vector<Hit> hits;
  for (const Candidate& candidate : candidates) {
    if (static_cast<std::int64_t>(hits.size()) == query.k) break;
    hits.push_back(candidate.hit);
  }
  return hits;
}

// The newest row of that id.
arrow::Status Store::remove(const std::string& name, const std::string& id) {
  const std::lock_guard lock(mutex_);
  ARROW_ASSIGN_OR_RAISE(Dataset * dataset, find(name));
  for (std::size_t b = dataset->batches.size(); b-- > 0;) {
    const auto column = dataset->batches[b]->GetColumnByName("id");
    if (column == nullptr) continue;
    for (std::int64_t row = column->length(); row-- > 0;) {
      if (text_of(*column, row) != id || dataset->removed.contains({b, row})) continue;
      dataset->removed.insert({b, row});
      return arrow::Status::OK();
    }
  }
  return arrow::Status::KeyError("id not found: ", id);
}

arrow::Status Store::remove_dataset(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return datasets_.erase(name) == 1 ? arrow::Status::OK() : arrow::Status::KeyError("dataset not found: ", name);
}

Readiness Store::readiness(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = find(name);
  Readiness result;
  if (!found.ok()) return result;
  result.found = true;
  result.busy = !(*found)->pending.empty();
  for (const Batch& batch : (*found)->batches) result.indexed += batch->num_rows();
  return result;
}

arrow::Result<std::pair<std::int64_t, std::int64_t>> Store::info(const std::string& name) {
  const std::lock_guard lock(mutex_);
  ARROW_ASSIGN_OR_RAISE(const Dataset* dataset, find(name));
  std::int64_t bytes = 0;
  for (const Batch& batch : dataset->batches) bytes += arrow::util::TotalBufferSize(*batch);
  return std::pair(static_cast<std::int64_t>(dataset->batches.size()), bytes);
}

std::vector<std::string> Store::names(const std::string& contains) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> result;
  for (const auto& [name, dataset] : datasets_) {
    if (name.find(contains) != std::string::npos) result.push_back(name);
  }
  return result;
}

}  // namespace quarrel::longbow
