#include "backend/cuda/logit_edits.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/cuda_error.h"

namespace quarrel::cuda {
namespace {

constexpr std::size_t kEditAlignment = 16;
constexpr std::size_t kLeastBytes = 64 * 1024;

std::size_t edit_bytes(std::size_t bytes) { return (bytes + kEditAlignment - 1) / kEditAlignment * kEditAlignment; }

// At most what it takes.
std::size_t bytes_of(const OutputEdits& output) {
  if (output.lane == nullptr) return 0;
  return edit_bytes(sizeof(LogitEdits)) + edit_bytes(output.lane->params().logit_bias.size() * sizeof(LogitBias)) +
         edit_bytes(output.mask.size_bytes()) + edit_bytes((output.lane->counted_tokens() + 1) * sizeof(CountedToken));
}

}  // namespace

TokenDraw token_draw(const SamplerState::Draw& draw) {
  TokenDraw made{.random = draw.random,
                 .scale = 1.0 / draw.temperature,
                 .top_k = draw.top_k,
                 .top_p = draw.top_p,
                 .min_p = draw.min_p};
  if (draw.mirostat) {
    made.from = kFromSurprise;
  } else if (draw.typical_p < 1.0f) {
    made.from = kFromTypical;
  } else if (draw.top_k > 0 && draw.top_k <= kMaxTopK) {
    made.from = kFromBest;
  } else if (draw.top_k > 0 || draw.top_p < 1.0f || draw.min_p > 0.0f) {
    made.from = kFromFiltered;
  }
  return made;
}

// Nothing may move once the kernel has been told where it lies.
void LogitEditMemory::make_room(int which, std::size_t bytes) {
  staging_[which].used = 0;
  if (bytes == 0) return;
  const std::size_t wanted = std::max(kLeastBytes, bytes + bytes / 2);
  if (staging_[which].memory.size() < bytes) staging_[which].memory = PinnedBuffer(wanted, "changes of logits");
  // Freeing waits for the kernels that read what was there.
  if (device_.size() < bytes) device_ = DeviceBuffer(wanted, "changes of logits");
}

template <typename T>
T* LogitEditMemory::put(int which, std::span<const T> values) {
  Staging& staging = staging_[which];
  std::byte* place = device_.data() + staging.used;
  std::memcpy(staging.memory.data() + staging.used, values.data(), values.size_bytes());
  staging.used += edit_bytes(values.size_bytes());
  return reinterpret_cast<T*>(place);
}

// The edits themselves come first, their lists behind them.
void LogitEditMemory::gather(int which, std::span<const OutputEdits> outputs, std::span<std::int32_t> places) {
  std::size_t bytes = 0;
  std::int32_t count = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    bytes += bytes_of(outputs[i]);
    places[i] = outputs[i].lane != nullptr ? count++ : -1;
  }
  make_room(which, bytes);
  if (count == 0) return;
  edits_.assign(static_cast<std::size_t>(count), {});
  put<LogitEdits>(which, edits_);
  edits_.clear();
  for (const OutputEdits& output : outputs) {
    if (output.lane != nullptr) edits_.push_back(put_lists(which, output));
  }
  std::memcpy(staging_[which].memory.data(), edits_.data(), edits_.size() * sizeof(LogitEdits));
}

LogitEdits LogitEditMemory::put_lists(int which, const OutputEdits& output) {
  const SamplingParams& params = output.lane->params();
  const bool recent = params.penalty_scope == PenaltyScope::recent;
  LogitEdits edits{.repeat = params.repeat_penalty,
                   .presence = params.presence_penalty,
                   .frequency = params.frequency_penalty,
                   .typical_p = params.typical_p,
                   .mirostat_tau = params.mirostat_tau,
                   .mirostat_eta = params.mirostat_eta,
                   .mirostat_mu = output.lane->mirostat_mu(),
                   .lane_mu = output.lane_mu,
                   .takes_mu = output.unseen != nullptr ? 1 : 0};
  if (!params.logit_bias.empty()) {
    biases_.clear();
    for (const auto& [id, bias] : params.logit_bias) biases_.push_back({.id = id, .bias = bias});
    edits.biases = put<LogitBias>(which, biases_);
    edits.bias_count = static_cast<std::int32_t>(biases_.size());
  }
  if (!output.mask.empty()) edits.mask = put<std::uint64_t>(which, output.mask);
  output.lane->copy_counts(output.unseen != nullptr ? 1 : 0, counts_);
  const TokenCount added = output.lane->added_by_token();
  const auto counted = [recent](const TokenCount& count) { return recent ? count.recent : count.answered; };
  tokens_.clear();
  for (const TokenCount& count : counts_) {
    tokens_.push_back({.id = count.id, .recent = count.recent, .counted = counted(count)});
  }
  if (output.unseen != nullptr && (added.recent > 0 || added.answered > 0)) {
    edits.unseen = output.unseen;
    edits.unseen_recent = added.recent;
    edits.unseen_counted = counted(added);
    tokens_.push_back({.id = -1});
  }
  if (!tokens_.empty()) edits.counts = put<CountedToken>(which, tokens_);
  edits.token_count = static_cast<std::int32_t>(tokens_.size());
  return edits;
}

void LogitEditMemory::upload(int which, const LaunchContext& context) {
  const Staging& staging = staging_[which];
  if (staging.used == 0) return;
  check(cudaMemcpyAsync(device_.data(), staging.memory.data(), staging.used, cudaMemcpyHostToDevice, context.stream),
        "upload of changes of logits");
}

}  // namespace quarrel::cuda
