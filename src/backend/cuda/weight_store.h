// A model's weights in device memory: quantised matrices in the packed order of weight_format.h, F32 and F16 ones as
// they are, every other type decoded to F16, vectors in F32. Where the plan of the model's memory allows it, packed
// matrices have a mirror in F16 beside them for prompts and large batches. Used by the backend alone; one thread at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/dense_gemm.h"
#include "backend/cuda/dense_gemv.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/upload.h"
#include "backend/cuda/weight_format.h"

namespace quarrel::cuda {

struct StoredWeight {
  enum class Form : std::uint8_t { vector, packed, dense };
  Form form = Form::vector;
  DeviceBuffer memory = {};
  PackedMatrix packed = {};            // of form packed
  DenseMatrix dense = {};              // of form dense
  const std::uint16_t* f16 = nullptr;  // [rows][columns]: the mirror, or a dense matrix itself; null: there is none
  const float* values = nullptr;       // of form vector
  std::size_t mirror_at = 0;           // where in the mirrors' memory; of form packed
  bool has_mirror = false;
  // Of experts: matrices like the one above, the first of them, one behind the other.
  int experts = 1;
  std::size_t expert_bytes = 0;
};

class WeightStore {
 public:
  struct Options {
    int device = 0;
    bool mirrors = true;
    bool plan_only = false;
    std::function<void(std::uint64_t)> on_uploaded = {};  // with released_bytes() so far
  };
  explicit WeightStore(Options options);

  // Throws Error(unsupported) for what no kernel takes, naming the weight, and Error(out_of_memory).
  Weight add(const WeightSource& source);
  // After the last weight: mirrors are made, and everything has arrived.
  void finish(const LaunchContext& context);

  // Throws Error(internal) where there is no such weight.
  const StoredWeight& operator[](const Weight& weight) const;
  // A vector's values; null when there is none. `count` is how many the op needs.
  const float* vector_of(const Weight& weight, int count) const;

  // The shapes of the matrices in 16 bits that layers multiply with, each once and without tokens; and where such
  // numbers lie, as many as the largest of them has.
  std::vector<GemmShape> gemm_shapes() const;
  // Whether cuBLASLt can multiply with it as it is: a matrix in F32.
  bool can_multiply_floats(const StoredWeight& weight) const noexcept {
    const DenseMatrix& matrix = weight.dense;
    return weight.form == StoredWeight::Form::dense && weight.experts == 1 && !matrix.is_f16 && matrix.rows % 4 == 0 &&
           matrix.columns % 4 == 0;
  }
  const std::uint16_t* any_halves() const noexcept { return mirrors_.as<std::uint16_t>(); }

  std::size_t prepared_bytes() const noexcept;
  std::size_t released_bytes() const noexcept { return released_bytes_; }
  std::size_t mirror_bytes() const noexcept { return options_.mirrors ? mirror_bytes_ : 0; }
  // Values beyond the range of F16 that became its largest number.
  std::uint64_t saturated() const noexcept { return saturated_; }
  int widest_input() const noexcept { return widest_input_; }
  int widest_output() const noexcept { return widest_output_; }  // of all but embeddings and heads
  // Of a row's experts: the numbers that one has going in or out at most, and how many there are; 0: the model has
  // none.
  int widest_expert() const noexcept { return widest_expert_; }
  int experts_used() const noexcept { return experts_used_; }
  int most_experts() const noexcept { return most_experts_; }
  // The layers that have experts, and how many the one at `index` of them has.
  const std::vector<std::int32_t>& expert_layers() const noexcept { return expert_layers_; }
  int experts_of_layer(std::size_t index) const { return layer_experts_[index]; }
  // Numbers of the largest packed matrix, where there are no mirrors: it is decoded before each large GEMM.
  std::size_t decoded_numbers() const noexcept { return options_.mirrors ? 0 : largest_packed_; }

 private:
  void note_layer(const WeightSource& source);
  void add_packed(const WeightSource& source, WeightFormat format, StoredWeight& weight);
  void add_dense(const WeightSource& source, StoredWeight& weight);
  void upload_packed(const WeightSource& source, const PackedMatrix& target, const std::byte* rows);
  void upload_dense(const WeightSource& source, const std::byte* rows, std::byte* target);
  void add_vector(const WeightSource& source, StoredWeight& weight);
  void upload_as_f16(const WeightSource& source, const std::byte* rows, std::byte* target);
  DeviceBuffer allocate(std::size_t bytes, const char* purpose);
  WeightUploader& uploader();

  Options options_;
  std::unique_ptr<WeightUploader> uploader_;
  std::vector<StoredWeight> weights_;
  DeviceBuffer mirrors_;
  std::size_t mirror_bytes_ = 0;
  std::size_t largest_packed_ = 0;
  std::size_t prepared_bytes_ = 0;
  std::size_t released_bytes_ = 0;
  int widest_input_ = 0;
  int widest_output_ = 0;
  int widest_expert_ = 0;
  int experts_used_ = 0;
  int most_experts_ = 0;
  std::vector<std::int32_t> expert_layers_;
  std::vector<int> layer_experts_;  // how many each of them has
  std::uint64_t saturated_ = 0;
};

}  // namespace quarrel::cuda
