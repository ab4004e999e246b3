#include "app/vector_writer.h"

#include <fmt/format.h>

#include <bit>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace quarrel {
namespace {

static_assert(std::endian::native == std::endian::little, "float32 is written as it lies in memory");

std::string_view bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// Version 1.0 of the format: magic, version, length of the description, the description padded with blanks so that what
// follows begins at a multiple of 64.
std::string npy_header(const VectorShape& shape) {
  constexpr std::size_t kBefore = 10;
  constexpr std::size_t kAlignment = 64;
  std::string text =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", shape.vectors, shape.width);
  const std::size_t whole = (kBefore + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  text.append(whole - kBefore - text.size() - 1, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

// The shortest digits that read back as the same float32.
void append_json(std::string& out, const std::vector<float>& values) {
  out += '[';
  for (std::size_t i = 0; i < values.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ",", values[i]);
  }
  out += ']';
}

}  // namespace

VectorFormat vector_format_of(const std::string& name) {
  if (name == "json") return VectorFormat::json;
  if (name == "jsonl") return VectorFormat::jsonl;
  if (name == "f32") return VectorFormat::f32;
  if (name == "npy") return VectorFormat::npy;
  fail(ErrorKind::usage, "the format is json, jsonl, f32 or npy, not '{}'", printable(name));
}

bool is_binary(VectorFormat format) noexcept { return format == VectorFormat::f32 || format == VectorFormat::npy; }

VectorWriter::VectorWriter(VectorFormat format, bool by_token, VectorShape shape, Sink sink)
    : format_(format), by_token_(by_token), sink_(std::move(sink)) {
  if (format_ == VectorFormat::npy) sink_(npy_header(shape));
}

std::string VectorWriter::json_of(std::span<const std::vector<float>> vectors) const {
  std::string text;
  if (by_token_) text += '[';
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    if (i > 0) text += ',';
    append_json(text, vectors[i]);
  }
  if (by_token_) text += ']';
  return text;
}

void VectorWriter::add(std::size_t tokens, std::span<const std::vector<float>> vectors) {
  if (format_ == VectorFormat::json) {
    sink_((texts_ == 0 ? "[" : ",\n") + json_of(vectors));
  } else if (format_ == VectorFormat::jsonl) {
    sink_(fmt::format("{{\"index\":{},\"tokens\":{},\"embedding\":{}}}\n", texts_, tokens, json_of(vectors)));
  } else {
    for (const std::vector<float>& values : vectors) sink_(bytes_of(values));
  }
  ++texts_;
}

void VectorWriter::finish() {
  if (format_ == VectorFormat::json) sink_(texts_ == 0 ? "[]\n" : "]\n");
}

}  // namespace quarrel
