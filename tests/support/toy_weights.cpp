#include "support/toy_weights.h"

#include <cmath>

namespace quarrel::test {
namespace {

// CRC-32 as zip and PNG use it.
std::uint32_t crc32(std::string_view text) {
  std::uint32_t crc = 0xffffffffu;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Mean 0 and deviation 1: the sum of four uniform numbers, the 16-bit parts of one hash.
float noise(std::uint64_t hash) {
  const std::uint64_t sum = (hash & 0xffff) + ((hash >> 16) & 0xffff) + ((hash >> 32) & 0xffff) + (hash >> 48);
  return static_cast<float>((static_cast<double>(sum) / 65536.0 - 2.0) * std::sqrt(3.0));
}

// How a tensor's values follow from the noise, by its name. All arithmetic is in single precision.
struct Shaping {
  float offset = 0;
  float factor = 1;
  bool positive = false;  // takes the noise's magnitude
  float divisor = 1;
};

Shaping shaping(std::string_view name, std::uint64_t row, double embedding_gain) {
  const auto has = [name](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (name.ends_with("ssm_a")) return {.offset = -0.5f, .factor = -1, .positive = true};
  if (name.ends_with("ssm_d")) return {.offset = 1, .factor = 0.3f};
  if (name.ends_with("ssm_dt.bias")) return {.offset = -1, .factor = 0.5f};
  if (name == "rope_freqs.weight") return {.offset = 1, .positive = true};
  if (has("norm")) return {.offset = name.ends_with("weight") ? 1.0f : 0.0f, .factor = 0.1f};
  if (name.ends_with(".bias")) return {.factor = 0.1f};
  if (has("sinks")) return {};
  if (has("conv1d")) return {.factor = 0.5f};
  if (name.starts_with("token_embd") || name.starts_with("token_types") || name.starts_with("position_embd")) {
    return {.factor = static_cast<float>(embedding_gain)};
  }
  if (has("gate_inp")) return {.factor = static_cast<float>(2.0 / std::sqrt(static_cast<double>(row)))};
  return {.divisor = std::sqrt(static_cast<float>(row))};
}

}  // namespace

std::vector<float> toy_weights(std::uint64_t seed, std::string_view name, std::span<const std::uint64_t> shape,
                               double embedding_gain) {
  std::uint64_t count = 1;
  for (const std::uint64_t size : shape) count *= size;
  const Shaping how = shaping(name, shape[0], embedding_gain);
  const std::uint64_t start = ((seed << 32) ^ crc32(name)) * 0x9e3779b97f4a7c15u;

  std::vector<float> values(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const float z = noise(mix(start + i));
    values[i] = how.offset + how.factor * (how.positive ? std::abs(z) : z) / how.divisor;
  }
  return values;
}

}  // namespace quarrel::test
