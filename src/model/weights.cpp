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

std::string WeightBinder::present(std::initializer_list<std::string> names) const {
  for (const std::string& name : names) {
    if (has(name)) return name;
  }
  return *names.begin();
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

const GgufTensor& WeightBinder::shaped(const std::string& name, std::initializer_list<TensorShape> shapes) const {
  std::vector<std::string> needed;
  for (const TensorShape& shape : shapes) needed.push_back(fmt::format("[{}]", fmt::join(shape, ", ")));
  const GgufTensor* found = file_.find_tensor(name);
  if (found == nullptr) {
    fail(ErrorKind::bad_file, "the file has no tensor {}; a {} one is needed", name, fmt::join(needed, " or "));
  }
  const auto squeeze = [](auto begin, auto end) {
    TensorShape kept;
    for (; begin != end; ++begin) {
      if (*begin != 1) kept.push_back(static_cast<std::int64_t>(*begin));
    }
    return kept;
  };
  const TensorShape held = squeeze(found->shape.begin(), found->shape.end());
  for (const TensorShape& shape : shapes) {
    if (squeeze(shape.begin(), shape.end()) != held) continue;
    used_[name] = true;
    return *found;
  }
  fail(ErrorKind::bad_file, "tensor {} has the shape [{}], but {} is needed", name,
       fmt::join(found->shape.begin(), found->shape.begin() + found->dimensions, ", "), fmt::join(needed, " or "));
}

std::vector<float> WeightBinder::decoded(const GgufTensor& tensor) const {
  std::vector<float> values(tensor.elements());
  const auto columns = static_cast<std::size_t>(tensor.shape[0]);
  const std::size_t stride = row_bytes(type_info(tensor.type), columns);
  for (std::size_t row = 0; row * columns < values.size(); ++row) {
    decode_row(tensor.type, file_.data(tensor) + row * stride, values.data() + row * columns, columns);
  }
  return values;
}

Weight WeightBinder::prepare_vector(const std::string& name, std::span<const float> values) {
  return backend_.prepare_weight({.name = name,
                                  .role = WeightRole::vector,
                                  .type = QuantType::f32,
                                  .rows = 1,
                                  .columns = static_cast<std::int64_t>(values.size()),
                                  .data = reinterpret_cast<const std::byte*>(values.data())});
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
  release_if_copied(found);
  if (role != WeightRole::vector) shared_bytes_ += stride * static_cast<std::size_t>(rows);
  prepared_.emplace(key, weight);
  return weight;
}

void WeightBinder::release_if_copied(const GgufTensor& tensor) {
  if (backend_.released_bytes() == released_bytes_) return;
  released_bytes_ = backend_.released_bytes();
  file_.release_pages(tensor);
}

Weight WeightBinder::vector(const std::string& name, std::int64_t length) {
  return rows(name, WeightRole::vector, 0, 1, 1, length);
}

Weight WeightBinder::vector_part(const std::string& name, std::int64_t first, std::int64_t length, std::int64_t total) {
  const std::vector<float> values = decoded(tensor(name, 1, total));
  return prepare_vector(name,
                        std::span(values).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(length)));
}

Weight WeightBinder::shaped_vector(const std::string& name, std::initializer_list<TensorShape> shapes,
                                   const std::function<void(std::span<float>)>& change) {
  std::vector<float> values = decoded(shaped(name, shapes));
  if (change) change(values);
  return prepare_vector(name, values);
}

Weight WeightBinder::experts(const std::string& name, WeightRole role, const ExpertShape& shape) {
  const std::string stacked = name + "_exps.weight";
  if (has(stacked) || !has(name + ".0.weight")) return experts_alternating(stacked, role, 0, 1, shape);
  // One tensor an expert, wherever each lies.
  std::vector<ExpertPlace> places;
  QuantType type = QuantType::f32;
  for (std::int64_t expert = 0; expert < shape.experts; ++expert) {
    const std::string own = fmt::format("{}.{}.weight", name, expert);
    const GgufTensor& found = tensor(own, shape.rows, shape.columns);
    if (expert == 0) type = found.type;
    if (found.type != type) {
      fail(ErrorKind::unsupported, "tensor {} is {}, but the experts before it are {}", own, type_info(found.type).name,
           type_info(type).name);
    }
    places.push_back({.data = file_.data(found), .file = file_.file_of(found), .offset = found.offset});
  }
  return prepare_experts(name, role, type, shape, 1, places);
}

