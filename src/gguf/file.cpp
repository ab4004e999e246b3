#include "gguf/file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "gguf/parser.h"

namespace quarrel {
namespace {

constexpr std::string_view kExtension = ".gguf";

std::string kind_text(const GgufEntry& entry) {
  if (const auto* array = std::get_if<GgufNumbers>(&entry.value))
    return fmt::format("array of {}", kind_name(array->kind));
  if (entry.kind == GgufKind::array) return "array of string";
  return std::string(kind_name(entry.kind));
}

[[noreturn]] void refuse_entry(const std::string& file, const GgufEntry& entry, const std::string& reason) {
  fail(ErrorKind::bad_file, "'{}': key '{}' at byte {}: {}", printable(file, 512), printable(entry.key), entry.offset,
       reason);
}

[[noreturn]] void wrong_kind(const std::string& file, const GgufEntry& entry, std::string_view wanted) {
  refuse_entry(file, entry, fmt::format("expected {}, found {}", wanted, kind_text(entry)));
}

std::uint64_t to_unsigned(const std::string& file, const GgufEntry& entry) {
  if (const auto* value = std::get_if<std::uint64_t>(&entry.value)) return *value;
  const auto* value = std::get_if<std::int64_t>(&entry.value);
  if (value == nullptr) wrong_kind(file, entry, "an unsigned integer");
  if (*value < 0) refuse_entry(file, entry, fmt::format("expected an unsigned integer, found {}", *value));
  return static_cast<std::uint64_t>(*value);
}

// An element of the file's bytes, which need not be aligned.
template <typename T>
T load(const GgufNumbers& numbers, std::uint64_t index) noexcept {
  T value;
  std::memcpy(&value, numbers.data + index * sizeof(T), sizeof(T));
  return value;
}

std::int64_t truncate(double value) noexcept {
  if (std::isnan(value)) return 0;
  if (value <= -0x1p63) return std::numeric_limits<std::int64_t>::min();
  if (value >= 0x1p63) return std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(value);
}

// Calls `use` with the element in its own type.
template <typename Use>
auto with_element(const GgufNumbers& numbers, std::uint64_t index, Use use) noexcept {
  switch (numbers.kind) {
    case GgufKind::u8:
    case GgufKind::boolean: return use(load<std::uint8_t>(numbers, index));
    case GgufKind::i8: return use(load<std::int8_t>(numbers, index));
    case GgufKind::u16: return use(load<std::uint16_t>(numbers, index));
    case GgufKind::i16: return use(load<std::int16_t>(numbers, index));
    case GgufKind::u32: return use(load<std::uint32_t>(numbers, index));
    case GgufKind::i32: return use(load<std::int32_t>(numbers, index));
    case GgufKind::f32: return use(load<float>(numbers, index));
    case GgufKind::u64: return use(load<std::uint64_t>(numbers, index));
    case GgufKind::i64: return use(load<std::int64_t>(numbers, index));
    case GgufKind::f64: return use(load<double>(numbers, index));
    case GgufKind::string:
    case GgufKind::array: break;  // the parser never makes such a GgufNumbers
  }
  return use(std::uint8_t{0});
}

// Five digits, as split files are numbered.
std::optional<std::uint32_t> part_number(std::string_view digits) {
  std::uint32_t value = 0;
  const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (fault != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

}  // namespace

// A name like dir/model-00002-of-00003.gguf.
struct GgufFile::SplitName {
  std::string stem;  // dir/model
  std::uint32_t count = 0;

  static std::optional<SplitName> parse(const std::filesystem::path& path) {
    constexpr std::string_view kPattern = "-00001-of-00001.gguf";
    const std::string text = path.string();
    if (text.size() <= kPattern.size()) return std::nullopt;
    const std::string_view tail = std::string_view(text).substr(text.size() - kPattern.size());
    if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != kExtension) return std::nullopt;
    const auto number = part_number(tail.substr(1, 5));
    const auto count = part_number(tail.substr(10, 5));
    if (!number || !count || *number == 0 || *number > *count) return std::nullopt;
    return SplitName{text.substr(0, text.size() - kPattern.size()), *count};
  }

  std::filesystem::path part(std::uint32_t index) const {
    return fmt::format("{}-{:05}-of-{:05}{}", stem, index + 1, count, kExtension);
  }

  // What the part says of itself must agree with what its name says.
  void check(const std::string& file, const GgufDirectory& directory, std::uint32_t index) const {
    check_key(file, directory, "split.count", count);
    check_key(file, directory, "split.no", index);
  }

 private:
  void check_key(const std::string& file, const GgufDirectory& directory, std::string_view key,
                 std::uint64_t expected) const {
    const auto& entries = directory.entries;
    const auto found = directory.entry_index.find(key, [&](std::size_t i) { return entries[i].key; });
    if (!found) {
      if (count == 1) return;
      fail(ErrorKind::bad_file, "'{}': key '{}' is missing, though the name says that the file is one of {} parts",
           printable(file, 512), key, count);
    }
    const std::uint64_t value = to_unsigned(file, entries[*found]);
    if (value == expected || (count == 1 && value == 0)) return;
    refuse_entry(file, entries[*found], fmt::format("{}, but the file's name says {}", value, expected));
  }
};

std::string_view kind_name(GgufKind kind) noexcept {
  switch (kind) {
    case GgufKind::u8: return "u8";
    case GgufKind::i8: return "i8";
    case GgufKind::u16: return "u16";
    case GgufKind::i16: return "i16";
    case GgufKind::u32: return "u32";
    case GgufKind::i32: return "i32";
    case GgufKind::f32: return "f32";
    case GgufKind::boolean: return "boolean";
    case GgufKind::string: return "string";
    case GgufKind::array: return "array";
    case GgufKind::u64: return "u64";
    case GgufKind::i64: return "i64";
    case GgufKind::f64: return "f64";
  }
  return "unknown";
}

std::uint64_t kind_bytes(GgufKind kind) noexcept {
  switch (kind) {
    case GgufKind::u8:
    case GgufKind::i8:
    case GgufKind::boolean: return 1;
    case GgufKind::u16:
    case GgufKind::i16: return 2;
    case GgufKind::u32:
    case GgufKind::i32:
    case GgufKind::f32: return 4;
    case GgufKind::u64:
    case GgufKind::i64:
    case GgufKind::f64: return 8;
    case GgufKind::string:
    case GgufKind::array: return 0;
  }
  return 0;
}

double GgufNumbers::as_double(std::uint64_t index) const noexcept {
  return with_element(*this, index, [](auto value) { return static_cast<double>(value); });
}

std::int64_t GgufNumbers::as_int(std::uint64_t index) const noexcept {
  return with_element(*this, index, [](auto value) -> std::int64_t {
    if constexpr (std::is_floating_point_v<decltype(value)>) {
      return truncate(static_cast<double>(value));
    } else if constexpr (std::is_same_v<decltype(value), std::uint64_t>) {
      constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
      return static_cast<std::int64_t>(std::min(value, kMost));
    } else {
      return value;
    }
  });
}

GgufFile GgufFile::open(const std::filesystem::path& path) {
  GgufFile file;
  const auto split = SplitName::parse(path);
  file.path_ = split ? split->part(0) : path;
  const std::uint32_t count = split ? split->count : 1;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto part_path = split ? split->part(i) : path;
    try {
      MappedFile mapping = MappedFile::open(part_path);
      const auto bytes = mapping.bytes();
      file.add_part({std::move(mapping), bytes, part_path.string()}, split);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::not_found || part_path == path) throw;
      fail(ErrorKind::not_found, "'{}' is one of {} parts of a model, and part {} is missing: {}",
           printable(path.string(), 512), count, i + 1, error.what());
    }
  }
  file.finish();
  file.require_whole();
  return file;
}

