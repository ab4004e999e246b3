// Where lists of biases, counted tokens and masks lie that a step's logits are changed by: gathered on the host, one
// copy up a step. They are as long as the texts ask for, so they have no place in the step's tables, which only point
// here; a captured graph finds them nevertheless. Two steps may be open. Used by the backend alone, one thread at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/choose_tokens.h"
#include "backend/cuda/device_memory.h"
#include "backend/sampler_state.h"

namespace quarrel::cuda {

TokenDraw token_draw(const SamplerState::Draw& draw);

// How one output's logits are changed, and what rarer ways to sample ask for.
struct OutputEdits {
  const SamplerState* lane = nullptr;        // null: there is none of it
  std::span<const std::uint64_t> mask = {};  // empty: all may come
  const std::int32_t* unseen = nullptr;      // on the device: a token of the lane that nobody has seen; null: none
  float* lane_mu = nullptr;                  // on the device: the lane's place for mirostat's mu
};

class LogitEditMemory {
 public:
  // Where the edits of each output are, -1 for those that have none. The step before the last must be over.
  void gather(int which, std::span<const OutputEdits> outputs, std::span<std::int32_t> places);
  const LogitEdits* edits() const { return device_.as<LogitEdits>(); }
  void upload(int which, const LaunchContext& context);

 private:
  struct Staging {
    PinnedBuffer memory;
    std::size_t used = 0;
  };
  LogitEdits put_lists(int which, const OutputEdits& output);
  template <typename T>
  T* put(int which, std::span<const T> values);
  void make_room(int which, std::size_t bytes);

  Staging staging_[2];
  DeviceBuffer device_;
  std::vector<LogitBias> biases_;
  std::vector<TokenCount> counts_;
  std::vector<CountedToken> tokens_;
  std::vector<LogitEdits> edits_;
};

}  // namespace quarrel::cuda
