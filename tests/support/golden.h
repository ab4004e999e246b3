// Golden data under tests/data and how results are compared with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace quarrel::test {

// A file of tests/data, by its path from there: test_data("arch/llama.f32").
std::filesystem::path test_data(std::string_view relative);

// Whole files. They throw Error(io) when the file cannot be read or written, load_f32 also Error(bad_file) for a length
// that is no whole number of floats.
std::vector<float> load_f32(const std::filesystem::path& path);  // raw little-endian float32
std::vector<std::byte> load_bytes(const std::filesystem::path& path);
void save_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes);

// The normalised mean squared error Σ(a−b)² / Σb², summed in double. Not a number if any value is not, so a bound on it
// must be written `nmse <= bound`. Throws Error(bad_input) for lengths that differ or a golden sum of zero.
double nmse(std::span<const float> values, std::span<const float> golden);

// The tokens that the golden logits of the toy models were made with: one prompt, no BOS.
inline constexpr std::size_t kGoldenTokens = 48;
inline constexpr std::uint32_t kGoldenVocabulary = 320;
std::vector<std::int32_t> golden_tokens(std::size_t count = kGoldenTokens,
                                        std::uint32_t vocabulary = kGoldenVocabulary);

}  // namespace quarrel::test