GgufFile GgufFile::view(std::span<const std::byte> bytes, std::string name) {
  GgufFile file;
  file.path_ = name;
  file.add_part({std::nullopt, bytes, std::move(name)}, std::nullopt);
  file.finish();
  return file;
}

void GgufFile::add_part(Part part, const std::optional<SplitName>& split) {
  const auto index = static_cast<std::uint32_t>(parts_.size());
  GgufDirectory directory = parse_gguf(part.bytes, part.name, index);
  if (split) split->check(part.name, directory, index);
  if (tensors_.size() + directory.tensors.size() > kMaxGgufTensors) {
    fail(ErrorKind::bad_file, "'{}': the model's parts have more than {} tensors", printable(part.name, 512),
         kMaxGgufTensors);
  }
  if (index == 0) {
    version_ = directory.version;
    alignment_ = directory.alignment;
    entries_ = std::move(directory.entries);
    entry_index_ = std::move(directory.entry_index);
    tensors_ = std::move(directory.tensors);
  } else {
    tensors_.insert(tensors_.end(), directory.tensors.begin(), directory.tensors.end());
  }
  parts_.push_back(std::move(part));
  const std::uint64_t announced = unsigned_integer("split.count").value_or(1);
  if (split || announced <= 1) return;
  refuse_entry(parts_[0].name, *find("split.count"),
               fmt::format("the file is one of {} parts, but its name does not end like -00001-of-00003.gguf, so the "
                           "others cannot be found",
                           announced));
}

