// Reads the directory of one GGUF file: header, entries, tensor descriptions. Called by GgufFile alone. The bytes are
// hostile: every count is checked against the bytes left and every sum for overflow before it is used, and memory is
// taken only for what was seen to be there (at most 4 times the metadata's bytes). A pure function: any thread may
// call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "gguf/name_index.h"

namespace quarrel {

// Limits beyond those the bytes themselves impose.
inline constexpr std::uint64_t kMaxGgufEntries = 65'536;
inline constexpr std::uint64_t kMaxGgufTensors = 65'536;
inline constexpr std::uint64_t kMaxGgufKeyBytes = 64 << 10;
inline constexpr std::uint64_t kMaxGgufStringBytes = 64 << 20;
inline constexpr std::uint64_t kMaxGgufNameBytes = 127;
inline constexpr std::uint64_t kMaxGgufAlignment = 65'536;

struct GgufDirectory {
  std::uint32_t version = 0;
  std::uint64_t alignment = 32;
  std::vector<GgufEntry> entries;  // in file order; views into the bytes
  NameIndex entry_index;
  std::vector<GgufTensor> tensors;  // in file order; their data checked to lie in the file, aligned and apart
};

// `file_name` appears in messages; `part` is noted in each tensor. Throws Error: bad_file, or unsupported for another
// version, another byte order or an unknown tensor type.
GgufDirectory parse_gguf(std::span<const std::byte> bytes, std::string_view file_name, std::uint32_t part);

}  // namespace quarrel
