// What the tests of base and gguf share: a builder of raw bytes, files as texts, the message of a thrown Error.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace quarrel::test {

inline void write_file(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A GGUF file byte by byte, with a mark where the fault lies.
struct Raw {
  std::vector<std::byte> bytes;
  std::uint64_t fault = 0;

  template <typename T>
  Raw& number(T value) {
    const auto* start = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), start, start + sizeof(T));
    return *this;
  }
  Raw& u8(std::uint8_t value) { return number(value); }
  Raw& u32(std::uint32_t value) { return number(value); }
  Raw& u64(std::uint64_t value) { return number(value); }
  Raw& plain(std::string_view text) {
    const auto* start = reinterpret_cast<const std::byte*>(text.data());
    bytes.insert(bytes.end(), start, start + text.size());
    return *this;
  }
  Raw& text(std::string_view value) { return u64(value.size()).plain(value); }
  Raw& header(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
    return plain("GGUF").u32(version).u64(tensors).u64(keys);
  }
  Raw& tensor(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t type,
              std::uint64_t offset) {
    text(name).u32(static_cast<std::uint32_t>(shape.size()));
    for (const std::uint64_t extent : shape) u64(extent);
    return u32(type).u64(offset);
  }
  Raw& align(std::size_t alignment = 32) {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  Raw& data(std::size_t count) {
    bytes.resize(bytes.size() + count, std::byte{0x11});
    return *this;
  }
  Raw& mark() {
    fault = bytes.size();
    return *this;
  }
};

struct Thrown {
  bool happened = false;
  ErrorKind kind = ErrorKind::internal;
  std::string message;
};

template <typename Action>
Thrown thrown_by(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return {true, error.kind(), error.what()};
  }
  return {};
}

template <typename Action>
void expect_error(ErrorKind kind, const std::vector<std::string>& parts, const Action& action) {
  const auto thrown = thrown_by(action);
  ASSERT_TRUE(thrown.happened) << "no error";
  EXPECT_EQ(thrown.kind, kind) << thrown.message;
  for (const std::string& part : parts) {
    EXPECT_NE(thrown.message.find(part), std::string::npos) << "'" << part << "' is not in: " << thrown.message;
  }
}

}  // namespace quarrel::test
