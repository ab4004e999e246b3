// The memory that `moe` works in on the CPU: routing, rows by expert, and what the experts compute. All of it is laid
// out in one buffer by one function, so that what is counted is what is taken.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/bf16_rows.h"
#include "backend/cpu/int8_rows.h"

namespace quarrel {

// The rows that chose one expert: those of class generated first, as in the step.
struct ExpertBatch {
  std::int32_t expert = 0;
  std::size_t first = 0;  // routed row
  std::size_t rows = 0;
  std::size_t generated = 0;  // how many rows, from the first, are of that class
  const std::byte* gate = nullptr;
  const std::byte* up = nullptr;
  const std::byte* down = nullptr;
};

// An expert as the router sees it.
struct ExpertChoice {
  double preference = 0.0;
  double score = 0.0;
  std::int32_t expert = 0;
};

// A routed row is a pair of a row and an expert it chose; they are ordered by expert, then by row. With more than one
// row in the step, an expert's routed rows begin with a tile of activations, so that its GEMMs read whole tiles; some
// places before the next expert's are then nobody's.
struct ExpertWorkspace {
  static constexpr std::size_t kUnit = 32;  // weight rows of an expert's matrix that a worker takes at a time

  // The largest of any layer.
  std::size_t experts = 0;
  std::size_t used = 0;
  std::size_t input = 0;
  bool has_bf16 = false;
  std::size_t hidden = 0;
  std::size_t width = 0;

  float* logits = nullptr;             // [rows][experts]
  ExpertChoice* choices = nullptr;     // [workers][experts]
  std::int32_t* chosen = nullptr;      // [rows][used]: experts, the best first
  float* weights = nullptr;            // [rows][used]
  std::uint32_t* routed_of = nullptr;  // [rows][used]
  std::uint32_t* row_of = nullptr;     // [routed rows]
  ExpertBatch* batches = nullptr;      // [experts]
  std::int32_t* loading = nullptr;     // [experts]: those that the cache is asked for
  float* inner = nullptr;              // [routed rows][hidden]
  std::byte* input_int8 = nullptr;     // of the rows that the routed rows belong to
  std::byte* inner_int8 = nullptr;     // of `inner`
  std::byte* input_bf16 = nullptr;     // the same two in bf16, if `has_bf16`
  std::byte* inner_bf16 = nullptr;
  float* outputs = nullptr;  // [routed rows][width]
  float* ups = nullptr;      // [workers][rows][kUnit]

  // What an expert's first routed row is a multiple of in a step of so many rows: tiles of bf16 numbers cannot begin
  // elsewhere, and tiles of int8 should not.
  std::size_t alignment(std::size_t rows) const noexcept {
    return has_bf16 ? kBf16TileRows : rows == 1 ? 1 : kInt8TileRows;
  }
  // Places for routed rows that a step of so many rows needs.
  std::size_t routed_rows(std::size_t rows) const noexcept;
  // Points everything into `memory` and gives back its size; null only counts.
  std::size_t lay_out(std::byte* memory, std::size_t rows, std::size_t workers);
};

}  // namespace quarrel
