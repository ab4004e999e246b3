#include "support/rewritten_toy.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "quant/decode.h"
#include "quant/encode.h"

namespace quarrel::test {

ToyRewriter::ToyRewriter(std::string_view toy, const ToyOptions& options)
    : bytes_(make_toy(toy, options)), file_(GgufFile::view(bytes_, "toy")) {
  for (const GgufTensor& tensor : file_.tensors()) {
    ToyTensor copy{.name = std::string(tensor.name),
                   .type = tensor.type,
                   .shape = {tensor.shape.begin(), tensor.shape.begin() + tensor.dimensions},
                   .bytes = {file_.data(tensor), file_.data(tensor) + tensor.bytes},
                   .values = std::vector<float>(tensor.elements())};
    const std::size_t stride = row_bytes(type_info(tensor.type), tensor.shape[0]);
    for (std::size_t row = 0; row * tensor.shape[0] < copy.values.size(); ++row) {
      decode_row(tensor.type, file_.data(tensor) + row * stride, copy.values.data() + row * tensor.shape[0],
                 tensor.shape[0]);
    }
    tensors_.push_back(std::move(copy));
  }
}

const ToyTensor& ToyRewriter::tensor(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &ToyTensor::name);
  if (found == tensors_.end()) fail(ErrorKind::usage, "the toy has no tensor {}", name);
  return *found;
}

void ToyRewriter::add(std::string name, std::vector<std::uint64_t> shape, const std::vector<float>& values,
                      QuantType type) {
  std::vector<std::byte> encoded(values.size() / shape[0] * row_bytes(type_info(type), shape[0]));
  encode_row(type, values.data(), encoded.data(), values.size());
  add_bytes(std::move(name), type, std::move(shape), std::move(encoded));
}

void ToyRewriter::add_bytes(std::string name, QuantType type, std::vector<std::uint64_t> shape,
                            std::vector<std::byte> bytes) {
  writer_.add_tensor(name, type, std::move(shape), [held = std::move(bytes)](std::span<std::byte> out) {
    std::memcpy(out.data(), held.data(), out.size());
  });
}

void ToyRewriter::keep(const ToyTensor& tensor, const std::string& name) {
  add_bytes(name.empty() ? tensor.name : name, tensor.type, tensor.shape, tensor.bytes);
}

std::filesystem::path ToyRewriter::write(const std::filesystem::path& path) {
  for (GgufEntry entry : file_.entries()) {
    if (entry.key == "general.alignment") continue;
    const std::string key = rename_key ? rename_key(entry.key) : std::string(entry.key);
    if (key.empty()) continue;
    const auto* text = std::get_if<std::string_view>(&entry.value);
    if (text != nullptr && change_string) {
      writer_.put_string(key, change_string(entry.key, *text));
      continue;
    }
    entry.key = key;
    writer_.put_entry(entry);
  }
  if (put) put(writer_);
  for (const ToyTensor& tensor : tensors_) {
    if (change) {
      change(tensor, *this);
    } else {
      keep(tensor);
    }
  }
  writer_.write(path);
  return path;
}

}  // namespace quarrel::test
