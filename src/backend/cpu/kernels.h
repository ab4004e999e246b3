// The kernels of one instruction-set level, as a table of functions. The `.inl` files are compiled once a level, each
// time against another simd_*.h; cpu_backend.cpp calls through the table and contains no intrinsics.
//
// Every kernel computes a row of activations against a row of weights by the same sequence of operations whatever the
// batch, so a result never depends on its neighbours.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/sampling_kernels.h"
#include "quant/types.h"

namespace quarrel {

// Activations as int8 digits with a scale every 32 values: value ≈ scale * (256 * high + low) / 256, where rows of one
// digit have no low part. Rows are padded with zeros to whole vectors; scales and sums are kept for groups of 32 and,
// repeated, of 16, because some weight types change scale that often.
struct QuantizedRows {
  std::int8_t* high = nullptr;  // [rows][stride]
  std::int8_t* low = nullptr;   // [rows][stride]; for rows of two digits
  float* scales32 = nullptr;    // [rows][groups32]: what an integer dot is multiplied by
  float* sums32 = nullptr;      // [rows][groups32]: the sum of the group's values
  float* scales16 = nullptr;    // [rows][groups16]
  float* sums16 = nullptr;
  std::size_t stride = 0;
  std::size_t groups32 = 0;
  std::size_t groups16 = 0;
};

inline constexpr std::size_t kRowPadding = 64;    // values: the widest vector of bytes
inline constexpr std::size_t kGroupPadding = 16;  // floats: the widest vector of floats

static inline std::size_t padded(std::size_t value, std::size_t step) { return (value + step - 1) / step * step; }

// One product: rows [first, last) of a weight matrix with all rows of activations.
struct MatmulTask {
  const std::byte* weights = nullptr;  // row 0 of the matrix
  QuantType type = QuantType::f32;
  std::size_t columns = 0;
  std::size_t row_bytes = 0;
  std::size_t row_stride = 0;  // bytes from a row to the next; 0: rows follow each other
  std::size_t first = 0, last = 0;
  const QuantizedRows* quantized = nullptr;  // for integer arithmetic
  const float* plain = nullptr;              // [rows][plain_stride], for F32 arithmetic
  std::size_t plain_stride = 0;
  const std::uint32_t* row_index = nullptr;  // which of the activations' rows each row is; null: the first ones
  std::size_t two_digit_rows = 0;            // how many, from the first; the others have one
  std::size_t rows = 0;
  float* out = nullptr;  // out[row * out_stride + weight row]
  std::size_t out_stride = 0;
  std::byte* scratch = nullptr;  // matmul_scratch_bytes(columns), of this worker alone
};

std::size_t matmul_scratch_bytes(std::size_t columns);

// One row's attention for the query heads that share one key-value head.
struct AttendTask {
  const float* q = nullptr;  // [group][key_dim]
  float* out = nullptr;      // [group][value_dim]
  std::int32_t group = 1;
  std::int32_t key_dim = 0;
  std::int32_t value_dim = 0;
  bool half = false;                     // the cache holds F16, else F32
  const std::byte* base = nullptr;       // this layer's and head's keys in block 0
  std::size_t block_bytes = 0;           // from a block to the next
  const std::int32_t* blocks = nullptr;  // the sequence's table
  std::int32_t begin = 0, end = 0;       // positions seen: [begin, end)
  float scale = 1.0f;
  float soft_cap = 0.0f;
  const float* sinks = nullptr;  // [group], or null
  float* scratch = nullptr;      // attend_scratch_bytes(group, key_dim + value_dim), of this worker alone
};

std::size_t attend_scratch_bytes(std::size_t group, std::size_t dims);

inline constexpr std::int32_t kAttendBlock = 16;  // positions a step of the online softmax: a block of the cache

inline constexpr std::size_t kSsmBlock = 64;  // channels a piece of a convolution or of a scan by channels

// The causal convolution and SiLU of up to kSsmBlock channels of one sequence. What comes before its first row lies in
// `history`, oldest first.
struct ConvTask {
  const float* in = nullptr;  // the first channel in row 0; rows of the step lie `in_stride` apart
  std::size_t in_stride = 0;
  float* out = nullptr;  // the same
  std::size_t out_stride = 0;
  const std::int32_t* rows = nullptr;  // of the sequence, in the order of time
  std::size_t count = 0;
  std::size_t channels = 0;
  std::size_t taps = 1;
  const float* history = nullptr;  // [taps - 1][kSsmBlock], padded with zeros like the two below
  const float* weights = nullptr;  // [taps][kSsmBlock]
  const float* bias = nullptr;     // [kSsmBlock]
};

// The selective scan, D and the gate of some channels of one sequence: state = state * exp(dt A) + dt x B, and
// out = (state · C + D x) * silu(z). Pointers are to row 0 of the step, rows lie a stride apart.
struct ScanTask {
  const std::int32_t* rows = nullptr;  // of the sequence, in the order of time
  std::size_t count = 0;
  std::size_t dim = 0;    // channels; at most kSsmBlock of them by scan_channels
  std::size_t state = 0;  // values a channel
  const float* x = nullptr;
  std::size_t x_stride = 0;
  const float* b = nullptr;
  const float* c = nullptr;
  std::size_t shared_stride = 0;  // of b and c
  const float* dt = nullptr;      // scan_head: one number after softplus; scan_channels: [dim] before bias and softplus
  std::size_t dt_stride = 0;
  const float* dt_bias = nullptr;  // scan_channels: [dim], or null
  const float* z = nullptr;
  std::size_t z_stride = 0;
  float* out = nullptr;
  std::size_t out_stride = 0;
  const float* a = nullptr;  // scan_head: one; scan_channels: [dim][state]
  const float* d = nullptr;  // scan_head: one; scan_channels: [dim]; null: none
  float* values = nullptr;   // the state, [dim][state]: read and left as it is after the last row
};

struct CpuKernels {
  const char* name;
  bool (*has_integer_kernel)(QuantType type);
  void (*quantize_row)(const float* values, std::size_t count, const QuantizedRows& rows, std::size_t row,
                       bool two_digits);
  void (*matmul)(const MatmulTask& task);
  void (*attend)(const AttendTask& task);
  // Both return the sum of squares they divided by, so that the caller sees numbers that are not finite.
  float (*rms_norm)(const float* in, const float* weight, float* out, std::size_t count, float epsilon);
  float (*layer_norm)(const float* in, const float* weight, const float* bias, float* out, std::size_t count,
                      float epsilon);
  void (*add)(float* values, const float* more, std::size_t count);                      // values += more
  void (*add_scaled)(float* values, const float* more, float scale, std::size_t count);  // values += scale * more
  void (*silu)(float* values, std::size_t count);
  void (*gelu_tanh)(float* values, std::size_t count);
  void (*gelu_erf)(float* values, std::size_t count);
  void (*relu_squared)(float* values, std::size_t count);
  void (*multiply)(float* values, const float* factors, std::size_t count);
  // gate = activation(gate) * up, with SiLU, the two GELUs and the squared ReLU.
  void (*swiglu)(float* gate, const float* up, std::size_t count);
  void (*geglu_tanh)(float* gate, const float* up, std::size_t count);
  void (*geglu_erf)(float* gate, const float* up, std::size_t count);
  void (*reglu_squared)(float* gate, const float* up, std::size_t count);
  // gate = g * sigmoid(alpha * g) * (u + 1), where g is gate up to `clamp` and u is up within ±clamp.
  void (*swiglu_clamped)(float* gate, const float* up, float clamp, float alpha, std::size_t count);
  void (*soft_cap)(float* values, float scale, float cap, std::size_t count);  // cap 0: only scale
  void (*softmax)(float* values, std::size_t count);
  void (*rotate_half)(float* head, const float* cosines, const float* sines, std::size_t pairs);
  void (*rotate_interleaved)(float* head, const float* cosines, const float* sines, std::size_t pairs);
  // Returns how many values were clamped to ±65504.
  std::uint64_t (*store_half)(const float* values, std::uint16_t* out, std::size_t count);
  void (*load_half)(const std::uint16_t* halves, float* out, std::size_t count);
  void (*convolve)(const ConvTask& task);
  // out = log(1 + e^(values + bias)); the bias may be null.
  void (*softplus)(const float* values, const float* bias, float* out, std::size_t count);
  void (*scan_head)(const ScanTask& task);      // one dt and one A for all channels (version 2)
  void (*scan_channels)(const ScanTask& task);  // a dt a channel, an A a value of the state (version 1)
  SamplingKernels sampling;
};

const CpuKernels& scalar_kernels() noexcept;
const CpuKernels& avx2_kernels() noexcept;
const CpuKernels& avx512_kernels() noexcept;

}  // namespace quarrel
