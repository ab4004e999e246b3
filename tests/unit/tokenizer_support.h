// Vocabularies for the tokenizer's tests: real ones from the test data, and small ones made up in memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "gguf/file.h"
#include "gguf/writer.h"
#include "text/tokenizer.h"

namespace quarrel {

inline std::filesystem::path tokenizer_data(const std::string& name) {
  return std::filesystem::path(QUARREL_TEST_DATA) / "tokenizer" / name;
}

inline std::unique_ptr<Tokenizer> load_real(const std::string& name) {
  MemoryLog log;
  return Tokenizer::load(GgufFile::open(tokenizer_data(name + ".gguf")), log);
}

inline std::unique_ptr<Tokenizer> load_made(const std::function<void(GgufWriter&)>& fill, Log& log) {
  GgufWriter writer;
  fill(writer);
  const std::vector<std::byte> bytes = writer.to_bytes();
  return Tokenizer::load(GgufFile::view(bytes, "made up"), log);
}

inline std::unique_ptr<Tokenizer> load_made(const std::function<void(GgufWriter&)>& fill) {
  MemoryLog log;
  return load_made(fill, log);
}

inline std::string repeated(std::string_view text, std::size_t count) {
  std::string result;
  result.reserve(text.size() * count);
  for (std::size_t i = 0; i < count; ++i) result += text;
  return result;
}

}  // namespace quarrel
