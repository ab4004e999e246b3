// Binds a file's tensors to a backend's weights: found by name, checked against the shape the spec expects, prepared
// once. A fused tensor (q, k and v in one) is cut into views of its rows, so that blocks see one form.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "gguf/file.h"
#include "model/spec.h"

namespace quarrel {

// Dimensions, innermost first, without those of size one.
using TensorShape = std::vector<std::int64_t>;

// A stack of equal matrices.
struct ExpertShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t experts = 0;
  std::int32_t used = 0;  // how many of them a token goes to
  std::int32_t layer = 0;
};

class WeightBinder {
 public:
  WeightBinder(const GgufFile& file, Backend& backend) : file_(file), backend_(backend) {}

  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }
  std::int64_t rows_of(const std::string& name) const;  // 0 when absent
  // The first of several names that the file has; the first of all when it has none.
  std::string present(std::initializer_list<std::string> names) const;

  // [rows][columns]. Throws Error(bad_file) with the tensor's name, what was expected and what the file holds.
  Weight matrix(const std::string& name, WeightRole role, std::int64_t rows, std::int64_t columns);
  // Rows [first, first + rows) of a tensor with `total` rows.
  Weight rows(const std::string& name, WeightRole role, std::int64_t first, std::int64_t rows, std::int64_t total,
              std::int64_t columns);
  Weight vector(const std::string& name, std::int64_t length);
  Weight vector_part(const std::string& name, std::int64_t first, std::int64_t length, std::int64_t total);
  Weight optional_vector(const std::string& name, std::int64_t length);
  // A vector whose tensor may have any of these shapes; `change` rewrites the values before they are handed on.
  Weight shaped_vector(const std::string& name, std::initializer_list<TensorShape> shapes,
                       const std::function<void(std::span<float>)>& change = {});

  // All experts of NAME: the tensor NAME_exps.weight, or tensors NAME.0.weight, NAME.1.weight …
  Weight experts(const std::string& name, WeightRole role, const ExpertShape& shape);
  // Rows first, first + step, … of each matrix of a stack whose matrices have step * rows rows.
  Weight experts_alternating(const std::string& name, WeightRole role, std::int64_t first, std::int64_t step,
                             const ExpertShape& shape);
  // [experts][rows], or nothing where the file has none.
  Weight expert_bias(const std::string& name, const ExpertShape& shape);
  Weight alternating_bias(const std::string& name, std::int64_t first, std::int64_t step, const ExpertShape& shape);

  Norm norm(const NormSpec& spec, const std::string& prefix, std::int64_t length);

  // Decoded to double, for tables that the host computes with (rope factors).
  std::vector<double> values(const std::string& name, std::int64_t length) const;

  // Bytes of the file's matrices that were bound: those of experts, and all others.
  std::uint64_t expert_bytes() const noexcept { return expert_bytes_; }
  std::uint64_t shared_bytes() const noexcept { return shared_bytes_; }
  // Of the experts that one token needs in the layer where they are largest.
  std::uint64_t least_expert_bytes() const noexcept;

  // Tensors of the file that nobody asked for: a file with more than we understand is suspicious.
  std::vector<std::string> unused() const;

 private:
  const GgufTensor& tensor(const std::string& name, std::int64_t rows, std::int64_t columns) const;
  const GgufTensor& shaped(const std::string& name, std::initializer_list<TensorShape> shapes) const;
  std::vector<float> decoded(const GgufTensor& tensor) const;
  Weight prepare_vector(const std::string& name, std::span<const float> values);
  Weight prepare_experts(const std::string& name, WeightRole role, QuantType type, const ExpertShape& shape,
                         std::int64_t step, std::span<const ExpertPlace> places);

  const GgufFile& file_;
  Backend& backend_;
  std::uint64_t expert_bytes_ = 0;
  std::unordered_map<std::int32_t, std::uint64_t> used_expert_bytes_;  // by layer
  // The file's pages of a tensor that the backend has copied need not stay in memory.
  void release_if_copied(const GgufTensor& tensor);

  std::uint64_t shared_bytes_ = 0;
  std::size_t released_bytes_ = 0;                    // what the backend said last
  std::unordered_map<std::string, Weight> prepared_;  // by name and row range: tied tensors are prepared once
  mutable std::unordered_map<std::string, bool> used_;
};

}  // namespace quarrel
