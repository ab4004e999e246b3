#include "backend/cuda/step_tables.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/cuda_error.h"
#include "base/as_size.h"

namespace quarrel::cuda {
namespace {

constexpr std::size_t kWord = sizeof(std::int32_t);
constexpr std::size_t kSaturatedWords = 4;  // one number of eight bytes, and what keeps the rest aligned

constexpr std::size_t kRunWords = sizeof(StepRun) / kWord;

int tile_limit(const TableLimits& limits) { return limits.rows / kPrefillTileRows + limits.sequences + 1; }

}  // namespace

StepTables::StepTables(const TableLimits& limits, const LaunchContext& context) : limits_(limits) {
  lay_out();
  memory_ = DeviceBuffer(end_ * kWord, "tables of a step");
  check(cudaMemsetAsync(memory_.data(), 0, memory_.size(), context.stream), "tables of a step");
  for (int which = 0; which < 2; ++which) {
    up_[which] = PinnedBuffer((end_ - bad_rows_) * kWord, "tables of a step");
    down_[which] = PinnedBuffer(tokens_ * kWord, "results of a step");
  }
}

std::size_t StepTables::bytes(const TableLimits& limits) {
  StepTables tables;
  tables.limits_ = limits;
  tables.lay_out();
  return tables.end_ * kWord;
}

void StepTables::lay_out() {
  std::size_t at = kSaturatedWords;
  const auto take = [&at](std::size_t& place, std::size_t words) {
    place = at;
    at += (words + 3) / 4 * 4;
  };
  const std::size_t rows = as_size(limits_.rows);
  const std::size_t outputs = as_size(limits_.outputs);
  take(ids_, outputs);
  take(logprobs_, outputs);
  take(bad_rows_, rows);
  take(bad_outputs_, outputs);
  take(tokens_, rows);
  take(positions_, rows);
  take(sequences_, rows);
  take(first_new_, rows);
  take(output_rows_, outputs);
  take(targets_, outputs);
  take(draws_, outputs * (sizeof(TokenDraw) / kWord));
  take(edit_places_, outputs);
  take(edits_, sizeof(const LogitEdits*) / kWord);
  take(tiles_, 2 * as_size(tile_limit(limits_)));
  take(runs_, kRunWords * as_size(limits_.sequences));
  take(run_of_, rows);
  take(snapshots_, rows);
  take(lengths_, as_size(limits_.sequences));
  take(tables_, as_size(limits_.sequences) * as_size(limits_.groups) * as_size(limits_.table_blocks));
  end_ = at;
}

std::int32_t* StepTables::up(int which, std::size_t place) const {
  return reinterpret_cast<std::int32_t*>(up_[which].data()) + (place - bad_rows_);
}

std::span<const std::int32_t> StepTables::down(int which, std::size_t place, int count) const {
  return {reinterpret_cast<const std::int32_t*>(down_[which].data()) + place, as_size(count)};
}

StepRows StepTables::rows(int group) const {
  return {.positions = device(positions_),
          .sequences = device(sequences_),
          .first_new = device(first_new_),
          .tables = device(tables_) + as_size(group) * as_size(limits_.table_blocks),
          .table_stride = limits_.groups * limits_.table_blocks,
          .count = limits_.rows,
          .lengths = device(lengths_)};
}

void StepTables::set_rows(int which, std::span<const StepRow> rows, std::span<const std::int32_t> tokens) {
  std::fill_n(up(which, bad_rows_), rows.size(), -1);
  std::ranges::copy(tokens, up(which, tokens_));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    up(which, positions_)[r] = rows[r].position;
    up(which, sequences_)[r] = rows[r].sequence;
    const bool continues = r > 0 && rows[r - 1].sequence == rows[r].sequence;
    up(which, first_new_)[r] = continues ? up(which, first_new_)[r - 1] : rows[r].position;
  }
}

void StepTables::set_outputs(int which, std::span<const std::int32_t> rows, std::span<const std::int32_t> targets,
                             std::span<const TokenDraw> draws) {
  std::fill_n(up(which, bad_outputs_), rows.size(), -1);
  std::ranges::copy(rows, up(which, output_rows_));
  std::ranges::copy(targets, up(which, targets_));
  std::memcpy(up(which, draws_), draws.data(), draws.size_bytes());
}

