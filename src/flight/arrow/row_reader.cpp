#include "flight/arrow/row_reader.h"

#include <arrow/array.h>
#include <arrow/scalar.h>
#include <arrow/type.h>
#include <arrow/type_traits.h>
#include <arrow/util/float16.h>
#include <arrow/util/key_value_metadata.h>

#include <limits>
#include <optional>

namespace quarrel::flight {
namespace {

bool is_vector(const arrow::DataType& type) {
  if (type.id() != arrow::Type::FIXED_SIZE_LIST) return false;
  const auto element = static_cast<const arrow::FixedSizeListType&>(type).value_type()->id();
  return element == arrow::Type::FLOAT || element == arrow::Type::HALF_FLOAT;
}

bool is_text(const arrow::DataType& type) { return type.id() == arrow::Type::STRING; }

std::string_view text_at(const arrow::Array& column, std::int64_t row) {
  return static_cast<const arrow::StringArray&>(column).GetView(row);
}

// Of a column of whole numbers, where it fits.
std::optional<std::int64_t> number_at(const arrow::Array& column, std::int64_t row) {
  switch (column.type_id()) {
    case arrow::Type::INT64: return static_cast<const arrow::Int64Array&>(column).Value(row);
    case arrow::Type::INT32: return static_cast<const arrow::Int32Array&>(column).Value(row);
    case arrow::Type::UINT32: return static_cast<const arrow::UInt32Array&>(column).Value(row);
    case arrow::Type::UINT64: {
      const std::uint64_t value = static_cast<const arrow::UInt64Array&>(column).Value(row);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
      return static_cast<std::int64_t>(value);
    }
    default: return std::nullopt;
  }
}

std::optional<std::int64_t> nanoseconds_at(const arrow::Array& column, std::int64_t row) {
  if (column.type_id() != arrow::Type::TIMESTAMP) return std::nullopt;
  const std::int64_t value = static_cast<const arrow::TimestampArray&>(column).Value(row);
  std::int64_t factor = 1;
  switch (static_cast<const arrow::TimestampType&>(*column.type()).unit()) {
    case arrow::TimeUnit::SECOND: factor = 1'000'000'000; break;
    case arrow::TimeUnit::MILLI: factor = 1'000'000; break;
    case arrow::TimeUnit::MICRO: factor = 1'000; break;
    case arrow::TimeUnit::NANO: break;
  }
  std::int64_t result = 0;
  if (__builtin_mul_overflow(value, factor, &result)) return std::nullopt;
  return result;
}

}  // namespace

StoredSchema stored_schema(const arrow::Schema& schema) {
  StoredSchema result;
  for (const auto& field : schema.fields()) {
    result.columns.push_back({.name = field->name(), .type = field->type()->ToString()});
  }
  if (const auto id = schema.GetFieldByName("id")) {
    const bool number = arrow::is_integer(id->type()->id());
    if (number || is_text(*id->type())) result.id_type = number ? IdType::int64 : IdType::utf8;
  }
  if (const auto vector = schema.GetFieldByName("vector"); vector != nullptr && is_vector(*vector->type())) {
    const auto& type = static_cast<const arrow::FixedSizeListType&>(*vector->type());
    result.dimension = type.list_size();
    result.vector_type = type.value_type()->id() == arrow::Type::FLOAT ? VectorType::float32 : VectorType::float16;
  }
  if (schema.metadata() != nullptr) {
    for (std::int64_t i = 0; i < schema.metadata()->size(); ++i) {
      result.properties.emplace_back(schema.metadata()->key(i), schema.metadata()->value(i));
    }
  }
  return result;
}

// A batch's columns by what they are; null where there is none.
struct RowReader::Columns {
  explicit Columns(const arrow::RecordBatch& batch) {
    for (int i = 0; i < batch.num_columns(); ++i) {
      const std::string& name = batch.column_name(i);
      const arrow::Array* column = batch.column(i).get();
      if (name == "id" && id == nullptr) {
        id = column;
      } else if (name == "vector" && vector == nullptr && is_vector(*column->type())) {
        vector = static_cast<const arrow::FixedSizeListArray*>(column);
      } else if (name == "timestamp" && timestamp == nullptr && column->type_id() == arrow::Type::TIMESTAMP) {
        timestamp = column;
      } else if (name == "text" && text == nullptr && is_text(*column->type())) {
        text = column;
      } else {
        others.push_back(column);
        names.push_back(&name);
      }
    }
  }

