// Turns tensors from one type into another, on all cores, piece by piece: the source is read with the system's read
// call in pieces of a few hundred kilobytes, so memory holds the result of one tensor and little more. Used by
// conversion and quantising. A Recoder belongs to one thread, which also hears of the progress.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string_view>

#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "quant/types.h"

namespace quarrel {

// In what order a head's rows stand in the result. A rotation turns pairs of rows: in some models the first row with
// the first of the second half, in others each even row with its neighbour.
enum class RowOrder : std::uint8_t { as_they_are, halves_to_pairs };

// Where row `row` of a result in pairs stands in a source in halves, for heads of `head` rows, an even number.
constexpr std::uint64_t row_in_halves(std::uint64_t row, std::uint64_t head) noexcept {
  const std::uint64_t within = row % head;
  return row - within + within / 2 + within % 2 * (head / 2);
}

// Values that lie in rows one after the other, in a file or in memory.
struct TensorSource {
  std::string_view name = {};  // for messages
  QuantType type = QuantType::f32;
  std::uint64_t row = 0;  // values a row, a multiple of the type's block
  std::uint64_t rows = 0;
  const MappedFile* file = nullptr;
  std::uint64_t offset = 0;         // in the file
  const std::byte* data = nullptr;  // where there is no file
  RowOrder order = RowOrder::as_they_are;
  std::uint64_t head = 0;  // rows a head, where the order matters

  std::uint64_t bytes() const noexcept { return row_bytes(type_info(type), row * rows); }
};

struct RecodeOptions {
  // Called on the caller's thread, several times a second and at the end; amounts in bytes of the source.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
  std::stop_token stop = {};
  int threads = 0;  // 0: one a core that the process may use
};

class Recoder {
 public:
  // `total` is the sum of bytes() over all tensors to come.
  Recoder(RecodeOptions options, std::uint64_t total);

  // Fills `result`, whose size is that of the source's values in `type`. Throws Error: cancelled when a stop was asked
  // for, io, and bad_input with the tensor's name for a value that is not finite.
  void recode(const TensorSource& source, QuantType type, std::span<std::byte> result);

 private:
  void report();

  RecodeOptions options_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::chrono::steady_clock::time_point reported_;
  ThreadPool pool_;
};

}  // namespace quarrel
