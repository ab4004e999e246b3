// Binds a file's tensors to a backend's weights: found by name, checked against the shape the spec expects, prepared
// once. A fused tensor (q, k and v in one) is cut into views of its rows, so that blocks see one form.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "gguf/file.h"
#include "model/spec.h"

namespace quarrel {

class WeightBinder {
 public:
  WeightBinder(const GgufFile& file, Backend& backend) : file_(file), backend_(backend) {}

  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }
  std::int64_t rows_of(const std::string& name) const;  // 0 when absent

  // [rows][columns]. Throws Error(bad_file) with the tensor's name, what was expected and what the file holds.
  Weight matrix(const std::string& name, WeightRole role, std::int64_t rows, std::int64_t columns);
  // Rows [first, first + rows) of a tensor with `total` rows.
  Weight rows(const std::string& name, WeightRole role, std::int64_t first, std::int64_t rows, std::int64_t total,
              std::int64_t columns);
  Weight vector(const std::string& name, std::int64_t length);
  Weight vector_part(const std::string& name, std::int64_t first, std::int64_t length, std::int64_t total);
  Weight optional_vector(const std::string& name, std::int64_t length);
  Norm norm(const NormSpec& spec, const std::string& prefix, std::int64_t length);

  // Decoded to double, for tables that the host computes with (rope factors).
  std::vector<double> values(const std::string& name, std::int64_t length) const;

  // Tensors of the file that nobody asked for: a file with more than we understand is suspicious.
  std::vector<std::string> unused() const;

 private:
  const GgufTensor& tensor(const std::string& name, std::int64_t rows, std::int64_t columns) const;

  const GgufFile& file_;
  Backend& backend_;
  std::unordered_map<std::string, Weight> prepared_;  // by name and row range: tied tensors are prepared once
  mutable std::unordered_map<std::string, bool> used_;
};

}  // namespace quarrel
