// The bytes are a GGUF file: everything a reader may ask of it is asked, then the model's spec is read.
#include <cstdint>
#include <variant>

#include "base/error.h"
#include "fuzz/targets.h"
#include "gguf/file.h"
#include "model/architectures.h"

namespace quarrel::fuzz {
namespace {

constexpr std::size_t kMaxLayers = 65'536;  // beyond any model; a spec is a few hundred bytes a layer

// Keeps what was read from being optimised away.
class Sink {
 public:
  void eat(std::uint64_t value) { kept_ = kept_ + value; }
  void eat(std::string_view text) {
    for (const char c : text) eat(static_cast<std::uint8_t>(c));
  }
  void eat(std::byte value) { eat(std::to_integer<std::uint64_t>(value)); }

 private:
  volatile std::uint64_t kept_ = 0;
};

template <typename Action>
void allow_errors(const Action& action) {
  try {
    action();
  } catch (const Error&) {
  }
}

void touch_value(const GgufEntry& entry, Sink& sink) {
  if (const auto* numbers = std::get_if<GgufNumbers>(&entry.value)) {
    sink.eat(kind_name(numbers->kind));
    for (std::uint64_t i = 0; i < numbers->count; ++i) {
      sink.eat(static_cast<std::uint64_t>(numbers->as_int(i)));
      sink.eat(numbers->as_double(i) > 0 ? 1U : 0U);
    }
  } else if (const auto* strings = std::get_if<std::vector<std::string_view>>(&entry.value)) {
    for (const std::string_view text : *strings) sink.eat(text);
  } else if (const auto* text = std::get_if<std::string_view>(&entry.value)) {
    sink.eat(*text);
  }
}

void touch_entry(const GgufFile& file, const GgufEntry& entry, Sink& sink) {
  sink.eat(kind_name(entry.kind));
  require(file.find(entry.key) == &entry, "an entry is found by its key");
  touch_value(entry, sink);
  allow_errors([&] { file.unsigned_integer(entry.key); });
  allow_errors([&] { file.integer(entry.key); });
  allow_errors([&] { file.number(entry.key); });
  allow_errors([&] { file.boolean(entry.key); });
  allow_errors([&] { file.string(entry.key); });
  allow_errors([&] { file.numbers(entry.key); });
  allow_errors([&] { file.strings(entry.key); });
}

void touch_tensor(const GgufFile& file, const GgufTensor& tensor, Sink& sink) {
  require(file.find_tensor(tensor.name) == &tensor, "a tensor is found by its name");
  const TypeInfo& info = type_info(tensor.type);
  require(tensor.dimensions <= 4, "a tensor has at most four dimensions");
  require(tensor.elements() / info.block_weights * info.block_bytes == tensor.bytes, "a tensor's size is its shape's");
  if (tensor.bytes == 0) return;
  const std::byte* data = file.data(tensor);
  sink.eat(data[0]);
  sink.eat(data[tensor.bytes - 1]);
}

void check_spec(const ModelSpec& spec) {
  require(!spec.layers.empty() && spec.layers.size() <= kMaxLayers, "no file of a few bytes makes that many layers");
  require(spec.width > 0 && spec.vocabulary > 0 && spec.context_length > 0, "a model's sizes are positive");
  for (const LayerSpec& layer : spec.layers) {
    const auto* attention = std::get_if<AttentionSpec>(&layer.mixer.function);
    if (attention == nullptr) continue;
    require(attention->heads > 0 && attention->kv_heads > 0, "attention has heads");
    require(attention->key_dim > 0 && attention->value_dim > 0, "heads have a width");
  }
}

}  // namespace

void gguf(Input input) {
  allow_errors([&] {
    const GgufFile file = GgufFile::view(input, "fuzzed.gguf");
    Sink sink;
    require(file.file_bytes() == input.size(), "a view is as long as its bytes");
    for (const GgufEntry& entry : file.entries()) touch_entry(file, entry, sink);
    for (const GgufTensor& tensor : file.tensors()) touch_tensor(file, tensor, sink);
    check_spec(read_spec(file));
  });
}

}  // namespace quarrel::fuzz
