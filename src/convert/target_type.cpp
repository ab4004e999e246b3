#include "convert/target_type.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"

namespace quarrel {
namespace {

constexpr TargetType plain(std::string_view name, QuantType type, std::uint32_t file_type) {
  return {name, type, type, file_type};
}

constexpr std::array kTargets = {
    plain("F32", QuantType::f32, 0),
    plain("F16", QuantType::f16, 1),
    plain("BF16", QuantType::bf16, 32),
    plain("Q8_0", QuantType::q8_0, 7),
    plain("Q6_K", QuantType::q6_k, 18),
    plain("Q5_K", QuantType::q5_k, 16),
    TargetType{"Q5_K_M", QuantType::q5_k, QuantType::q6_k, 17},
    plain("Q5_1", QuantType::q5_1, 9),
    plain("Q5_0", QuantType::q5_0, 8),
    plain("Q4_K", QuantType::q4_k, 14),
    TargetType{"Q4_K_M", QuantType::q4_k, QuantType::q6_k, 15},
    plain("Q4_1", QuantType::q4_1, 3),
    plain("Q4_0", QuantType::q4_0, 2),
    plain("IQ4_NL", QuantType::iq4_nl, 25),
    plain("MXFP4", QuantType::mxfp4, 38),
};

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

// The number in "blk.12.ffn_down.weight"; -1 where there is none.
int layer_of(std::string_view name) noexcept {
  constexpr std::string_view kPrefix = "blk.";
  int layer = -1;
  if (name.starts_with(kPrefix)) std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  return layer;
}

bool contains(std::string_view name, std::string_view part) noexcept {
  return name.find(part) != std::string_view::npos;
}

}  // namespace

std::span<const TargetType> target_types() noexcept { return kTargets; }

const TargetType& find_target_type(std::string_view name) {
  for (const TargetType& target : kTargets) {
    if (std::ranges::equal(target.name, name, {}, upper, upper)) return target;
  }
  std::vector<std::string> names;
  names.reserve(kTargets.size());
  for (const TargetType& target : kTargets) names.emplace_back(target.name);
  const std::vector<std::string> near = nearest(name, names);
  fail(ErrorKind::usage, "'{}' is not a type that weights can be written as; {} {}", printable(name),
       near.empty() ? "there are" : "did you mean",
       near.empty() ? fmt::format("{}", fmt::join(names, ", ")) : fmt::format("{}?", fmt::join(near, ", ")));
}

bool keeps_values(std::string_view name, std::size_t dimensions) noexcept {
  if (dimensions <= 1 || !name.ends_with(".weight")) return true;
  constexpr std::array<std::string_view, 4> kSmall = {"norm", "token_types", "position_embd", "ffn_gate_inp"};
  if (std::ranges::any_of(kSmall, [&](std::string_view part) { return contains(name, part); })) return true;
  return contains(name, "ssm_") && !contains(name, "ssm_in.") && !contains(name, "ssm_out.");
}

QuantType wanted_type(const TargetType& target, std::string_view name, bool tied) noexcept {
  const bool is_output = name == "output.weight" || (tied && name == "token_embd.weight");
  // The values' projection is small where heads share it. Of the down projections every other one is enough to be felt.
  const bool is_down = contains(name, ".ffn_down") && layer_of(name) % 2 == 0;
  return is_output || is_down || contains(name, ".attn_v.") ? target.better : target.type;
}

QuantType fitting_type(QuantType wanted, std::uint64_t row) noexcept {
  if (row % type_info(wanted).block_weights == 0) return wanted;
  QuantType smaller = QuantType::f16;
  if (wanted == QuantType::q4_k) smaller = QuantType::q4_1;
  if (wanted == QuantType::q5_k) smaller = QuantType::q5_1;
  if (wanted == QuantType::q6_k) smaller = QuantType::q8_0;
  return row % type_info(smaller).block_weights == 0 ? smaller : QuantType::f16;
}

}  // namespace quarrel
