#include "model/weights.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "quant/decode.h"

namespace quarrel {

std::int64_t WeightBinder::rows_of(const std::string& name) const {
  const GgufTensor* found = file_.find_tensor(name);
  return found == nullptr ? 0 : static_cast<std::int64_t>(found->shape[1]);
}

const GgufTensor& WeightBinder::tensor(const std::string& name, std::int64_t rows, std::int64_t columns) const {
  const GgufTensor* found = file_.find_tensor(name);
  if (found == nullptr) {
    fail(ErrorKind::bad_file, "the file has no tensor {}; a [{}, {}] one is needed", name, columns, rows);
  }
  const bool flat = found->shape[2] == 1 && found->shape[3] == 1;
  if (!flat || std::cmp_not_equal(found->shape[0], columns) || std::cmp_not_equal(found->shape[1], rows)) {
    fail(ErrorKind::bad_file, "tensor {} has the shape [{}], but [{}, {}] is needed", name,
         fmt::join(found->shape.begin(), found->shape.begin() + found->dimensions, ", "), columns, rows);
  }
  used_[name] = true;
  return *found;
}

Weight WeightBinder::matrix(const std::string& name, WeightRole role, std::int64_t rows, std::int64_t columns) {
  return this->rows(name, role, 0, rows, rows, columns);
}

Weight WeightBinder::rows(const std::string& name, WeightRole role, std::int64_t first, std::int64_t rows,
                          std::int64_t total, std::int64_t columns) {
  const std::string key = fmt::format("{}[{}+{}]", name, first, rows);
  if (const auto known = prepared_.find(key); known != prepared_.end()) return known->second;
  const GgufTensor& found = tensor(name, total, columns);
  const std::size_t stride = row_bytes(type_info(found.type), static_cast<std::size_t>(columns));
  const Weight weight = backend_.prepare_weight({.name = name,
                                                 .role = role,
                                                 .type = found.type,
                                                 .rows = rows,
                                                 .columns = columns,
                                                 .data = file_.data(found) + stride * static_cast<std::size_t>(first)});
  prepared_.emplace(key, weight);
  return weight;
}

Weight WeightBinder::vector(const std::string& name, std::int64_t length) {
  return rows(name, WeightRole::vector, 0, 1, 1, length);
}

Weight WeightBinder::vector_part(const std::string& name, std::int64_t first, std::int64_t length, std::int64_t total) {
  const GgufTensor& found = tensor(name, 1, total);
  if (found.type != QuantType::f32) fail(ErrorKind::unsupported, "tensor {} must be F32 to be cut into parts", name);
  return backend_.prepare_weight({.name = name,
                                  .role = WeightRole::vector,
                                  .type = found.type,
                                  .rows = 1,
                                  .columns = length,
                                  .data = file_.data(found) + sizeof(float) * static_cast<std::size_t>(first)});
}

Weight WeightBinder::optional_vector(const std::string& name, std::int64_t length) {
  return has(name) ? vector(name, length) : Weight{};
}

Norm WeightBinder::norm(const NormSpec& spec, const std::string& prefix, std::int64_t length) {
  if (spec.kind == NormKind::none) return {};
  const std::string name = prefix + spec.tensor;
  return {.kind = spec.kind,
          .epsilon = spec.epsilon,
          .weight = vector(name + ".weight", length),
          .bias = optional_vector(name + ".bias", length)};
}

std::vector<double> WeightBinder::values(const std::string& name, std::int64_t length) const {
  const GgufTensor& found = tensor(name, 1, length);
  std::vector<float> decoded(static_cast<std::size_t>(length));
  decode_row(found.type, file_.data(found), decoded.data(), decoded.size());
  return {decoded.begin(), decoded.end()};
}

std::vector<std::string> WeightBinder::unused() const {
  std::vector<std::string> names;
  for (const GgufTensor& found : file_.tensors()) {
    std::string name(found.name);
    if (!used_.contains(name)) names.push_back(std::move(name));
  }
  return names;
}

}  // namespace quarrel
