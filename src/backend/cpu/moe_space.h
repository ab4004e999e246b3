// The memory that `moe` works in on the CPU: routing, groups of rows by expert, and what the experts compute. All of it
// is laid out in one buffer by one function, so that what is counted is what is taken.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quarrel {

// The rows that chose one expert: those of class generated first, as in the step.
struct ExpertGroup {
  std::int32_t expert = 0;
  std::size_t first = 0;  // of its rows' slots
  std::size_t rows = 0;
  std::size_t two_digits = 0;  // how many rows, from the first, have a residual digit
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

// A slot is a pair of a row and an expert it chose; slots are ordered by expert, then by row.
struct MoeSpace {
  static constexpr std::size_t kUnit = 32;  // rows of an expert's matrix that a worker takes at a time

  // The largest of any layer.
  std::size_t experts = 0;
  std::size_t used = 0;
  std::size_t hidden = 0;
  std::size_t width = 0;

  float* logits = nullptr;            // [rows][experts]
  ExpertChoice* choices = nullptr;    // [workers][experts]
  std::int32_t* chosen = nullptr;     // [rows][used]: experts, the best first
  float* weights = nullptr;           // [rows][used]
  std::uint32_t* slot_of = nullptr;   // [rows][used]
  std::uint32_t* row_of = nullptr;    // [slots]
  ExpertGroup* groups = nullptr;      // [experts]
  std::int32_t* batch = nullptr;      // [experts]
  float* inner = nullptr;             // [slots][hidden]
  std::byte* inner_digits = nullptr;  // of the same
  float* outputs = nullptr;           // [slots][width]
  float* ups = nullptr;               // [workers][rows][kUnit]

  // Points everything into `memory` and gives back its size; null only counts.
  std::size_t lay_out(std::byte* memory, std::size_t rows, std::size_t workers);
};

}  // namespace quarrel
