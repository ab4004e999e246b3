#include "app/machine_limits.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

#include "app/progress_bar.h"

namespace quarrel {
namespace {

// The first of those that have the same count is the one that is named.
constexpr std::array kKindsByName = {WeightKind::quantised, WeightKind::bf16, WeightKind::f16, WeightKind::f32};

// A number that is a pair of bf16 numbers takes so many multiplications with another: docs/numerics.md.
constexpr int kPairMultiplications = 3;

ArithmeticSpeed tile_peak(const MachineSpeed& machine, int multiplications) {
  if (!machine.bf16_tiles) return machine.f32;
  const double macs_per_s = machine.bf16_tiles->macs_per_s / multiplications;
  if (macs_per_s <= machine.f32.macs_per_s) return machine.f32;
  const std::string& instructions = machine.bf16_tiles->instructions;
  return {.macs_per_s = macs_per_s,
          .instructions = multiplications == 1 ? instructions : fmt::format("{}/{}", instructions, multiplications)};
}

double share_of_peak(const PrefillSpeed& prefill, const MachineSpeed& machine) {
  return prefill.tokens_per_s * arithmetic_seconds(prefill.macs_per_token, machine);
}

double share_of_bandwidth(const DecodeSpeed& decode, const MachineSpeed& machine) {
  return quotient(decode.bytes_per_s, machine.read.bytes_per_s);
}

}  // namespace

// ---- Multiply-adds ----

WeightKind weight_kind_of(QuantType type) noexcept {
  if (type == QuantType::f32) return WeightKind::f32;
  if (type == QuantType::f16) return WeightKind::f16;
  if (type == QuantType::bf16) return WeightKind::bf16;
  return WeightKind::quantised;
}

double MultiplyAdds::all() const noexcept {
  double sum = 0.0;
  for (const double count : counts_) sum += count;
  return sum;
}

WeightKind MultiplyAdds::most() const noexcept {
  WeightKind found = kKindsByName.front();
  for (const WeightKind kind : kKindsByName) {
    if ((*this)[kind] > (*this)[found]) found = kind;
  }
  return found;
}

WeightKind MultiplyAdds::fastest_floats() const noexcept {
  if ((*this)[WeightKind::bf16] > 0.0) return WeightKind::bf16;
  return (*this)[WeightKind::f16] > 0.0 ? WeightKind::f16 : WeightKind::f32;
}

// ---- Limits ----

MachineSpeed machine_of(const DeviceSpeed& speed) {
  MachineSpeed machine;
  machine.is_gpu = true;
  machine.read = {.bytes_per_s = speed.copy_bytes_per_s, .buffer_bytes = 0, .method = "copy"};
  machine.f32 = {.macs_per_s = speed.gemm_flops_per_s / 2.0, .instructions = "F16 GEMM"};
  if (speed.cache_bytes > 0) machine.caches.push_back({.name = "L2", .bytes = speed.cache_bytes});
  return machine;
}

std::vector<ScaledSpeed> scaled_to_others(double tokens_per_s, const DeviceSpeed& speed) {
  // By what makers say of each, not by what one of them was measured to copy.
  const double own = speed.peak_bytes_per_s > 0.0 ? speed.peak_bytes_per_s : speed.copy_bytes_per_s;
  std::vector<ScaledSpeed> scaled;
  for (const auto& [device, bytes_per_s] : {std::pair{"RTX 3090", 936e9}, std::pair{"RTX 4090", 1008e9}}) {
    scaled.push_back(
        {.device = device, .bytes_per_s = bytes_per_s, .tokens_per_s = tokens_per_s * quotient(bytes_per_s, own)});
  }
  return scaled;
}

double quotient(double part, double whole) noexcept { return whole > 0.0 ? part / whole : 0.0; }

ArithmeticSpeed peak_for(WeightKind kind, const MachineSpeed& machine) {
  switch (kind) {
    case WeightKind::quantised: return machine.fastest_integer();
    case WeightKind::bf16: return tile_peak(machine, 1);
    case WeightKind::f16: return tile_peak(machine, kPairMultiplications);
    case WeightKind::f32: break;
  }
  return machine.f32;
}

double read_seconds(double bytes, const MachineSpeed& machine) { return quotient(bytes, machine.read.bytes_per_s); }

double arithmetic_seconds(const MultiplyAdds& macs, const MachineSpeed& machine) {
  double seconds = 0.0;
  for (const WeightKind kind : kKindsByName) seconds += quotient(macs[kind], peak_for(kind, machine).macs_per_s);
  return seconds;
}

// ---- Why a share is above 1 ----

std::string cache_reason(double step_bytes, const MachineSpeed& machine) {
  if (machine.caches.empty()) return "a cache holds part of what a step reads";
  const std::string read = human_bytes(static_cast<std::uint64_t>(step_bytes));
  for (const CacheLevel& cache : machine.caches) {
    if (step_bytes > static_cast<double>(cache.bytes)) continue;
    return fmt::format("the {} cache ({}) holds the {} that a step reads", cache.name, human_bytes(cache.bytes), read);
  }
  const CacheLevel& largest = machine.caches.back();
  return fmt::format("the {} cache ({}) holds part of the {} that a step reads", largest.name,
                     human_bytes(largest.bytes), read);
}

std::string_view arithmetic_reason() noexcept { return "the processor ran faster than while its peak was measured"; }

std::string_view f32_reason(const MultiplyAdds& macs, const MachineSpeed& machine) {
  const WeightKind most = macs.most();
  if (peak_for(most, machine).macs_per_s <= machine.f32.macs_per_s) return arithmetic_reason();
  if (most != WeightKind::quantised) {
    return "F16 and BF16 weights are multiplied in bf16 tiles, which is faster than F32";
  }
  return machine.bf16_tiles ? "quantised weights are multiplied in bf16 tiles or as integers, which is faster than F32"
                            : "quantised weights are multiplied as integers, which is faster than F32";
}

// ---- Shares, for programs and for people ----

void put_share(nlohmann::ordered_json& value, const std::string& name, double share, std::string_view reason) {
  value[name] = share;
  if (share > 1.0) value[name + "_reason"] = reason;
}

ShareText prefill_share(const PrefillSpeed& prefill, const MachineSpeed& machine) {
  const double share = share_of_peak(prefill, machine);
  const ArithmeticSpeed peak = peak_for(prefill.macs_per_token.most(), machine);
  ShareText text{.share = fmt::format("{:.1f} % of the {} peak", 100.0 * share, peak.instructions), .excess = {}};
  if (share > 1.0) text.excess = fmt::format("prefill is above the peak: {}\n", arithmetic_reason());
  return text;
}

void put_prefill_shares(nlohmann::ordered_json& value, const PrefillSpeed& prefill, const MachineSpeed& machine) {
  const MultiplyAdds& macs = prefill.macs_per_token;
  value["peak"] = peak_for(macs.most(), machine).instructions;
  put_share(value, "share_of_peak", share_of_peak(prefill, machine), arithmetic_reason());
  if (machine.is_gpu) return;
  put_share(value, "share_of_f32_peak", quotient(prefill.tokens_per_s * macs.all(), machine.f32.macs_per_s),
            f32_reason(macs, machine));
}

ShareText decode_share(const DecodeSpeed& decode, const MachineSpeed& machine) {
  const double share = share_of_bandwidth(decode, machine);
  ShareText text{.share = fmt::format("{:.1f} % of the {} bandwidth", 100.0 * share, machine.is_gpu ? "copy" : "read"),
                 .excess = {}};
  if (share > 1.0) {
    text.excess = fmt::format("decode reads faster than memory: {}\n", cache_reason(decode.step_bytes, machine));
  }
  return text;
}

void put_decode_share(nlohmann::ordered_json& value, const DecodeSpeed& decode, const MachineSpeed& machine) {
  put_share(value, machine.is_gpu ? "share_of_copy_bandwidth" : "share_of_read_bandwidth",
            share_of_bandwidth(decode, machine), cache_reason(decode.step_bytes, machine));
}

}  // namespace quarrel
