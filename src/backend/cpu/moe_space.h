// The memory that `moe` works in on the CPU: routing, groups of rows by expert, and what the experts compute. All of it
// is laid out in one buffer by one function, so that what is counted is what is taken.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/bfloat_rows.h"
#include "backend/cpu/digits.h"

namespace quarrel {

// The rows that chose one expert: those of class generated first, as in the step.
struct ExpertGroup {
  std::int32_t expert = 0;
  std::size_t first = 0;  // of its rows' slots
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

// A slot is a pair of a row and an expert it chose; slots are ordered by expert, then by row. With more than one row in
// the step, an expert's slots begin with a tile of digits, so that its products read whole tiles; some slots before the
// next expert's are then nobody's.
struct MoeSpace {
  static constexpr std::size_t kUnit = 32;  // rows of an expert's matrix that a worker takes at a time

  // The largest of any layer.
  std::size_t experts = 0;
  std::size_t used = 0;
  std::size_t input = 0;
  bool bfloats = false;
  std::size_t hidden = 0;
  std::size_t width = 0;

  float* logits = nullptr;             // [rows][experts]
  ExpertChoice* choices = nullptr;     // [workers][experts]
  std::int32_t* chosen = nullptr;      // [rows][used]: experts, the best first
  float* weights = nullptr;            // [rows][used]
  std::uint32_t* slot_of = nullptr;    // [rows][used]
  std::uint32_t* row_of = nullptr;     // [slots]
  ExpertGroup* groups = nullptr;       // [experts]
  std::int32_t* batch = nullptr;       // [experts]
  float* inner = nullptr;              // [slots][hidden]
  std::byte* input_digits = nullptr;   // of the rows that the slots belong to
  std::byte* inner_digits = nullptr;   // of `inner`
  std::byte* input_bfloats = nullptr;  // the same two in bf16, if `bfloats`
  std::byte* inner_bfloats = nullptr;
  float* outputs = nullptr;  // [slots][width]
  float* ups = nullptr;      // [workers][rows][kUnit]

  // What an expert's first slot is a multiple of in a step of so many rows: tiles of bf16 numbers cannot begin
  // elsewhere, and tiles of digits should not.
  std::size_t alignment(std::size_t rows) const noexcept { return bfloats ? kTileRows : rows == 1 ? 1 : kDigitRows; }
  std::size_t slots(std::size_t rows) const noexcept;
  // Points everything into `memory` and gives back its size; null only counts.
  std::size_t lay_out(std::byte* memory, std::size_t rows, std::size_t workers);
};

}  // namespace quarrel