  const arrow::Array* id = nullptr;
  const arrow::FixedSizeListArray* vector = nullptr;
  const arrow::Array* timestamp = nullptr;
  const arrow::Array* text = nullptr;
  std::vector<const arrow::Array*> others;
  std::vector<const std::string*> names;
};

void RowReader::read_id(const Columns& columns, std::int64_t row) {
  row_.id.reset();
  row_.id_text = {};
  if (columns.id == nullptr || columns.id->IsNull(row)) return;
  if (is_text(*columns.id->type())) {
    row_.id_text = text_at(*columns.id, row);
    return;
  }
  row_.id = number_at(*columns.id, row);
  if (row_.id) id_text_ = std::to_string(*row_.id);
  row_.id_text = row_.id ? std::string_view(id_text_) : std::string_view();
}

void RowReader::read_vector(const Columns& columns, std::int64_t row) {
  row_.vector = {};
  if (columns.vector == nullptr || columns.vector->IsNull(row)) return;
  const arrow::Array& values = *columns.vector->values();
  const auto first = static_cast<std::int64_t>(columns.vector->value_offset(row));
  const auto count = static_cast<std::size_t>(columns.vector->value_length());
  if (values.type_id() == arrow::Type::FLOAT) {
    row_.vector = {static_cast<const arrow::FloatArray&>(values).raw_values() + first, count};
    return;
  }
  const std::uint16_t* halves = static_cast<const arrow::HalfFloatArray&>(values).raw_values() + first;
  values_.resize(count);
  for (std::size_t i = 0; i < count; ++i) values_[i] = arrow::util::Float16::FromBits(halves[i]).ToFloat();
  row_.vector = values_;
}

bool RowReader::visit(const arrow::RecordBatch& batch, const RowVisitor& visitor) {
  const Columns columns(batch);
  others_.resize(columns.others.size());
  texts_.resize(columns.others.size());
  for (std::int64_t row = 0; row < batch.num_rows(); ++row) {
    read_id(columns, row);
    read_vector(columns, row);
    const bool timed = columns.timestamp != nullptr && columns.timestamp->IsValid(row);
    row_.timestamp = timed ? nanoseconds_at(*columns.timestamp, row) : std::nullopt;
    const bool has_text = columns.text != nullptr && columns.text->IsValid(row);
    row_.text = has_text ? text_at(*columns.text, row) : std::string_view();
    for (std::size_t i = 0; i < others_.size(); ++i) {
      const arrow::Array& column = *columns.others[i];
      others_[i] = {.name = *columns.names[i], .value = {}, .null = column.IsNull(row)};
      if (others_[i].null) continue;
      if (is_text(*column.type())) {
        others_[i].value = text_at(column, row);
        continue;
      }
      const auto value = column.GetScalar(row);
      texts_[i] = value.ok() ? (*value)->ToString() : std::string();
      others_[i].value = texts_[i];
    }
    row_.columns = others_;
    if (!visitor(row_)) return false;
  }
  return true;
}

bool append_hits(const arrow::RecordBatch& batch, std::size_t most, std::vector<SearchHit>& hits) {
  const auto id = batch.GetColumnByName("id");
  const auto score = batch.GetColumnByName("score");
  if (id == nullptr || id->type_id() != arrow::Type::UINT64 || score == nullptr ||
      score->type_id() != arrow::Type::FLOAT || id->null_count() > 0 || score->null_count() > 0) {
    return false;
  }
  for (std::int64_t row = 0; row < batch.num_rows() && hits.size() < most; ++row) {
    hits.push_back({.id = static_cast<const arrow::UInt64Array&>(*id).Value(row),
                    .score = static_cast<const arrow::FloatArray&>(*score).Value(row)});
  }
  return true;
}

}  // namespace quarrel::flight
