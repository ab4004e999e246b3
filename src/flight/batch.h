// Rows on their way into a dataset: what columns they have, and the memory that they lie in. The memory is Arrow's, so
// that a vector is copied once, from the step that computed it into the buffer that the network reads.
//
// Threads: one thread at a time calls the members of a batch; the spans that `vector` gave may be written by any
// thread until the batch is appended to a stream, each by one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quarrel {

// Only numbers of 32 bits without a sign come back from a search; a text that is no such number comes back as the
// server's own row number.
enum class IdType { int64, utf8 };
enum class VectorType { float32, float16 };

// Columns with a meaning of their own: further ones cannot have these names.
inline constexpr std::array<std::string_view, 4> kStoreColumns = {"id", "vector", "timestamp", "text"};

// The columns of a dataset, the same for every batch of a stream and for as long as the dataset lives:
// id, vector, and by option timestamp, text and further columns of text. The server compares types only, so that a
// column may be left out later, and one that is added later never shows in a scan.
struct DatasetSchema {
  std::int32_t dimension = 0;
  IdType id_type = IdType::int64;
  VectorType vector_type = VectorType::float32;
  bool timestamp = true;                  // timestamp[ns], when the row was made
  bool text = true;                       // what was embedded; the server's text search reads it
  std::vector<std::string> columns = {};  // further ones of type utf8, such as "metadata" (JSON)
  // Of the schema itself; the server reads longbow.metric when it makes the dataset, and ignores what it does not know.
  std::vector<std::pair<std::string, std::string>> properties = {};

  bool operator==(const DatasetSchema&) const = default;
};

inline constexpr std::int64_t kLargestVectorId = 0xFFFF'FFFF;

// What `VectorBatch::add` copies; the vector is written afterwards.
struct BatchRow {
  std::int64_t id = 0;            // where ids are numbers: 0 … kLargestVectorId
  std::string_view id_text = {};  // where they are texts
  std::int64_t timestamp = 0;     // nanoseconds since 1970, UTC
  std::string_view text = {};
  std::span<const std::string_view> columns = {};  // one for each of the schema's
};

class VectorBatch {
 public:
  virtual ~VectorBatch() = default;

  virtual const DatasetSchema& schema() const noexcept = 0;
  virtual std::size_t capacity() const noexcept = 0;
  virtual std::size_t rows() const noexcept = 0;
  // Of all columns, about what goes over the network.
  virtual std::size_t bytes() const noexcept = 0;

  // The row's number, from 0. Throws Error(bad_input) for an id out of range, text that is not UTF-8, or too few or too
  // many columns, and for a row beyond the capacity.
  virtual std::size_t add(const BatchRow& row) = 0;
  // The place of a row's vector, which stays where it is until `clear`: all of it has to be written before the batch
  // is appended to a stream. With float16 it is rounded from here at that moment.
  virtual std::span<float> vector(std::size_t row) = 0;
  // Copies it there. Throws Error(bad_input) where `values` are not as many as the schema's dimension.
  virtual void set_vector(std::size_t row, std::span<const float> values) = 0;
  // Empties it for reuse. Memory that the network still holds is left to it and replaced.
  virtual void clear() = 0;
};

}  // namespace quarrel
