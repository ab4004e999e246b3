// The least work that any way of doing an op needs: bytes of weights, cache and state, each read once, and
// multiply-adds. What profiles count, on every backend. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "backend/ops.h"
#include "base/step_rows.h"

namespace quarrel {

struct OpWork {
  std::uint64_t bytes = 0;
  std::uint64_t macs = 0;
  std::uint64_t quantised_macs = 0;

  OpWork& operator+=(const OpWork& more) noexcept;
};

void add_work(OpTime& time, const OpWork& work) noexcept;

// The size of a weight's matrix where it is read from, of one expert if it has several.
struct WeightSize {
  std::size_t bytes = 0;
  bool quantised = false;
};

// `rows` rows are multiplied with the matrix. Of experts `read` are read, and a row counts once for each that it goes
// to.
OpWork gemm_work(const Weight& weight, const WeightSize& size, std::uint64_t rows, std::uint64_t read = 1) noexcept;
// A row of the table for each token; the same token's row counts again.
OpWork embedding_work(const Weight& table, const WeightSize& size, std::uint64_t rows) noexcept;
// Rows without a sequence are padding. `lengths`: of each sequence, this step's rows with it.
OpWork attention_work(const AttendOp& op, std::span<const StepRow> rows, std::span<const std::int32_t> lengths,
                      std::size_t element_bytes);
// Each sequence's last inputs, `history` of them, and each channel's weights with each row.
OpWork convolution_work(const SsmOp& op, std::uint64_t history, std::uint64_t sequences, std::uint64_t rows) noexcept;
// Each sequence's state; a value of it decays, takes its share of the input and is multiplied with C.
OpWork scan_work(const SsmOp& op, std::uint64_t sequences, std::uint64_t rows) noexcept;

// What a projection is called in a profile.
std::string_view profile_name(const LinearOp& op) noexcept;

}  // namespace quarrel
