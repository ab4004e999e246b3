#include "gguf/parser.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/printable.h"

namespace quarrel {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read in place, and they are little-endian");

constexpr std::string_view kAlignmentKey = "general.alignment";

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, std::string_view file_name, std::uint32_t part)
      : bytes_(bytes), file_name_(file_name), part_(part) {}

  GgufDirectory parse() {
    read_magic();
    directory_.version = read_version();
    const std::uint64_t tensor_count = read_count("tensor count", kMaxGgufTensors);
    const std::uint64_t entry_count = read_count("key count", kMaxGgufEntries);
    read_entries(entry_count);
    read_tensors(tensor_count);
    place_tensors();
    return std::move(directory_);
  }

 private:
  // What is being read, for messages; put into words only when something is wrong.
  enum class Subject { header, entry, tensor };

  template <typename... Args>
  [[noreturn]] void refuse_as(ErrorKind kind, std::string_view field, std::uint64_t offset,
                              fmt::format_string<Args...> format, Args&&... args) const {
    fail(kind, "'{}': {}: {} at byte {}: {}", printable(file_name_, 512), subject(), field, offset,
         fmt::format(format, std::forward<Args>(args)...));
  }

  template <typename... Args>
  [[noreturn]] void refuse(std::string_view field, std::uint64_t offset, fmt::format_string<Args...> format,
                           Args&&... args) const {
    refuse_as(ErrorKind::bad_file, field, offset, format, std::forward<Args>(args)...);
  }

  std::string subject() const {
    if (subject_ == Subject::header) return "header";
    if (subject_ == Subject::entry) {
      return name_.empty() ? fmt::format("key {}", index_) : fmt::format("key {} ('{}')", index_, printable(name_));
    }
    return name_.empty() ? fmt::format("tensor {}", index_) : fmt::format("tensor '{}'", printable(name_));
  }

  void begin(Subject subject, std::uint64_t index, std::string_view name = {}) {
    subject_ = subject;
    index_ = index;
    name_ = name;
  }

  std::uint64_t left() const { return bytes_.size() - position_; }

  // Moves over `count` bytes and gives where they start.
  const std::byte* take(std::uint64_t count, std::string_view field) {
    if (count > left()) {
      refuse(field, position_, "the file ends here: {} bytes are needed and {} are left (at least {} are missing)",
             count, left(), count - left());
    }
    const std::byte* start = bytes_.data() + position_;
    position_ += count;
    return start;
  }

  template <typename T>
  T read(std::string_view field) {
    T value;
    std::memcpy(&value, take(sizeof(T), field), sizeof(T));
    return value;
  }

  std::string_view read_text(std::string_view length_field, std::string_view field, std::uint64_t limit) {
    const std::uint64_t at = position_;
    const auto length = read<std::uint64_t>(length_field);
    if (length > limit) refuse(length_field, at, "{} bytes, but at most {} are allowed", length, limit);
    if (length > left()) {
      refuse(length_field, at, "{} bytes, but the file ends after {} (at least {} are missing)", length, left(),
             length - left());
    }
    return {reinterpret_cast<const char*>(take(length, field)), length};
  }

  void read_magic() {
    constexpr std::string_view kMagic = "GGUF";
    const std::size_t present = std::min(bytes_.size(), kMagic.size());
    if (bytes_.empty()) fail(ErrorKind::bad_file, "'{}' is empty, not a GGUF file", printable(file_name_, 512));
    if (std::memcmp(bytes_.data(), kMagic.data(), present) != 0) {
      const std::string_view start(reinterpret_cast<const char*>(bytes_.data()), present);
      fail(ErrorKind::bad_file, "'{}' is not a GGUF file: magic at byte 0: it starts with '{}' instead of 'GGUF'",
           printable(file_name_, 512), printable(start));
    }
    take(kMagic.size(), "magic");
  }

  std::uint32_t read_version() {
    const std::uint64_t at = position_;
    const auto version = read<std::uint32_t>("version");
    if (version == 2 || version == 3) return version;
    if (version != 0 && (version & 0xFFFF) == 0) {
      refuse_as(ErrorKind::unsupported, "version", at, "the file is big-endian; only little-endian files can be read");
    }
    if (version == 1) {
      refuse_as(ErrorKind::unsupported, "version", at,
                "version 1 is an early draft of the format; versions 2 and 3 can be read, so convert the model again");
    }
    refuse_as(ErrorKind::unsupported, "version", at, "version {} is unknown; versions 2 and 3 can be read", version);
  }

  std::uint64_t read_count(std::string_view field, std::uint64_t limit) {
    const std::uint64_t at = position_;
    const auto count = read<std::uint64_t>(field);
    if (count > limit) refuse(field, at, "{}, but at most {} are allowed", count, limit);
    return count;
  }

  // Twice over the same bytes: the first walk shows that all of it is there, so that the second can take exactly the
  // memory needed. A count is never believed.
  void read_entries(std::uint64_t count) {
    const std::uint64_t start = position_;
    for (std::uint64_t i = 0; i < count; ++i) read_entry(i, nullptr);
    position_ = start;
    auto& entries = directory_.entries;
    entries.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      entries.push_back({});
      read_entry(i, &entries.back());
    }
    const auto repeated = directory_.entry_index.build(count, [&](std::size_t i) { return entries[i].key; });
    if (repeated) {
      begin(Subject::entry, *repeated, entries[*repeated].key);
      refuse("key", entries[*repeated].offset, "the same key is in the file twice");
    }
  }

  void read_entry(std::uint64_t index, GgufEntry* entry) {
    begin(Subject::entry, index);
    const std::uint64_t key_at = position_;
    const std::string_view key = read_text("key length", "key", kMaxGgufKeyBytes);
    if (key.empty()) refuse("key length", key_at, "the key is empty");
    if (key.find('\0') != std::string_view::npos) refuse("key", key_at, "the key holds a zero byte");
    name_ = key;
    const std::uint64_t kind_at = position_;
    const GgufKind kind = read_kind("value kind");
    if (entry != nullptr) *entry = {key, kind, {}, key_at};
    GgufValue* value = entry == nullptr ? nullptr : &entry->value;
    if (key == kAlignmentKey) return read_alignment(kind, kind_at, value);
    if (kind == GgufKind::string) {
      const std::string_view text = read_text("string length", "string", kMaxGgufStringBytes);
      if (value != nullptr) *value = text;
    } else if (kind == GgufKind::array) {
      read_array(value);
    } else {
      const GgufValue scalar = read_scalar(kind);
      if (value != nullptr) *value = scalar;
    }
  }

  GgufKind read_kind(std::string_view field) {
    const std::uint64_t at = position_;
    const auto number = read<std::uint32_t>(field);
    if (number > static_cast<std::uint32_t>(GgufKind::f64)) refuse(field, at, "{} is not a kind of value", number);
    return static_cast<GgufKind>(number);
  }

  GgufValue read_scalar(GgufKind kind) {
    switch (kind) {
      case GgufKind::u8: return std::uint64_t{read<std::uint8_t>("value")};
      case GgufKind::u16: return std::uint64_t{read<std::uint16_t>("value")};
      case GgufKind::u32: return std::uint64_t{read<std::uint32_t>("value")};
      case GgufKind::u64: return read<std::uint64_t>("value");
      case GgufKind::i8: return std::int64_t{read<std::int8_t>("value")};
      case GgufKind::i16: return std::int64_t{read<std::int16_t>("value")};
      case GgufKind::i32: return std::int64_t{read<std::int32_t>("value")};
      case GgufKind::i64: return read<std::int64_t>("value");
      case GgufKind::f32: return double{read<float>("value")};
      case GgufKind::f64: return read<double>("value");
      default: break;
    }
    const std::uint64_t at = position_;
    const auto bit = read<std::uint8_t>("value");
    if (bit > 1) refuse("value", at, "a boolean must be 0 or 1, not {}", bit);
    return bit == 1;
  }

  void read_alignment(GgufKind kind, std::uint64_t kind_at, GgufValue* value) {
    if (kind != GgufKind::u32) refuse("value kind", kind_at, "the alignment must be a u32, not a {}", kind_name(kind));
    const std::uint64_t at = position_;
    const auto alignment = read<std::uint32_t>("value");
    if (!std::has_single_bit(alignment) || alignment > kMaxGgufAlignment) {
      refuse("value", at, "the alignment must be a power of two from 1 to {}, not {}", kMaxGgufAlignment, alignment);
    }
    directory_.alignment = alignment;
    if (value != nullptr) *value = std::uint64_t{alignment};
  }

  void read_array(GgufValue* value) {
    const std::uint64_t kind_at = position_;
    const GgufKind kind = read_kind("array kind");
    if (kind == GgufKind::array) refuse("array kind", kind_at, "arrays of arrays are not supported");
    const std::uint64_t count_at = position_;
    const auto count = read<std::uint64_t>("array length");
    // A string takes at least the eight bytes of its length.
    const std::uint64_t least = kind == GgufKind::string ? 8 : kind_bytes(kind);
    if (count > left() / least) {
      refuse("array length", count_at, "{} elements of {} or more bytes, but the file ends after {} bytes", count,
             least, left());
    }
    if (kind == GgufKind::string) return read_strings(count, value);
    const GgufNumbers numbers{kind, count, take(count * least, "array")};
    if (kind == GgufKind::boolean) {
      for (std::uint64_t i = 0; i < count; ++i) {
        if (numbers.data[i] > std::byte{1}) refuse("array", position_ - count + i, "a boolean must be 0 or 1");
      }
    }
    if (value != nullptr) *value = numbers;
  }

  void read_strings(std::uint64_t count, GgufValue* value) {
    std::vector<std::string_view> strings;
    if (value != nullptr) strings.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::string_view text = read_text("string length", "string", kMaxGgufStringBytes);
      if (value != nullptr) strings.push_back(text);
    }
    if (value != nullptr) *value = std::move(strings);
  }

  void read_tensors(std::uint64_t count) {
    const std::uint64_t start = position_;
    for (std::uint64_t i = 0; i < count; ++i) read_tensor(i);
    position_ = start;
    directory_.tensors.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) directory_.tensors.push_back(read_tensor(i));
  }

  GgufTensor read_tensor(std::uint64_t index) {
    begin(Subject::tensor, index);
    const std::uint64_t name_at = position_;
    const std::string_view name = read_text("name length", "name", kMaxGgufNameBytes);
    if (name.empty()) refuse("name length", name_at, "the name is empty");
    if (name.find('\0') != std::string_view::npos) refuse("name", name_at, "the name holds a zero byte");
    name_ = name;

    const std::uint64_t dimensions_at = position_;
    const auto dimensions = read<std::uint32_t>("dimensions");
    if (dimensions > 4) refuse("dimensions", dimensions_at, "{}, but at most 4 are allowed", dimensions);
    const std::uint64_t shape_at = position_;
    std::array<std::uint64_t, 4> shape{1, 1, 1, 1};
    std::uint64_t elements = 1;
    for (std::uint32_t i = 0; i < dimensions; ++i) {
      const std::uint64_t at = position_;
      shape[i] = read<std::uint64_t>("shape");
      if (shape[i] == 0) refuse("shape", at, "dimension {} is zero", i);
      const auto product = checked_mul(elements, shape[i]);
      if (!product) refuse("shape", at, "dimension {} is {}, which makes the tensor too large", i, shape[i]);
      elements = *product;
    }

    const std::uint64_t type_at = position_;
    const auto number = read<std::uint32_t>("type");
    const TypeInfo* type = find_type(number);
    if (type == nullptr) {
      refuse_as(ErrorKind::unsupported, "type", type_at, "type number {} is not one this version knows", number);
    }
    if (shape[0] % type->block_weights != 0) {
      refuse("shape", shape_at, "rows of {} values cannot be made of {} blocks, which hold {}", shape[0], type->name,
             type->block_weights);
    }
    const auto bytes = checked_mul(elements / type->block_weights, type->block_bytes);
    if (!bytes) refuse("shape", shape_at, "{} values of type {} are too large", elements, type->name);
    // Relative to the data's start until place_tensors() knows where that is.
    const auto offset = read<std::uint64_t>("offset");
    return {name, type->type, dimensions, shape, offset, *bytes, part_};
  }

  // Turns offsets into the data into offsets into the file, and checks that each tensor's bytes are there and its own.
  void place_tensors() {
    auto& tensors = directory_.tensors;
    if (tensors.empty()) return;
    const std::uint64_t alignment = directory_.alignment;
    const auto data_start = checked_round_up(position_, alignment);
    std::uint64_t farthest = 0;
    std::size_t farthest_index = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      GgufTensor& tensor = tensors[i];
      begin(Subject::tensor, i, tensor.name);
      if (tensor.offset % alignment != 0) {
        refuse("offset", offset_field(tensor), "{} is not a multiple of the alignment, {}", tensor.offset, alignment);
      }
      const auto start = data_start ? checked_add(*data_start, tensor.offset) : std::nullopt;
      const auto end = start ? checked_add(*start, tensor.bytes) : std::nullopt;
      if (!end) refuse("offset", offset_field(tensor), "{} is beyond any file", tensor.offset);
      tensor.offset = *start;
      if (*end > farthest) {
        farthest = *end;
        farthest_index = i;
      }
    }
    if (farthest > bytes_.size()) {
      const GgufTensor& tensor = tensors[farthest_index];
      begin(Subject::tensor, farthest_index, tensor.name);
      refuse("offset", offset_field(tensor),
             "its {} bytes from byte {} reach beyond the end of the file ({} bytes): {} bytes are missing",
             tensor.bytes, tensor.offset, bytes_.size(), farthest - bytes_.size());
    }
    check_apart();
  }

  void check_apart() {
    const auto& tensors = directory_.tensors;
    std::vector<std::uint32_t> order(tensors.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(tensors[a].offset, a) < std::pair(tensors[b].offset, b);
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const GgufTensor& before = tensors[order[i - 1]];
      const GgufTensor& after = tensors[order[i]];
      if (before.offset + before.bytes <= after.offset) continue;
      begin(Subject::tensor, order[i], after.name);
      refuse("offset", offset_field(after), "its data starts at byte {}, inside tensor '{}'", after.offset,
             printable(before.name));
    }
  }

  // Where the offset of a tensor stands in the file: after its name, dimensions, shape and type.
  std::uint64_t offset_field(const GgufTensor& tensor) const {
    const auto name_at =
        static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(tensor.name.data()) - bytes_.data());
    return name_at + tensor.name.size() + 4 + std::uint64_t{8} * tensor.dimensions + 4;
  }

  std::span<const std::byte> bytes_;
  std::string_view file_name_;
  std::uint32_t part_;
  std::uint64_t position_ = 0;
  Subject subject_ = Subject::header;
  std::uint64_t index_ = 0;
  std::string_view name_;
  GgufDirectory directory_;
};

}  // namespace

GgufDirectory parse_gguf(std::span<const std::byte> bytes, std::string_view file_name, std::uint32_t part) {
  return Parser(bytes, file_name, part).parse();
}

}  // namespace quarrel