void StepTables::set_edits(int which, std::span<const std::int32_t> places, const LogitEdits* edits) {
  std::ranges::copy(places, up(which, edit_places_));
  std::memcpy(up(which, edits_), &edits, sizeof edits);
}

void StepTables::set_sequences(int which, std::span<const StepSequence> sequences) {
  sequences_used_[which] = static_cast<int>(sequences.size());
  const std::size_t blocks = as_size(limits_.table_blocks);
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    up(which, lengths_)[s] = sequences[s].length;
    std::int32_t* table = up(which, tables_) + s * as_size(limits_.groups) * blocks;
    for (const BlockTable& group : sequences[s].tables) {
      const std::size_t known = std::min(blocks, group.blocks.size());
      std::copy_n(group.blocks.begin(), known, table);
      std::fill(table + known, table + blocks, 0);
      table += blocks;
    }
  }
}

int StepTables::set_tiles(int which, std::span<const StepRow> rows, int first) {
  auto* tiles = reinterpret_cast<PrefillTile*>(up(which, tiles_));
  int count = 0;
  int before = -1;  // the sequence of the last tile
  for (std::size_t r = as_size(first); r < rows.size(); ++r) {
    if (rows[r].sequence < 0) continue;
    if (rows[r].sequence != before || tiles[count - 1].count == kPrefillTileRows) {
      tiles[count++] = {.first = static_cast<std::int32_t>(r), .count = 0};
      before = rows[r].sequence;
    }
    ++tiles[count - 1].count;
  }
  return count;
}

StepRuns StepTables::runs(int count) const {
  return {.runs = reinterpret_cast<const StepRun*>(device(runs_)),
          .count = count,
          .run_of = device(run_of_),
          .snapshots = device(snapshots_)};
}

int StepTables::set_runs(int which, std::span<const StepRow> rows, std::span<const StepSequence> sequences,
                         std::span<const StateSnapshot> snapshots) {
  auto* runs = reinterpret_cast<StepRun*>(up(which, runs_));
  std::fill_n(runs, limits_.sequences, StepRun{});
  std::fill_n(up(which, snapshots_), rows.size(), -1);
  int count = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::int32_t sequence = rows[r].sequence;
    const bool continues = r > 0 && sequence == rows[r - 1].sequence;
    if (sequence >= 0 && !continues) {
      runs[count++] = {.first = static_cast<std::int32_t>(r),
                       .count = 0,
                       .state_in = sequences[as_size(sequence)].state_in,
                       .state_out = sequences[as_size(sequence)].state_out};
    }
    if (sequence >= 0) ++runs[count - 1].count;
    up(which, run_of_)[r] = sequence < 0 ? -1 : count - 1;
  }
  for (const StateSnapshot& snapshot : snapshots) {
    up(which, snapshots_)[snapshot.row] = snapshot.slot;
    runs[up(which, run_of_)[snapshot.row]].has_snapshots = 1;
  }
  return count;
}

void StepTables::upload(int which, const LaunchContext& context) {
  const std::size_t used = as_size(sequences_used_[which]) * as_size(limits_.groups) * as_size(limits_.table_blocks);
  check(cudaMemcpyAsync(device(bad_rows_), up_[which].data(), (tables_ + used - bad_rows_) * kWord,
                        cudaMemcpyHostToDevice, context.stream),
        "upload of a step");
}

void StepTables::download(int which, const LaunchContext& context) {
  check(cudaMemcpyAsync(down_[which].data(), memory_.data(), tokens_ * kWord, cudaMemcpyDeviceToHost, context.stream),
        "results of a step");
}

float StepTables::host_logprob(int which, int output) const {
  float value = 0.0f;
  std::memcpy(&value, down_[which].data() + (logprobs_ + as_size(output)) * kWord, sizeof value);
  return value;
}

std::uint64_t StepTables::host_saturated(int which) const {
  std::uint64_t value = 0;
  std::memcpy(&value, down_[which].data(), sizeof value);
  return value;
}

}  // namespace quarrel::cuda
