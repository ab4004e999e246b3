// The weights of one model on the CPU. They keep their quantised form; at load time they are copied into packed panels
// (packed.inl), each share by the worker that will read it, or stay where they lie in the file. Written while the model
// is bound, by one thread; read by every worker afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_device.h"
#include "backend/cpu/shares.h"
#include "base/aligned_buffer.h"

namespace quarrel {

struct PreparedWeight {
  const std::byte* data;
  QuantType type;
  const TypeKernels* kernels;
  bool packed;  // `data` and `places` are panels, in `memory`
  std::size_t rows, columns, row_bytes, row_stride;
  AlignedBuffer memory;
  std::vector<float> decoded;       // vectors only
  std::vector<ExpertPlace> places;  // experts only

  // Some weight rows of `matrix`, which is `data` or an expert's, as a GEMM takes them.
  WeightRows rows_of(const std::byte* matrix, const Share& share) const noexcept {
    return {.data = matrix,
            .type = type,
            .packed = packed,
            .columns = columns,
            .row_stride = row_stride,
            .first = share.first,
            .last = share.last};
  }
};

class CpuWeights {
 public:
  CpuWeights(CpuDevice& device, const BackendOptions& options) : device_(device), options_(options) {}

  // Takes a weight that was checked.
  Weight add(const WeightSource& source);

  const PreparedWeight& operator[](const Weight& weight) const { return weights_[static_cast<std::size_t>(weight.id)]; }
  // The values of a weight of role `vector`; null when there is none.
  const float* vector(const Weight& weight) const { return weight.valid() ? (*this)[weight].decoded.data() : nullptr; }
  // The same; throws Error(internal) unless it has `count` values.
  const float* vector(const Weight& weight, std::size_t count) const;

  // One weight row of a matrix, decoded.
  void decode_row(const Weight& table, std::size_t weight_row, float* values) const;
  // Norms `count` values with the norm's own from `at` on; false if the sum of squares was not finite. `out` may be
  // `in`, and a norm that is none leaves it.
  bool norm_row(const Norm& norm, const float* in, float* out, std::size_t count, std::size_t at = 0) const;

  std::size_t prepared_bytes() const noexcept { return prepared_bytes_; }
  std::size_t released_bytes() const noexcept { return released_bytes_; }
  std::size_t widest_input() const noexcept { return widest_input_; }    // columns of any matrix
  std::size_t widest_output() const noexcept { return widest_output_; }  // weight rows of any but embedding and head

 private:
  bool wants_packing(const WeightSource& source, const TypeKernels& kernels) const;
  void pack(const WeightSource& source, std::span<const ExpertPlace> places, PreparedWeight& weight);

  CpuDevice& device_;
  const BackendOptions& options_;
  std::vector<PreparedWeight> weights_;
  std::size_t prepared_bytes_ = 0;
  std::size_t released_bytes_ = 0;
  std::size_t widest_input_ = 0;
  std::size_t widest_output_ = 0;
};

}  // namespace quarrel
