#include "flight/arrow/vector_batch.h"

#include <arrow/array/array_nested.h>
#include <arrow/array/array_primitive.h>
#include <arrow/record_batch.h>
#include <arrow/util/float16.h>
#include <arrow/util/key_value_metadata.h>
#include <arrow/util/utf8.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace quarrel::flight {
namespace {

void must(const arrow::Status& status) {
  if (status.ok()) return;
  fail(status.IsOutOfMemory() ? ErrorKind::out_of_memory : ErrorKind::internal, "a batch of vectors: {}",
       status.message());
}

template <typename T>
T must(arrow::Result<T> result) {
  must(result.status());
  return std::move(result).ValueUnsafe();
}

std::shared_ptr<arrow::Buffer> zeroed(std::size_t bytes) {
  std::shared_ptr<arrow::Buffer> buffer = must(arrow::AllocateBuffer(static_cast<std::int64_t>(bytes)));
  std::memset(buffer->mutable_data(), 0, bytes);
  return buffer;
}

template <typename T>
std::shared_ptr<arrow::Buffer> copied(const std::vector<T>& values) {
  std::shared_ptr<arrow::Buffer> buffer =
      must(arrow::AllocateBuffer(static_cast<std::int64_t>(values.size() * sizeof(T))));
  std::memcpy(buffer->mutable_data(), values.data(), values.size() * sizeof(T));
  return buffer;
}

// What the store reads when it makes a dataset. Vectors of length 1 are in the order of cosines either way.
std::shared_ptr<const arrow::KeyValueMetadata> properties_of(const DatasetSchema& schema) {
  auto properties = std::make_shared<arrow::KeyValueMetadata>();
  for (const auto& [key, value] : schema.properties) properties->Append(key, value);
  if (!properties->Contains("longbow.metric")) properties->Append("longbow.metric", "cosine");
  if (schema.vector_type == VectorType::float16 && !properties->Contains("longbow.vector_type")) {
    properties->Append("longbow.vector_type", "float16");
  }
  return properties;
}

}  // namespace

std::shared_ptr<arrow::Schema> arrow_schema(const DatasetSchema& schema) {
  if (schema.dimension < 1) fail(ErrorKind::bad_input, "vectors have zero dimension");
  const auto element = schema.vector_type == VectorType::float32 ? arrow::float32() : arrow::float16();
  arrow::FieldVector fields = {
      arrow::field("id", schema.id_type == IdType::int64 ? arrow::int64() : arrow::utf8(), false),
      arrow::field("vector", arrow::fixed_size_list(element, schema.dimension), false)};
  if (schema.timestamp) fields.push_back(arrow::field("timestamp", arrow::timestamp(arrow::TimeUnit::NANO)));
  if (schema.text) fields.push_back(arrow::field("text", arrow::utf8()));
  for (const std::string& name : schema.columns) fields.push_back(arrow::field(name, arrow::utf8()));
  std::set<std::string_view> names(kStoreColumns.begin(), kStoreColumns.end());
  for (const std::string& name : schema.columns) {
    if (name.empty() || !names.insert(name).second) {
      fail(ErrorKind::bad_input, "a dataset cannot have a further column called '{}'", printable(name));
    }
  }
  return arrow::schema(std::move(fields), properties_of(schema));
}

void TextColumn::add(std::string_view text) {
  must(offsets_.Append(static_cast<std::int32_t>(data_.length())));
  if (!text.empty()) must(data_.Append(text.data(), static_cast<std::int64_t>(text.size())));
}

std::shared_ptr<arrow::Array> TextColumn::finish() {
  const std::int64_t rows = offsets_.length();
  must(offsets_.Append(static_cast<std::int32_t>(data_.length())));
  auto offsets = must(offsets_.Finish());
  auto data = must(data_.Finish());
  return std::make_shared<arrow::StringArray>(rows, std::move(offsets), std::move(data));
}

void TextColumn::clear() {
  offsets_.Reset();
  data_.Reset();
}

ArrowBatch::ArrowBatch(DatasetSchema schema, std::size_t capacity, std::size_t largest)
    : schema_(std::move(schema)), columns_(arrow_schema(schema_)), capacity_(capacity), largest_(largest) {
  if (capacity_ == 0) fail(ErrorKind::bad_input, "no vectors provided: a batch has room for at least one");
  // Offsets of texts are numbers of 32 bits.
  largest_ = std::min<std::size_t>(largest_, std::numeric_limits<std::int32_t>::max());
  if (capacity_ > largest_ / row_bytes()) {
    fail(ErrorKind::bad_input, "a batch of {} vectors of {} values would have more than {} bytes", capacity_,
         schema_.dimension, largest_);
  }
  const auto dimension = static_cast<std::size_t>(schema_.dimension);
  floats_ = zeroed(capacity_ * dimension * sizeof(float));
  texts_.resize(schema_.columns.size() + (schema_.id_type == IdType::utf8 ? 1u : 0u) + (schema_.text ? 1u : 0u));
  ids_.reserve(schema_.id_type == IdType::int64 ? capacity_ : 0);
  timestamps_.reserve(schema_.timestamp ? capacity_ : 0);
  arrow::util::InitializeUTF8();
}

std::size_t ArrowBatch::row_bytes() const noexcept {
  const std::size_t element = schema_.vector_type == VectorType::float32 ? 4 : 2;
  return static_cast<std::size_t>(schema_.dimension) * element + 8 + (schema_.timestamp ? 8 : 0) +
         4 * (schema_.columns.size() + (schema_.text ? 1u : 0u));
}

