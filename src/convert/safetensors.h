// A validated, read-only view of safetensors files: a header in JSON, then the tensors' bytes. Everything is checked
// when it is opened: the header's length against the file, kinds and nesting of the JSON, each tensor's range against
// its shape, the file and the other tensors. Used by the conversion of models. Immutable: any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "quant/types.h"

namespace quarrel {

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;
inline constexpr std::size_t kMaxSafetensors = 1u << 18;  // tensors of a file
inline constexpr std::size_t kMaxSafetensorsName = 512;   // bytes of a tensor's name
inline constexpr std::size_t kMaxSafetensorsShards = 4096;

struct SafetensorsTensor {
  std::string name = {};
  std::string dtype = {};                 // as the file writes it: "BF16"
  std::optional<QuantType> type = {};     // empty for a dtype that weights are not made of
  std::vector<std::uint64_t> shape = {};  // outermost first, as the file writes it
  std::uint64_t offset = 0;               // of the data, from the file's start
  std::uint64_t bytes = 0;
};

class SafetensorsFile {
 public:
  // Throws Error: not_found, io, or bad_file with a message that names the file, the tensor and the field.
  static SafetensorsFile open(const std::filesystem::path& path);
  // A view of bytes in memory (fuzzing, tests). `bytes` must outlive it.
  static SafetensorsFile view(std::span<const std::byte> bytes, const std::string& name);

  std::span<const SafetensorsTensor> tensors() const noexcept { return tensors_; }
  const SafetensorsTensor* find(std::string_view name) const noexcept;
  const std::byte* data(const SafetensorsTensor& tensor) const noexcept { return bytes_.data() + tensor.offset; }
  // Null for a view of memory.
  const MappedFile* file() const noexcept { return mapping_ ? &*mapping_ : nullptr; }

 private:
  SafetensorsFile() = default;
  void parse(const std::string& name);

  std::optional<MappedFile> mapping_;
  std::span<const std::byte> bytes_;
  std::vector<SafetensorsTensor> tensors_;  // sorted by name
};

// The weights of a model's folder: `model.safetensors`, or the files that `model.safetensors.index.json` lists.
class SafetensorsModel {
 public:
  struct Entry {
    const SafetensorsFile* file = nullptr;
    const SafetensorsTensor* tensor = nullptr;
  };

  // Throws what SafetensorsFile::open throws, and Error(bad_file) for an index that names a file outside the folder, a
  // tensor its file does not hold, or none at all.
  static SafetensorsModel open(const std::filesystem::path& folder);

  std::span<const Entry> entries() const noexcept { return entries_; }
  // Null members when there is none.
  Entry find(std::string_view name) const noexcept;

 private:
  SafetensorsModel() = default;
  void add(const SafetensorsFile& file, const SafetensorsTensor& tensor);
  void open_shards(const std::filesystem::path& folder, const std::filesystem::path& index);

  std::vector<SafetensorsFile> files_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, std::size_t> index_;  // views into the files' names
};

}  // namespace quarrel
