// What a model's file says of itself, for those who list models. Called by ModelStore and the server; stateless, so
// that any thread may call.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "gguf/file.h"

namespace quarrel {

struct ModelDescription {
  std::uint64_t bytes = 0;
  std::uint64_t parameter_count = 0;
  std::string family = {};        // "llama": the architecture as the file spells it
  std::string parameters = {};    // "135M"
  std::string quantisation = {};  // "Q4_1": the type that most of its bytes have
  std::string problem = {};       // why it cannot be used; then the rest may be empty
};

// Opens the file; one that is broken is described by its problem.
ModelDescription describe_file(const std::filesystem::path& path);
ModelDescription describe_file(const GgufFile& file);

// 1970 if nobody knows.
std::chrono::system_clock::time_point modified_time(const std::filesystem::path& path);

// 64 hexadecimal digits that stand for what the model's file is now. Its SHA-256 where somebody has computed that (it
// was pulled, or lies in Ollama's store), else one of its name, its size and its time of modification.
std::string model_digest(const std::filesystem::path& path);
// The former alone; empty where nobody has computed it.
std::string known_digest(const std::filesystem::path& path);

}  // namespace quarrel
