// Small model folders for the tests of conversion: safetensors files and the JSON beside them, made up or out of a toy.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "convert/hugging_face_names.h"
#include "gguf/file.h"
#include "quant/decode.h"
#include "quant/encode.h"
#include "support/toy_model.h"
#include "unit/gguf_support.h"

namespace quarrel::test {

using Json = nlohmann::ordered_json;

// A safetensors file: header length, header, data.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + data;
}

class SafetensorsMaker {
 public:
  void add(const std::string& name, const std::string& dtype, const std::vector<std::uint64_t>& shape,
           const std::string& data) {
    header_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + data.size()}}};
    data_ += data;
  }
  // Values in row order, stored as `type`: F32, F16 or BF16.
  void add(const std::string& name, QuantType type, const std::vector<std::uint64_t>& shape,
           const std::vector<float>& values) {
    std::string data(row_bytes(type_info(type), values.size()), '\0');
    encode_row(type, values.data(), reinterpret_cast<std::byte*>(data.data()), values.size());
    add(name, std::string(type_info(type).name), shape, data);
  }
  std::string bytes() const { return safetensors_bytes(header_.dump(), data_); }

 private:
  Json header_ = {{"__metadata__", {{"format", "pt"}}}};
  std::string data_;
};

inline std::vector<float> values_of(const GgufFile& file, const GgufTensor& tensor) {
  std::vector<float> values(tensor.elements());
  decode_row(tensor.type, file.data(tensor), values.data(), values.size());
  return values;
}

inline const ModelFamily& family_of(std::string_view class_name) {
  for (const ModelFamily& family : model_families()) {
    if (family.class_name == class_name) return family;
  }
  throw std::logic_error("no such family");
}

inline std::string numbered(std::string_view pattern, std::uint64_t layer) {
  std::string text(pattern);
  const std::size_t at = text.find("{}");
  return at == std::string::npos ? text : text.replace(at, 2, std::to_string(layer));
}

// The rows of each head as a model that rotates halves has them: pair j is rows j and j + head / 2.
inline std::vector<float> rows_in_halves(const std::vector<float>& pairs, std::size_t row, std::size_t head) {
  std::vector<float> halves(pairs.size());
  const std::size_t rows = pairs.size() / row;
  for (std::size_t first = 0; first < rows; first += head) {
    for (std::size_t pair = 0; pair < head / 2; ++pair) {
      const float* even = pairs.data() + (first + 2 * pair) * row;
      const float* odd = even + row;
      std::copy(even, even + row, halves.data() + (first + pair) * row);
      std::copy(odd, odd + row, halves.data() + (first + pair + head / 2) * row);
    }
  }
  return halves;
}

// The tensors of a toy under the names of `family`, as their library would store them.
inline SafetensorsMaker toy_as_safetensors(const GgufFile& toy, const ModelFamily& family, std::uint64_t layers,
                                           std::size_t head, QuantType type = QuantType::f32) {
  SafetensorsMaker maker;
  for (const TensorRule& rule : family.tensors) {
    const bool layered = rule.ours.find("{}") != std::string_view::npos;
    for (std::uint64_t layer = 0; layer < (layered ? layers : 1); ++layer) {
      const GgufTensor* tensor = toy.find_tensor(numbered(rule.ours, layer));
      if (tensor == nullptr) continue;
      std::vector<float> values = values_of(toy, *tensor);
      const bool rotates = rule.role == RowRole::query || rule.role == RowRole::key;
      if (rotates && family.rotates_pairs) {
        values = rows_in_halves(values, tensor->dimensions == 1 ? 1 : tensor->shape[0], head);
      }
      std::vector<std::uint64_t> shape(tensor->shape.begin(), tensor->shape.begin() + tensor->dimensions);
      std::reverse(shape.begin(), shape.end());
      maker.add(numbered(rule.theirs, layer), type, shape, values);
    }
  }
  return maker;
}

inline void write_json(const std::filesystem::path& path, const Json& value) { write_file(path, value.dump()); }

}  // namespace quarrel::test
