// A validated, read-only view of a GGUF model: one file, or the parts of a split one. Everything here was checked when
// it was opened: counts against the bytes left, sizes with overflow-safe arithmetic, tensor ranges inside the file and
// apart from each other. It knows no meaning of keys and puts no tensor on a device. Immutable: any thread may read.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "gguf/name_index.h"
#include "quant/types.h"

namespace quarrel {

// The value kinds of the format, by the numbers files carry.
enum class GgufKind : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
std::string_view kind_name(GgufKind kind) noexcept;
// Bytes of one value of a kind; 0 for strings and arrays, whose size varies.
std::uint64_t kind_bytes(GgufKind kind) noexcept;

// An array of numbers or booleans, still in the file's bytes (unaligned, little-endian).
struct GgufNumbers {
  GgufKind kind = GgufKind::u8;
  std::uint64_t count = 0;
  const std::byte* data = nullptr;

  double as_double(std::uint64_t index) const noexcept;
  std::int64_t as_int(std::uint64_t index) const noexcept;  // floats are truncated towards zero and clamped
};

// Integers widen to 64 bits, floats to double; strings point into the mapping.
using GgufValue = std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, GgufNumbers,
                               std::vector<std::string_view>>;

struct GgufEntry {
  std::string_view key;
  GgufKind kind;  // `array` for arrays
  GgufValue value;
  std::uint64_t offset;  // of the key in its file, for messages
};

struct GgufTensor {
  std::string_view name;
  QuantType type;
  std::uint32_t dimensions;            // 0 to 4
  std::array<std::uint64_t, 4> shape;  // innermost first; 1 beyond `dimensions`
  std::uint64_t offset;                // of the data in its part, from the part's start
  std::uint64_t bytes;
  std::uint32_t part;  // which file of a split model

  std::uint64_t elements() const noexcept { return shape[0] * shape[1] * shape[2] * shape[3]; }  // checked at open
};

class GgufFile {
 public:
  // Opens `path`, and its sisters if the name ends in -00001-of-0000N.gguf (any of them will do). Throws Error:
  // not_found, io, or bad_file with a message that names the file, the field and the byte offset; unsupported for other
  // versions, big-endian files and a tensor of an unknown type, which names the tensor and number.
  static GgufFile open(const std::filesystem::path& path);

  // A view of bytes in memory (fuzzing, tests). `bytes` must outlive it.
  static GgufFile view(std::span<const std::byte> bytes, std::string name);

  std::uint32_t version() const noexcept { return version_; }
  std::uint64_t alignment() const noexcept { return alignment_; }
  const std::filesystem::path& path() const noexcept { return path_; }
  std::uint64_t file_bytes() const noexcept;  // of all parts
  std::size_t part_count() const noexcept { return parts_.size(); }

  std::span<const GgufEntry> entries() const noexcept { return entries_; }
  std::span<const GgufTensor> tensors() const noexcept { return tensors_; }

  // Null or empty when absent. A key of another kind throws Error(bad_file) naming the key and both kinds: a
  // number asked as an integer must be one that fits; `number` accepts any numeric kind.
  const GgufEntry* find(std::string_view key) const noexcept;
  std::optional<std::uint64_t> unsigned_integer(std::string_view key) const;
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> string(std::string_view key) const;
  std::optional<GgufNumbers> numbers(std::string_view key) const;
  std::optional<std::span<const std::string_view>> strings(std::string_view key) const;

  const GgufTensor* find_tensor(std::string_view name) const noexcept;
  const std::byte* data(const GgufTensor& tensor) const noexcept;
  // The file that holds a tensor, whose offset is into it; null for a view of memory.
  const MappedFile* file_of(const GgufTensor& tensor) const noexcept;
  // One of the parts was cut short while it was open: see MappedFile::cut_short. Never so for a view of memory.
  bool cut_short() const noexcept;
  void require_whole() const;  // throws Error(bad_file) then, naming the part
  // See MappedFile::release_pages; nothing for a view of memory.
  void release_pages(const GgufTensor& tensor) const noexcept;

 private:
  struct Part {
    std::optional<MappedFile> mapping;  // empty for a view of memory
    std::span<const std::byte> bytes;
    std::string name;
  };
  struct SplitName;

  GgufFile() = default;
  void add_part(Part part, const std::optional<SplitName>& split);
  void finish();  // after the last part: what concerns all of them

  std::filesystem::path path_;
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 32;
  std::vector<Part> parts_;
  std::vector<GgufEntry> entries_;   // of the first part
  std::vector<GgufTensor> tensors_;  // of all parts, in file order
  NameIndex entry_index_;
  NameIndex tensor_index_;
};

}  // namespace quarrel
