// A toy written again as another converter would have: other names, other shapes, tensors joined or split.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/writer.h"
#include "quant/types.h"
#include "support/toy_model.h"

namespace quarrel::test {

// A tensor of the toy, as it lies in the file and decoded.
struct ToyTensor {
  std::string name;
  QuantType type = QuantType::f32;
  std::vector<std::uint64_t> shape;
  std::vector<std::byte> bytes;
  std::vector<float> values;
};

class ToyRewriter {
 public:
  ToyRewriter(std::string_view toy, const ToyOptions& options);

  // The key under its new name; "" drops it. Default: as it is.
  std::function<std::string(std::string_view)> rename_key;
  // Text values by key.
  std::function<std::string(std::string_view key, std::string_view value)> change_string;
  // Puts keys that the toy does not have.
  std::function<void(GgufWriter&)> put;
  // Emits what becomes of a tensor; default: itself.
  std::function<void(const ToyTensor&, ToyRewriter&)> change;

  const ToyTensor& tensor(std::string_view name) const;
  void keep(const ToyTensor& tensor, const std::string& name = {});  // under another name where one is given
  // The values are encoded to `type`.
  void add(std::string name, std::vector<std::uint64_t> shape, const std::vector<float>& values,
           QuantType type = QuantType::f32);
  void add_bytes(std::string name, QuantType type, std::vector<std::uint64_t> shape, std::vector<std::byte> bytes);

  std::filesystem::path write(const std::filesystem::path& path);

 private:
  std::vector<std::byte> bytes_;
  GgufFile file_;
  std::vector<ToyTensor> tensors_;
  GgufWriter writer_;
};

}  // namespace quarrel::test
