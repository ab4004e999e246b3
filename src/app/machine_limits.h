// What the machine's limits mean for a model's work: how long its bytes and multiply-adds take at best, which share of
// a limit a speed is, and why a share may be above 100 % all the same. Used by `bench`. Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "app/machine_speed.h"
#include "backend/backend.h"
#include "quant/types.h"

namespace quarrel {

// Weights by the arithmetic that prompts are multiplied with them in (docs/numerics.md).
enum class WeightKind { f32, f16, bf16, quantised };
WeightKind weight_kind_of(QuantType type) noexcept;

// Multiply-adds by the kind of their weights. Those without weights are F32.
class MultiplyAdds {
 public:
  double& operator[](WeightKind kind) noexcept { return counts_[static_cast<std::size_t>(kind)]; }
  double operator[](WeightKind kind) const noexcept { return counts_[static_cast<std::size_t>(kind)]; }
  double all() const noexcept;
  // The kind that most of them are of.
  WeightKind most() const noexcept;
  // Of the kinds of float weights that there are, the one that is multiplied fastest; F32 if there are none.
  WeightKind fastest_floats() const noexcept;

 private:
  std::array<double, 4> counts_ = {};
};

// A GPU as a machine: its memory is what is read, and whatever its weights are they are multiplied in 16 bits.
MachineSpeed machine_of(const DeviceSpeed& speed);

// How fast a decode that is bound by a GPU's memory would be on other ones: by the bandwidths of their memories alone,
// computed.
struct ScaledSpeed {
  std::string_view device;
  double bytes_per_s = 0.0;
  double tokens_per_s = 0.0;
};
std::vector<ScaledSpeed> scaled_to_others(double tokens_per_s, const DeviceSpeed& speed);

double quotient(double part, double whole) noexcept;  // 0 where there is no whole

// What multiply-adds of prompts with weights of a kind are held to. Quantised weights: the fastest integer arithmetic.
// BF16 weights: bf16 tiles, where the machine has any. F16 weights, pairs of bf16 numbers there: a third of that.
// Nothing is held to less than F32.
ArithmeticSpeed peak_for(WeightKind kind, const MachineSpeed& machine);

// How long these bytes and multiply-adds take at best.
double read_seconds(double bytes, const MachineSpeed& machine);
double arithmetic_seconds(const MultiplyAdds& macs, const MachineSpeed& machine);

// Why reading these bytes again and again may go beyond the read bandwidth of memory: the cache that holds them, or
// part of them, as the end of a sentence: "the L3 cache (32.0 MB) holds the 20.1 MB that a step reads".
std::string cache_reason(double step_bytes, const MachineSpeed& machine);
// The same for multiply-adds beyond what they are held to.
std::string_view arithmetic_reason() noexcept;
// The same for multiply-adds of prompts beyond the F32 peak, to which they may not be held.
std::string_view f32_reason(const MultiplyAdds& macs, const MachineSpeed& machine);

// A share under its name and, where it is above 1, why that is so.
void put_share(nlohmann::ordered_json& value, const std::string& name, double share, std::string_view reason);

// The same for people.
struct ShareText {
  std::string share;   // "51.2 % of the avx512-vnni peak"
  std::string excess;  // a line that says why it is above 100 %; empty: it is not
};

struct PrefillSpeed {
  double tokens_per_s = 0.0;
  MultiplyAdds macs_per_token = {};
};
// The share of what the machine's arithmetic could do, were every multiply-add at its peak; the peak that is named is
// that of most of them.
ShareText prefill_share(const PrefillSpeed& prefill, const MachineSpeed& machine);
// The same as `peak` and `share_of_peak`, and `share_of_f32_peak` on the host.
void put_prefill_shares(nlohmann::ordered_json& value, const PrefillSpeed& prefill, const MachineSpeed& machine);

struct DecodeSpeed {
  double bytes_per_s = 0.0;
  double step_bytes = 0.0;
};
// The share of the read bandwidth, or of a GPU's copy bandwidth.
ShareText decode_share(const DecodeSpeed& decode, const MachineSpeed& machine);
void put_decode_share(nlohmann::ordered_json& value, const DecodeSpeed& decode, const MachineSpeed& machine);

}  // namespace quarrel
