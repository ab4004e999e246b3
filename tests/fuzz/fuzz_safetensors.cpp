// The bytes are a safetensors file: what opens has tensors that lie in it, apart from each other, and are found by
// name.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "convert/safetensors.h"
#include "fuzz/targets.h"

namespace quarrel::fuzz {
namespace {

void check(const SafetensorsFile& file, Input input) {
  std::vector<const SafetensorsTensor*> order;
  std::uint64_t kept = 0;
  for (const SafetensorsTensor& tensor : file.tensors()) {
    require(file.find(tensor.name) == &tensor, "a tensor is found by its name");
    require(!tensor.name.empty() && tensor.name.size() <= kMaxSafetensorsName, "names are bounded");
    require(tensor.offset <= input.size() && tensor.bytes <= input.size() - tensor.offset, "tensors lie in the file");
    std::uint64_t elements = 1;
    for (const std::uint64_t extent : tensor.shape) elements *= extent;
    if (tensor.type) require(elements * type_info(*tensor.type).block_bytes == tensor.bytes, "sizes are the shapes'");
    if (tensor.bytes == 0) continue;
    order.push_back(&tensor);
    kept += std::to_integer<std::uint64_t>(file.data(tensor)[0]);
    kept += std::to_integer<std::uint64_t>(file.data(tensor)[tensor.bytes - 1]);
  }
  std::ranges::sort(order, {}, &SafetensorsTensor::offset);
  for (std::size_t i = 1; i < order.size(); ++i) {
    require(order[i - 1]->offset + order[i - 1]->bytes <= order[i]->offset, "tensors lie apart");
  }
  require(kept <= order.size() * 510, "bytes are bytes");
}

}  // namespace

void safetensors(Input input) {
  try {
    check(SafetensorsFile::view(input, "fuzzed.safetensors"), input);
  } catch (const Error&) {
  }
}

}  // namespace quarrel::fuzz