Weight WeightBinder::experts_alternating(const std::string& name, WeightRole role, std::int64_t first,
                                         std::int64_t step, const ExpertShape& shape) {
  const GgufTensor& found = shaped(name, {{shape.columns, step * shape.rows, shape.experts}});
  const std::size_t row = row_bytes(type_info(found.type), static_cast<std::size_t>(shape.columns));
  std::vector<ExpertPlace> places;
  for (std::int64_t expert = 0; expert < shape.experts; ++expert) {
    const std::size_t at = row * static_cast<std::size_t>(expert * step * shape.rows + first);
    places.push_back({.data = file_.data(found) + at, .file = file_.file_of(found), .offset = found.offset + at});
  }
  const Weight weight = prepare_experts(name, role, found.type, shape, step, places);
  release_if_copied(found);
  return weight;
}

Weight WeightBinder::prepare_experts(const std::string& name, WeightRole role, QuantType type, const ExpertShape& shape,
                                     std::int64_t step, std::span<const ExpertPlace> places) {
  const std::size_t row = row_bytes(type_info(type), static_cast<std::size_t>(shape.columns));
  expert_bytes_ += row * static_cast<std::size_t>(shape.rows * shape.experts);
  used_expert_bytes_[shape.layer] += row * static_cast<std::size_t>(shape.rows * shape.used);
  return backend_.prepare_weight({.name = name,
                                  .role = role,
                                  .type = type,
                                  .rows = shape.rows,
                                  .columns = shape.columns,
                                  .experts = shape.experts,
                                  .row_stride = row * static_cast<std::size_t>(step),
                                  .places = places,
                                  .layer = shape.layer,
                                  .experts_used = shape.used});
}

std::uint64_t WeightBinder::least_expert_bytes() const noexcept {
  std::uint64_t most = 0;
  for (const auto& [layer, bytes] : used_expert_bytes_) most = std::max(most, bytes);
  return most;
}

Weight WeightBinder::expert_bias(const std::string& name, const ExpertShape& shape) {
  return has(name) ? shaped_vector(name, {{shape.rows, shape.experts}}) : Weight{};
}

Weight WeightBinder::alternating_bias(const std::string& name, std::int64_t first, std::int64_t step,
                                      const ExpertShape& shape) {
  const std::vector<float> all = decoded(shaped(name, {{step * shape.rows, shape.experts}}));
  std::vector<float> own;
  own.reserve(all.size() / static_cast<std::size_t>(step));
  for (auto i = static_cast<std::size_t>(first); i < all.size(); i += static_cast<std::size_t>(step)) {
    own.push_back(all[i]);
  }
  return prepare_vector(name, own);
}

Weight WeightBinder::optional_vector(const std::string& name, std::int64_t length) {
  return has(name) ? vector(name, length) : Weight{};
}

Norm WeightBinder::norm(const NormSpec& spec, const std::string& prefix, std::int64_t length) {
  if (spec.kind == NormKind::none) return {};
  if (spec.tensor.empty()) return {.kind = spec.kind, .epsilon = spec.epsilon};
  const std::string name = prefix + spec.tensor;
  return {.kind = spec.kind,
          .epsilon = spec.epsilon,
          .weight = vector(name + ".weight", length),
          .bias = optional_vector(name + ".bias", length)};
}

std::vector<double> WeightBinder::values(const std::string& name, std::int64_t length) const {
  const std::vector<float> values = decoded(tensor(name, 1, length));
  return {values.begin(), values.end()};
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
