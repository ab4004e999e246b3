#include "support/golden.h"

#include <cstring>
#include <fstream>

#include "base/error.h"

namespace quarrel::test {

std::filesystem::path test_data(std::string_view relative) {
  return std::filesystem::path(QUARREL_TEST_DATA) / relative;
}

std::vector<std::byte> load_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (size < 0) fail(ErrorKind::io, "cannot read {}", path.string());
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes.data()), size);
  if (!file) fail(ErrorKind::io, "cannot read {}", path.string());
  return bytes;
}

void save_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) fail(ErrorKind::io, "cannot write {}", path.string());
}

std::vector<float> load_f32(const std::filesystem::path& path) {
  const std::vector<std::byte> bytes = load_bytes(path);
  if (bytes.size() % sizeof(float) != 0) {
    fail(ErrorKind::bad_file, "{} has {} bytes, no whole number of floats", path.string(), bytes.size());
  }
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

double nmse(std::span<const float> values, std::span<const float> golden) {
  if (values.size() != golden.size()) {
    fail(ErrorKind::bad_input, "comparing {} values with {} golden ones", values.size(), golden.size());
  }
  double error = 0;
  double power = 0;
  for (std::size_t i = 0; i < golden.size(); ++i) {
    const double expected = golden[i];
    const double difference = values[i] - expected;
    error += difference * difference;
    power += expected * expected;
  }
  if (power == 0) fail(ErrorKind::bad_input, "the golden values are all zero");
  return error / power;
}

std::vector<std::int32_t> golden_tokens(std::size_t count, std::uint32_t vocabulary) {
  std::vector<std::int32_t> tokens(count);
  std::uint32_t state = 12345;
  for (std::int32_t& token : tokens) {
    state = state * 1664525u + 1013904223u;
    token = static_cast<std::int32_t>((state >> 16) % vocabulary);
  }
  return tokens;
}

}  // namespace quarrel::test