void GgufFile::finish() {
  const auto repeated = tensor_index_.build(tensors_.size(), [&](std::size_t i) { return tensors_[i].name; });
  if (repeated) {
    const GgufTensor& tensor = tensors_[*repeated];
    const Part& part = parts_[tensor.part];
    const auto at = reinterpret_cast<const std::byte*>(tensor.name.data()) - part.bytes.data();
    fail(ErrorKind::bad_file, "'{}': tensor '{}': name at byte {}: an earlier tensor has the same name",
         printable(part.name, 512), printable(tensor.name), at);
  }
  const auto expected = parts_.size() > 1 ? unsigned_integer("split.tensors.count") : std::nullopt;
  if (expected && *expected != tensors_.size()) {
    refuse_entry(
        parts_[0].name, *find("split.tensors.count"),
        fmt::format("{} tensors are announced, but the {} parts have {}", *expected, parts_.size(), tensors_.size()));
  }
}

std::uint64_t GgufFile::file_bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const Part& part : parts_) sum += part.bytes.size();
  return sum;
}

const GgufEntry* GgufFile::find(std::string_view key) const noexcept {
  const auto index = entry_index_.find(key, [&](std::size_t i) { return entries_[i].key; });
  return index ? &entries_[*index] : nullptr;
}

std::optional<std::uint64_t> GgufFile::unsigned_integer(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  return to_unsigned(parts_[0].name, *entry);
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (const auto* value = std::get_if<std::int64_t>(&entry->value)) return *value;
  const auto* value = std::get_if<std::uint64_t>(&entry->value);
  if (value == nullptr) wrong_kind(parts_[0].name, *entry, "an integer");
  if (*value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    refuse_entry(parts_[0].name, *entry, fmt::format("expected an integer of 63 bits, found {}", *value));
  }
  return static_cast<std::int64_t>(*value);
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (const auto* value = std::get_if<double>(&entry->value)) return *value;
  if (const auto* value = std::get_if<std::uint64_t>(&entry->value)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<std::int64_t>(&entry->value)) return static_cast<double>(*value);
  wrong_kind(parts_[0].name, *entry, "a number");
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (const auto* value = std::get_if<bool>(&entry->value)) return *value;
  wrong_kind(parts_[0].name, *entry, "a boolean");
}

std::optional<std::string_view> GgufFile::string(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (const auto* value = std::get_if<std::string_view>(&entry->value)) return *value;
  wrong_kind(parts_[0].name, *entry, "a string");
}

std::optional<GgufNumbers> GgufFile::numbers(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (const auto* value = std::get_if<GgufNumbers>(&entry->value)) return *value;
  wrong_kind(parts_[0].name, *entry, "an array of numbers");
}

std::optional<std::span<const std::string_view>> GgufFile::strings(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (const auto* value = std::get_if<std::vector<std::string_view>>(&entry->value)) return *value;
  wrong_kind(parts_[0].name, *entry, "an array of strings");
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const noexcept {
  const auto index = tensor_index_.find(name, [&](std::size_t i) { return tensors_[i].name; });
  return index ? &tensors_[*index] : nullptr;
}

const std::byte* GgufFile::data(const GgufTensor& tensor) const noexcept {
  return parts_[tensor.part].bytes.data() + tensor.offset;
}

const MappedFile* GgufFile::file_of(const GgufTensor& tensor) const noexcept {
  const auto& mapping = parts_[tensor.part].mapping;
  return mapping ? &*mapping : nullptr;
}

bool GgufFile::cut_short() const noexcept {
  return std::ranges::any_of(parts_, [](const Part& part) { return part.mapping && part.mapping->cut_short(); });
}

void GgufFile::require_whole() const {
  for (const Part& part : parts_) {
    if (part.mapping) part.mapping->require_whole();
  }
}

void GgufFile::release_pages(const GgufTensor& tensor) const noexcept {
  const MappedFile* mapping = file_of(tensor);
  if (mapping != nullptr) mapping->release_pages(tensor.offset, tensor.bytes);
}

}  // namespace quarrel
