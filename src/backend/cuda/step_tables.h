// What a step's kernels read and what they leave for the host, in one piece of device memory whose places never move,
// so that a captured graph finds them: written by one copy before a step, read by one after it. The pinned memory of
// two steps lies beside it, since two may be open. Used by the backend alone; one thread at a time.
//
//   device   saturated | ids | logprobs | bad rows | bad outputs | tokens … block tables
//   down     ^------------------------------------^
//   up                              ^--------------------------- as far as this step's tables reach
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/choose_tokens.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/prefill_attention.h"
#include "backend/cuda/step_rows.h"
#include "backend/step.h"

namespace quarrel::cuda {

// The most that a step can hold, padding included.
struct TableLimits {
  int rows = 0;
  int outputs = 0;
  int sequences = 0;
  int groups = 0;
  int table_blocks = 0;  // of one sequence in one group
};

class StepTables {
 public:
  StepTables() = default;
  // Ready once the stream has got so far.
  StepTables(const TableLimits& limits, const LaunchContext& context);
  static std::size_t bytes(const TableLimits& limits);

  // ---- On the device ----
  StepRows rows(int group) const;  // all of the step; the caller sets their count
  std::int32_t* ids() const { return device(ids_); }
  float* logprobs() const { return reinterpret_cast<float*>(device(logprobs_)); }
  std::int32_t* bad_rows() const { return device(bad_rows_); }
  std::int32_t* bad_outputs() const { return device(bad_outputs_); }
  const std::int32_t* tokens() const { return device(tokens_); }
  const std::int32_t* output_rows() const { return device(output_rows_); }
  const std::int32_t* targets() const { return device(targets_); }
  const TokenDraw* draws() const { return reinterpret_cast<const TokenDraw*>(device(draws_)); }
  const std::int32_t* edit_places() const { return device(edit_places_); }
  const LogitEdits* const* edits() const { return reinterpret_cast<const LogitEdits* const*>(device(edits_)); }
  StepRuns runs(int count) const;
  const PrefillTile* tiles() const { return reinterpret_cast<const PrefillTile*>(device(tiles_)); }
  unsigned long long* saturated() const { return reinterpret_cast<unsigned long long*>(device(0)); }

  // ---- On the host, before a step: `which` of the two ----
  // One of the step's rows with padding; `token` is an id, or ~place of an output of the step before.
  void set_rows(int which, std::span<const StepRow> rows, std::span<const std::int32_t> tokens);
  // Row of each output, -1 for padding, and what is to be chosen there.
  void set_outputs(int which, std::span<const std::int32_t> rows, std::span<const std::int32_t> targets,
                   std::span<const TokenDraw> draws);
  // Which edits each output's logits have, and where they all are.
  void set_edits(int which, std::span<const std::int32_t> places, const LogitEdits* edits);
  void set_sequences(int which, std::span<const StepSequence> sequences);
  // Runs of prompt rows, from row `first` on; how many.
  int set_tiles(int which, std::span<const StepRow> rows, int first);
  // The rows of each sequence and where its state lies; how many there are. `snapshots` name rows with padding.
  int set_runs(int which, std::span<const StepRow> rows, std::span<const StepSequence> sequences,
               std::span<const StateSnapshot> snapshots);
  void upload(int which, const LaunchContext& context);

  // ---- And after it ----
  void download(int which, const LaunchContext& context);
  std::span<const std::int32_t> host_ids(int which) const { return down(which, ids_, limits_.outputs); }
  float host_logprob(int which, int output) const;
  std::span<const std::int32_t> host_bad_rows(int which) const { return down(which, bad_rows_, limits_.rows); }
  std::span<const std::int32_t> host_bad_outputs(int which) const { return down(which, bad_outputs_, limits_.outputs); }
  std::uint64_t host_saturated(int which) const;

 private:
  // Places in 32-bit words.
  std::int32_t* device(std::size_t place) const { return memory_.as<std::int32_t>() + place; }
  std::int32_t* up(int which, std::size_t place) const;
  std::span<const std::int32_t> down(int which, std::size_t place, int count) const;
  void lay_out();

  TableLimits limits_;
  std::size_t ids_ = 0, logprobs_ = 0, bad_rows_ = 0, bad_outputs_ = 0, tokens_ = 0, positions_ = 0, sequences_ = 0,
              first_new_ = 0, output_rows_ = 0, targets_ = 0, draws_ = 0, edit_places_ = 0, edits_ = 0, tiles_ = 0,
              runs_ = 0, run_of_ = 0, snapshots_ = 0, lengths_ = 0, tables_ = 0, end_ = 0;
  DeviceBuffer memory_;
  PinnedBuffer up_[2];
  PinnedBuffer down_[2];
  int sequences_used_[2] = {0, 0};
};

}  // namespace quarrel::cuda
