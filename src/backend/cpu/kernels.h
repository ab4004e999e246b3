// The kernels of one instruction-set level, as a table of functions. The `.inl` files are compiled once a level, each
// time against another simd_*.h; the cpu_*.cpp files call through the table and contain no intrinsics.
//
// Every kernel computes a row of activations against a weight row by the same sequence of operations whatever the
// batch, so a result never depends on its neighbours.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/bf16_rows.h"
#include "backend/cpu/int8_rows.h"
#include "backend/sampling_kernels.h"
#include "quant/types.h"

namespace quarrel {

inline constexpr std::size_t kVectorFloats = 16;  // of the widest vector

static inline std::size_t padded(std::size_t value, std::size_t step) { return (value + step - 1) / step * step; }

// Weight rows of one matrix, at most as many as a panel has lanes, on their way into a packed panel (packed.inl).
struct PackTask {
  const std::byte* weight_rows = nullptr;  // the first of them
  std::size_t row_stride = 0;              // bytes from a weight row to the next
  std::size_t count = 0;                   // at most panel_rows; the panel's other lanes become zero
  std::size_t columns = 0;
  std::byte* out = nullptr;  // TypeKernels::panel_bytes
};

// Weight rows [first, last) of a matrix, as a GEMM reads them: packed, or as they lie in the file.
struct WeightRows {
  const std::byte* data = nullptr;  // weight row 0 of the matrix
  QuantType type = QuantType::f32;
  bool packed = false;  // as panels; `first` is then the beginning of one
  std::size_t columns = 0;
  std::size_t row_stride = 0;  // bytes from a weight row to the next where they are not packed
  std::size_t first = 0, last = 0;
};

// Where the results of a GEMM go: row r of the activations with weight row w to data[r * stride + w - first].
struct GemmOutput {
  float* data = nullptr;
  std::size_t stride = 0;
};

// out = x · weights^T in three arithmetics. With one row of activations each is a GEMV. `scratch` is of this worker
// alone: gemm_scratch_bytes(columns), or CpuKernels::amx_scratch_bytes for what runs on AMX tiles.

struct F32Gemm {
  WeightRows weights = {};
  const float* x = nullptr;  // [rows][x_stride]
  std::size_t x_stride = 0;
  const std::uint32_t* row_index = nullptr;  // which row of `x` each row is; null: one after the other
  std::size_t rows = 0;
  GemmOutput out = {};
  std::byte* scratch = nullptr;
};

struct Int8Gemm {
  WeightRows weights = {};
  const Int8Rows* x = nullptr;
  std::size_t first_row = 0;  // of `x`; may be any
  std::size_t rows = 0;
  bool split = false;  // nearly every group has a low part too
  GemmOutput out = {};
  std::byte* scratch = nullptr;
};

struct Bf16Gemm {
  WeightRows weights = {};
  const Bf16Rows* x = nullptr;
  std::size_t first_row = 0;  // where row 0 would lie in `x`: the beginning of a tile
  std::size_t skipped = 0;    // rows before the first that is wanted: left alone
  std::size_t rows = 0;
  bool pairs = false;  // both numbers of each value count
  GemmOutput out = {};
  std::byte* scratch = nullptr;
};

// Of unpacked panels that stay in the second-level cache together.
inline constexpr std::size_t kUnpackedBytes = 256 * 1024;

std::size_t gemm_scratch_bytes(std::size_t columns);

// What a level has for one weight type; null where it has nothing.
struct TypeKernels {
  // What a packed panel takes: the bytes of its weight rows, all of them. Null: this type is read where it lies.
  std::size_t (*panel_bytes)(std::size_t columns) = nullptr;
  void (*pack)(const PackTask& task) = nullptr;
  // One lane of a panel, dequantised: a weight row.
  void (*decode_packed)(const std::byte* panel, std::size_t lane, std::size_t columns, float* values) = nullptr;
  void (*gemm_f32)(const F32Gemm& task) = nullptr;  // never null
  void (*gemm_int8)(const Int8Gemm& task) = nullptr;
  // On AMX tiles. The first is bit for bit what gemm_int8 gives, and faster for a tile of rows and more.
  void (*gemm_int8_amx)(const Int8Gemm& task) = nullptr;
  void (*gemm_bf16_amx)(const Bf16Gemm& task) = nullptr;
};

inline constexpr std::int32_t kKvBlock = 16;           // positions in a KV block
inline constexpr std::int32_t kAttendStep = 64;        // positions a step of the online softmax
inline constexpr std::int32_t kAttendPartition = 256;  // positions whose sums are made alone, then joined in order
inline constexpr std::int32_t kAttendRows = 32;        // rows that may share a reading of keys and values
inline constexpr std::int32_t kAttendQueries = 48;     // the same in rows times query heads, for more than one row

// Attention of some rows of one sequence, for the query heads that share one key-value head. A query is one head of one
// row; query r * query_heads + h is head h of row r. A KV block holds a head's keys by dimension,
// [key_dim][kKvBlock], so that a vector is one dimension of neighbouring positions; then its values by position,
// [kKvBlock][value_dim].
struct AttendTask {
  const float* q = nullptr;  // [rows][query_heads][key_dim], rows `q_stride` apart
  std::size_t q_stride = 0;
  float* out = nullptr;  // [rows][query_heads][value_dim], rows `out_stride` apart
  std::size_t out_stride = 0;
  std::int32_t rows = 1;
  std::int32_t query_heads = 1;
  std::int32_t key_dim = 0;
  std::int32_t value_dim = 0;
  bool f16 = false;                         // the cache holds F16, else F32
  const std::byte* base = nullptr;          // this layer's and head's keys in KV block 0
  std::size_t kv_block_bytes = 0;           // from a KV block to the next
  const std::int32_t* kv_blocks = nullptr;  // the sequence's table
  const std::int32_t* begins = nullptr;     // [rows]: a row sees positions [begin, end), at least one
  const std::int32_t* ends = nullptr;
  float scale = 1.0f;
  float soft_cap = 0.0f;
  const float* sinks = nullptr;  // [query_heads], or null
  float* scratch = nullptr;      // attend_scratch_floats of this task, of this worker alone
};

// What attention over some positions leaves of each query: sums of values [queries][padded value_dim], the largest
// score [queries], the sum of weights [queries].
static inline std::size_t attend_state_floats(std::size_t queries, std::size_t value_dim) {
  return padded(queries * (padded(value_dim, kVectorFloats) + 2), kVectorFloats);
}

static inline std::size_t attend_scratch_floats(std::size_t queries, std::size_t key_dim, std::size_t value_dim) {
  const std::size_t step = kAttendStep;
  return padded(queries * key_dim, kVectorFloats) + queries * step +
         step * (key_dim + padded(value_dim, kVectorFloats)) + 2 * attend_state_floats(queries, value_dim);
}

inline constexpr std::size_t kSsmStrip = 64;  // channels a piece of a convolution or of a scan by channels

// The causal convolution and SiLU of up to kSsmStrip channels of one sequence. What comes before its first row lies in
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
  const float* history = nullptr;  // [taps - 1][kSsmStrip], padded with zeros like the two below
  const float* weights = nullptr;  // [taps][kSsmStrip]
  const float* bias = nullptr;     // [kSsmStrip]
};