std::size_t ArrowBatch::bytes() const noexcept {
  if (payload_ != nullptr) return static_cast<std::size_t>(payload_->body_length);
  std::size_t sum = rows_ * row_bytes();
  for (const TextColumn& column : texts_) sum += column.bytes();
  return sum;
}

void ArrowBatch::check_row(const BatchRow& row) const {
  if (payload_ != nullptr) fail(ErrorKind::internal, "a batch that was sent takes no more rows until it is cleared");
  if (rows_ == capacity_) fail(ErrorKind::bad_input, "the batch is full: it has room for {} vectors", capacity_);
  if (schema_.id_type == IdType::int64 && (row.id < 0 || row.id > kLargestVectorId)) {
    fail(ErrorKind::bad_input, "the id {} is not a number from 0 to {}: no search could give it back", row.id,
         kLargestVectorId);
  }
  if (row.columns.size() != schema_.columns.size()) {
    fail(ErrorKind::bad_input, "a row has {} further columns, and its dataset {}", row.columns.size(),
         schema_.columns.size());
  }
  std::size_t length = row.text.size() + row.id_text.size();
  bool well_formed = arrow::util::ValidateUTF8(row.text) && arrow::util::ValidateUTF8(row.id_text);
  for (const std::string_view column : row.columns) {
    length += column.size();
    well_formed = well_formed && arrow::util::ValidateUTF8(column);
  }
  if (!well_formed) fail(ErrorKind::bad_input, "the texts of row {} are not UTF-8", row.id);
  if (bytes() + row_bytes() + length > largest_) {
    fail(ErrorKind::bad_input, "the batch would have more than {} bytes with the texts of row {}", largest_, row.id);
  }
}

std::size_t ArrowBatch::add(const BatchRow& row) {
  check_row(row);
  std::size_t column = 0;
  if (schema_.id_type == IdType::int64) {
    ids_.push_back(row.id);
  } else {
    texts_[column++].add(row.id_text);
  }
  if (schema_.timestamp) timestamps_.push_back(row.timestamp);
  if (schema_.text) texts_[column++].add(row.text);
  for (const std::string_view text : row.columns) texts_[column++].add(text);
  return rows_++;
}

void ArrowBatch::check_number(std::size_t row) const {
  if (row >= rows_) fail(ErrorKind::internal, "there is no row {} in a batch of {}", row, rows_);
}

std::span<float> ArrowBatch::vector(std::size_t row) {
  check_number(row);
  const auto dimension = static_cast<std::size_t>(schema_.dimension);
  return {reinterpret_cast<float*>(floats_->mutable_data()) + row * dimension, dimension};
}

void ArrowBatch::set_vector(std::size_t row, std::span<const float> values) {
  if (values.empty()) fail(ErrorKind::bad_input, "vectors have zero dimension");
  if (values.size() != static_cast<std::size_t>(schema_.dimension)) {
    fail(ErrorKind::bad_input, "vector {} has dimension {}, expected {}", row, values.size(), schema_.dimension);
  }
  std::ranges::copy(values, vector(row).begin());
}

void ArrowBatch::clear() {
  payload_.reset();
  rows_ = 0;
  ids_.clear();
  timestamps_.clear();
  for (TextColumn& column : texts_) column.clear();
  // Somebody else has it while the network still reads it.
  if (floats_.use_count() > 1) floats_ = zeroed(static_cast<std::size_t>(floats_->size()));
}

std::shared_ptr<arrow::Array> ArrowBatch::vectors() {
  const std::size_t count = rows_ * static_cast<std::size_t>(schema_.dimension);
  const auto length = static_cast<std::int64_t>(count);
  std::shared_ptr<arrow::Array> values;
  if (schema_.vector_type == VectorType::float32) {
    values = std::make_shared<arrow::FloatArray>(length, arrow::SliceBuffer(floats_, 0, length * 4));
  } else {
    std::vector<std::uint16_t> halves(count);
    const auto* floats = reinterpret_cast<const float*>(floats_->data());
    std::transform(floats, floats + count, halves.begin(),
                   [](float value) { return arrow::util::Float16::FromFloat(value).bits(); });
    values = std::make_shared<arrow::HalfFloatArray>(length, copied(halves));
  }
  return std::make_shared<arrow::FixedSizeListArray>(columns_->field(1)->type(), static_cast<std::int64_t>(rows_),
                                                     std::move(values));
}

std::shared_ptr<arrow::RecordBatch> ArrowBatch::record_batch() {
  const auto length = static_cast<std::int64_t>(rows_);
  arrow::ArrayVector arrays;
  std::size_t column = 0;
  if (schema_.id_type == IdType::int64) {
    arrays.push_back(std::make_shared<arrow::Int64Array>(length, copied(ids_)));
  } else {
    arrays.push_back(texts_[column++].finish());
  }
  arrays.push_back(vectors());
  if (schema_.timestamp) {
    arrays.push_back(std::make_shared<arrow::TimestampArray>(columns_->field(2)->type(), length, copied(timestamps_)));
  }
  while (column < texts_.size()) arrays.push_back(texts_[column++].finish());
  return arrow::RecordBatch::Make(columns_, length, std::move(arrays));
}

const arrow::ipc::IpcPayload& ArrowBatch::payload() {
  if (rows_ == 0) fail(ErrorKind::bad_input, "no vectors provided");
  if (payload_ == nullptr) {
    auto payload = std::make_unique<arrow::ipc::IpcPayload>();
    must(arrow::ipc::GetRecordBatchPayload(*record_batch(), arrow::ipc::IpcWriteOptions::Defaults(), payload.get()));
    payload_ = std::move(payload);
  }
  return *payload_;
}

}  // namespace quarrel::flight
