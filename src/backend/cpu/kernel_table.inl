// Gathers a level's kernels. A kernels_*.cpp file includes its simd header, then this; what it compiles lies in the
// level's own namespace and uses no templates of the standard library, so that no code for a newer processor can be
// picked by the linker where an older one runs.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels.h"
#include "quant/blocks.h"
#include "quant/iq_codes.h"

namespace quarrel {
// As quant/decode.h declares it; that header's inline conversions must not be compiled with this level's flags.
void decode_row(QuantType type, const std::byte* source, float* values, std::size_t weights) noexcept;
}  // namespace quarrel

// clang-format off: each stands on those before it.
#include "backend/cpu/math.inl"
#include "backend/cpu/packed.inl"
#include "backend/cpu/packed_bits.inl"
#include "backend/cpu/packed_codebooks.inl"
#include "backend/cpu/unpacked_panels.inl"
#include "backend/cpu/float_panels.inl"
#include "backend/cpu/gemm_f32.inl"
#include "backend/cpu/gemm_int8.inl"
#include "backend/cpu/attention.inl"
#include "backend/cpu/rowwise.inl"
#include "backend/cpu/activations.inl"
#include "backend/cpu/vocabulary.inl"
#include "backend/cpu/ssm.inl"
// clang-format on

namespace quarrel::QUARREL_LEVEL {

static constexpr CpuKernels make_table(const char* name) {
  return {.name = name,
          .panel_rows = kPanelRows,
          .types =
              {
#define QUARREL_TYPE(type, number, name, Block) type_kernels<QuantType::type, Block>(),
                  QUARREL_WEIGHT_TYPES(QUARREL_TYPE)
#undef QUARREL_TYPE
              },
          .quantize_row = quantize_row,
          .to_bf16_row = nullptr,
          .amx_scratch_bytes = nullptr,
          .attend = attend,
          .attend_partition = attend_partition,
          .attend_join = attend_join,
          .attend_finish = attend_finish,
          .exponential = exponential_row,
          .rms_norm = rms_norm,
          .layer_norm = layer_norm,
          .add = add_row,
          .add_scaled = add_scaled,
          .silu = silu,
          .gelu_tanh = gelu_tanh,
          .gelu_erf = gelu_erf,
          .relu_squared = relu_squared,
          .multiply = multiply,
          .swiglu = swiglu,
          .geglu_tanh = geglu_tanh,
          .geglu_erf = geglu_erf,
          .reglu_squared = reglu_squared,
          .swiglu_clamped = swiglu_clamped,
          .soft_cap = soft_cap,
          .softmax = softmax,
          .rotate_half = rotate_half,
          .rotate_interleaved = rotate_interleaved,
          .store_half = store_half_row,
          .store_half_apart = store_half_apart,
          .load_half = load_half_row,
          .convolve = convolve,
          .softplus = softplus_row,
          .scan_head = scan_head,
          .scan_channels = scan_channels,
          .sampling = {.largest = largest_logit, .next_above = next_above, .sum_exponentials = sum_exponentials}};
}

}  // namespace quarrel::QUARREL_LEVEL