// The selective scan, D and the gate of some channels of one sequence: state = state * exp(dt A) + dt x B, and
// out = (state · C + D x) * silu(z). Pointers are to row 0 of the step, rows lie a stride apart.
struct ScanTask {
  const std::int32_t* rows = nullptr;  // of the sequence, in the order of time
  std::size_t count = 0;
  std::size_t dim = 0;    // channels; at most kSsmStrip of them by scan_channels
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

// What AMX adds to AVX-512.
struct AmxKernels {
  TypeKernels types[kTypeCount] = {};  // the last two functions
  std::size_t (*scratch_bytes)(std::size_t columns) = nullptr;
  void (*to_bf16_row)(const float* values, std::size_t count, const Bf16Rows& rows, std::size_t row,
                      bool with_low) = nullptr;
};

struct CpuKernels {
  const char* name;
  std::size_t panel_rows;
  TypeKernels types[kTypeCount];  // in the order of type_list.h
  const TypeKernels& of(QuantType type) const noexcept;
  // A group of columns has a low part if its largest value is at least `threshold` times the row's root mean square.
  void (*quantize_row)(const float* values, std::size_t count, const Int8Rows& rows, std::size_t row, float threshold);
  // `with_low`: the second number too. Null where the level has no AMX tiles, as is the next.
  void (*to_bf16_row)(const float* values, std::size_t count, const Bf16Rows& rows, std::size_t row, bool with_low);
  std::size_t (*amx_scratch_bytes)(std::size_t columns);
  void (*attend)(const AttendTask& task);
  // The same in pieces: the sums of each partition that any of the rows sees, all of them joined to `whole` in
  // ascending order, and the end. A row's first partition begins `whole`, which needs no initial value.
  void (*attend_partition)(const AttendTask& task, std::int32_t partition, float* state);
  void (*attend_join)(const AttendTask& task, std::int32_t partition, float* state, float* whole);
  void (*attend_finish)(const AttendTask& task, float* whole);
  void (*exponential)(float* values, std::size_t count);  // of values up to 0, as attention does it
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
  // The same into every `stride`-th place.
  std::uint64_t (*store_half_apart)(const float* values, std::uint16_t* out, std::size_t count, std::size_t stride);
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
const AmxKernels& amx_kernels() noexcept;

}  // namespace quarrel
