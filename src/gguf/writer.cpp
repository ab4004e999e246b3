#include "gguf/writer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "gguf/parser.h"

namespace quarrel {
namespace {

constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr std::uint32_t kDefaultAlignment = 32;
constexpr std::uint32_t kVersion = 3;

using Bytes = std::vector<std::byte>;

void append(Bytes& bytes, const void* data, std::size_t size) {
  const std::size_t end = bytes.size();
  bytes.resize(end + size);
  if (size > 0) std::memcpy(bytes.data() + end, data, size);
}

template <typename T>
void append_number(Bytes& bytes, T value) {
  append(bytes, &value, sizeof(value));
}

void append_text(Bytes& bytes, std::string_view text) {
  append_number<std::uint64_t>(bytes, text.size());
  append(bytes, text.data(), text.size());
}

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

Bytes encode_numbers(GgufKind kind, std::uint64_t count, const void* data) {
  Bytes payload;
  append_number(payload, static_cast<std::uint32_t>(kind));
  append_number(payload, count);
  append(payload, data, count * kind_bytes(kind));
  return payload;
}

template <typename Texts>
Bytes encode_strings(const Texts& texts) {
  Bytes payload;
  append_number(payload, static_cast<std::uint32_t>(GgufKind::string));
  append_number<std::uint64_t>(payload, texts.size());
  for (const auto& text : texts) append_text(payload, text);
  return payload;
}

// The low bytes of a widened number are the number as the file carries it.
template <typename T>
Bytes encode_integer(GgufKind kind, T value) {
  Bytes payload;
  append(payload, &value, kind_bytes(kind));
  return payload;
}

Bytes encode_value(const GgufEntry& entry) {
  const GgufKind kind = entry.kind;
  if (const auto* value = std::get_if<std::uint64_t>(&entry.value)) return encode_integer(kind, *value);
  if (const auto* value = std::get_if<std::int64_t>(&entry.value)) return encode_integer(kind, *value);
  Bytes payload;
  if (const auto* number = std::get_if<double>(&entry.value)) {
    kind == GgufKind::f32 ? append_number(payload, static_cast<float>(*number)) : append_number(payload, *number);
  } else if (const auto* flag = std::get_if<bool>(&entry.value)) {
    append_number<std::uint8_t>(payload, *flag ? 1 : 0);
  } else if (const auto* text = std::get_if<std::string_view>(&entry.value)) {
    append_text(payload, *text);
  } else if (const auto* numbers = std::get_if<GgufNumbers>(&entry.value)) {
    payload = encode_numbers(numbers->kind, numbers->count, numbers->data);
  } else {
    payload = encode_strings(std::get<std::vector<std::string_view>>(entry.value));
  }
  return payload;
}

void check_name(std::string_view what, std::string_view name, std::uint64_t limit) {
  if (name.empty()) fail(ErrorKind::bad_input, "a {} must not be empty", what);
  if (name.size() > limit)
    fail(ErrorKind::bad_input, "the {} '{}' is longer than {} bytes", what, printable(name), limit);
  if (name.find('\0') != std::string_view::npos) {
    fail(ErrorKind::bad_input, "the {} '{}' holds a zero byte", what, printable(name));
  }
}

std::uint64_t tensor_bytes(std::string_view name, const TypeInfo& type, const std::vector<std::uint64_t>& shape) {
  if (shape.size() > 4) fail(ErrorKind::bad_input, "tensor '{}' has more than 4 dimensions", printable(name));
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : shape) {
    const auto product = checked_mul(elements, extent);
    if (extent == 0) fail(ErrorKind::bad_input, "tensor '{}' has a dimension of zero", printable(name));
    if (!product) fail(ErrorKind::bad_input, "tensor '{}' is too large", printable(name));
    elements = *product;
  }
  const std::uint64_t row = shape.empty() ? 1 : shape[0];
  if (row % type.block_weights != 0) {
    fail(ErrorKind::bad_input, "tensor '{}': rows of {} values cannot be made of {} blocks, which hold {}",
         printable(name), row, type.name, type.block_weights);
  }
  const auto bytes = checked_mul(elements / type.block_weights, type.block_bytes);
  if (!bytes) fail(ErrorKind::bad_input, "tensor '{}' is too large", printable(name));
  return *bytes;
}

std::uint64_t padded(std::uint64_t bytes, std::uint32_t alignment) {
  const auto rounded = checked_round_up(bytes, alignment);
  if (!rounded) fail(ErrorKind::bad_input, "{} bytes are too large for a file", bytes);
  return *rounded;
}

}  // namespace

GgufWriter::GgufWriter(std::uint32_t alignment) : alignment_(alignment) {
  if (!std::has_single_bit(alignment) || alignment > kMaxGgufAlignment) {
    fail(ErrorKind::bad_input, "the alignment must be a power of two from 1 to {}, not {}", kMaxGgufAlignment,
         alignment);
  }
}

