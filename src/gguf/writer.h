// Writes GGUF version 3, for tests and conversion. Collect entries and tensors, then `write`; nothing is kept in memory
// but the directory, so large tensors are handed over by a function that fills a buffer. What a reader would refuse
// (an empty, repeated or overlong name, a shape that is not a whole number of blocks) throws Error(bad_input) when it
// is put. One thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "gguf/file.h"

namespace quarrel {

class GgufWriter {
 public:
  // A power of two from 1 to 65536. Another one than the format's default of 32 becomes the key general.alignment,
  // which nobody else may put.
  explicit GgufWriter(std::uint32_t alignment = 32);

  void put_u32(std::string_view key, std::uint32_t value);
  void put_i32(std::string_view key, std::int32_t value);
  void put_u64(std::string_view key, std::uint64_t value);
  void put_f32(std::string_view key, float value);
  void put_bool(std::string_view key, bool value);
  void put_string(std::string_view key, std::string_view value);
  void put_strings(std::string_view key, std::span<const std::string> values);
  void put_f32s(std::string_view key, std::span<const float> values);
  void put_i32s(std::string_view key, std::span<const std::int32_t> values);
  // Copies an entry of another file as it stands, except general.alignment, which is this writer's own.
  void put_entry(const GgufEntry& entry);

  // The function is called once, during `write`, and must fill the whole span.
  using Fill = std::function<void(std::span<std::byte>)>;
  void add_tensor(std::string_view name, QuantType type, std::vector<std::uint64_t> shape, Fill fill);
  void add_tensor(std::string_view name, std::vector<std::uint64_t> shape, std::span<const float> values);  // F32

  // To a temporary file beside `path`, then renamed over it: a reader never sees half a model.
  void write(const std::filesystem::path& path) const;
  std::vector<std::byte> to_bytes() const;

 private:
  struct Tensor {
    std::string name;
    QuantType type;
    std::vector<std::uint64_t> shape;
    std::uint64_t bytes;
    Fill fill;
  };
  using Sink = std::function<void(std::span<const std::byte>)>;
  std::vector<std::byte> header() const;
  void emit(const Sink& sink) const;
  void put(std::string_view key, GgufKind kind, std::span<const std::byte> payload);

  std::uint32_t alignment_;
  std::uint64_t entry_count_ = 0;
  std::vector<std::byte> entries_;  // encoded
  std::unordered_set<std::string> keys_;
  std::vector<Tensor> tensors_;
  std::unordered_set<std::string> tensor_names_;
};

}  // namespace quarrel
