// A batch whose columns are Arrow's buffers: what `vector` gives is the memory that the network reads. Made by the
// client, filled by its caller, sent by its streams.
#pragma once

#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/buffer_builder.h>
#include <arrow/ipc/writer.h>
#include <arrow/type.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "flight/batch.h"

namespace quarrel::flight {

// Throws Error(bad_input) for a dimension below 1 and for column names that clash.
std::shared_ptr<arrow::Schema> arrow_schema(const DatasetSchema& schema);

// A column of texts that grows.
class TextColumn {
 public:
  void add(std::string_view text);
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(data_.length()); }
  // The texts so far; it is empty afterwards.
  std::shared_ptr<arrow::Array> finish();
  void clear();

 private:
  arrow::TypedBufferBuilder<std::int32_t> offsets_;
  arrow::BufferBuilder data_;
};

class ArrowBatch : public VectorBatch {
 public:
  ArrowBatch(DatasetSchema schema, std::size_t capacity, std::size_t largest);

  const DatasetSchema& schema() const noexcept override { return schema_; }
  std::size_t capacity() const noexcept override { return capacity_; }
  std::size_t rows() const noexcept override { return rows_; }
  std::size_t bytes() const noexcept override;
  std::size_t add(const BatchRow& row) override;
  std::span<float> vector(std::size_t row) override;
  void set_vector(std::size_t row, std::span<const float> values) override;
  void clear() override;

  const std::shared_ptr<arrow::Schema>& columns() const noexcept { return columns_; }
  // The rows as a message to be sent, made once; from then on no rows can be added. Throws Error(bad_input) where there
  // are none.
  const arrow::ipc::IpcPayload& payload();

 private:
  std::size_t row_bytes() const noexcept;  // of what has the same size in each row
  void check_row(const BatchRow& row) const;
  void check_number(std::size_t row) const;
  std::shared_ptr<arrow::Array> vectors();
  std::shared_ptr<arrow::RecordBatch> record_batch();

  DatasetSchema schema_;
  std::shared_ptr<arrow::Schema> columns_;
  std::size_t capacity_;
  std::size_t largest_;  // bytes
  std::size_t rows_ = 0;
  std::vector<std::int64_t> ids_;
  std::vector<std::int64_t> timestamps_;
  std::vector<TextColumn> texts_;          // the id where it is a text, the text, the further columns
  std::shared_ptr<arrow::Buffer> floats_;  // [capacity, dimension], what `vector` gives
  std::unique_ptr<arrow::ipc::IpcPayload> payload_;
};

}  // namespace quarrel::flight