void GgufWriter::put(std::string_view key, GgufKind kind, std::span<const std::byte> payload) {
  check_name("key", key, kMaxGgufKeyBytes);
  if (key == kAlignmentKey) fail(ErrorKind::bad_input, "the alignment is given when the writer is made");
  if (!keys_.emplace(key).second) fail(ErrorKind::bad_input, "the key '{}' is put twice", printable(key));
  append_text(entries_, key);
  append_number(entries_, static_cast<std::uint32_t>(kind));
  append(entries_, payload.data(), payload.size());
  ++entry_count_;
}

void GgufWriter::put_u32(std::string_view key, std::uint32_t value) { put(key, GgufKind::u32, bytes_of(value)); }
void GgufWriter::put_i32(std::string_view key, std::int32_t value) { put(key, GgufKind::i32, bytes_of(value)); }
void GgufWriter::put_u64(std::string_view key, std::uint64_t value) { put(key, GgufKind::u64, bytes_of(value)); }
void GgufWriter::put_f32(std::string_view key, float value) { put(key, GgufKind::f32, bytes_of(value)); }

void GgufWriter::put_bool(std::string_view key, bool value) {
  const std::uint8_t byte = value ? 1 : 0;
  put(key, GgufKind::boolean, bytes_of(byte));
}

void GgufWriter::put_string(std::string_view key, std::string_view value) {
  Bytes payload;
  append_text(payload, value);
  put(key, GgufKind::string, payload);
}

void GgufWriter::put_strings(std::string_view key, std::span<const std::string> values) {
  put(key, GgufKind::array, encode_strings(values));
}

void GgufWriter::put_f32s(std::string_view key, std::span<const float> values) {
  put(key, GgufKind::array, encode_numbers(GgufKind::f32, values.size(), values.data()));
}

void GgufWriter::put_i32s(std::string_view key, std::span<const std::int32_t> values) {
  put(key, GgufKind::array, encode_numbers(GgufKind::i32, values.size(), values.data()));
}

void GgufWriter::put_entry(const GgufEntry& entry) {
  if (entry.key != kAlignmentKey) put(entry.key, entry.kind, encode_value(entry));
}

void GgufWriter::add_tensor(std::string_view name, QuantType type, std::vector<std::uint64_t> shape, Fill fill) {
  check_name("tensor name", name, kMaxGgufNameBytes);
  const std::uint64_t bytes = tensor_bytes(name, type_info(type), shape);
  if (!tensor_names_.emplace(name).second)
    fail(ErrorKind::bad_input, "the tensor '{}' is added twice", printable(name));
  tensors_.push_back({std::string(name), type, std::move(shape), bytes, std::move(fill)});
}

void GgufWriter::add_tensor(std::string_view name, std::vector<std::uint64_t> shape, std::span<const float> values) {
  if (tensor_bytes(name, type_info(QuantType::f32), shape) != values.size_bytes()) {
    fail(ErrorKind::bad_input, "tensor '{}': {} values do not fill its shape", printable(name), values.size());
  }
  add_tensor(name, QuantType::f32, std::move(shape),
             [copy = std::vector<float>(values.begin(), values.end())](std::span<std::byte> bytes) {
               std::memcpy(bytes.data(), copy.data(), bytes.size());
             });
}

std::vector<std::byte> GgufWriter::header() const {
  const bool own_alignment = alignment_ != kDefaultAlignment;
  Bytes bytes;
  append(bytes, "GGUF", 4);
  append_number(bytes, kVersion);
  append_number<std::uint64_t>(bytes, tensors_.size());
  append_number<std::uint64_t>(bytes, entry_count_ + (own_alignment ? 1 : 0));
  if (own_alignment) {
    append_text(bytes, kAlignmentKey);
    append_number(bytes, static_cast<std::uint32_t>(GgufKind::u32));
    append_number(bytes, alignment_);
  }
  append(bytes, entries_.data(), entries_.size());
  std::uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    append_text(bytes, tensor.name);
    append_number(bytes, static_cast<std::uint32_t>(tensor.shape.size()));
    for (const std::uint64_t extent : tensor.shape) append_number(bytes, extent);
    append_number(bytes, static_cast<std::uint32_t>(tensor.type));
    append_number(bytes, offset);
    const auto next = checked_add(offset, padded(tensor.bytes, alignment_));
    if (!next) fail(ErrorKind::bad_input, "the tensors up to '{}' are too large for a file", printable(tensor.name));
    offset = *next;
  }
  bytes.resize(padded(bytes.size(), alignment_));
  return bytes;
}

void GgufWriter::emit(const Sink& sink) const {
  sink(header());
  Bytes buffer;
  for (const Tensor& tensor : tensors_) {
    buffer.assign(padded(tensor.bytes, alignment_), std::byte{0});
    tensor.fill(std::span(buffer).first(tensor.bytes));
    sink(buffer);
  }
}

void GgufWriter::write(const std::filesystem::path& path) const {
  OutputFile file(path);
  emit([&](std::span<const std::byte> bytes) { file.write(bytes); });
  file.commit();
}

std::vector<std::byte> GgufWriter::to_bytes() const {
  Bytes result;
  emit([&](std::span<const std::byte> bytes) { append(result, bytes.data(), bytes.size()); });
  return result;
}

}  // namespace quarrel
