// GEMV: up to 16 rows with quantised matrices, on the integer tensor cores: what generated rows take.
//
// Weights are the 16-row operand, so one reading of them serves all rows. Activations are split into hi and lo int8
// (activation_split.h). A dot product within a group of 32 columns is an exact integer; groups are added in F32, in an
// order that depends on the matrix's shape alone: a row's bits do not depend on how many rows there are.
#pragma once

#include "backend/cuda/activation_split.h"
#include "backend/cuda/dense_gemv.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/step_rows.h"
#include "backend/cuda/weight_format.h"
#include "backend/ops.h"

namespace quarrel::cuda {

inline constexpr int kMaxGemvMatrices = 3;
// Up to so many rows each thread block norms and splits the input itself; more are split by a kernel before.
inline constexpr int kMaxFusedSplitRows = 2;

enum class GemvOutput : std::uint8_t {
  store,  // out = value
  add,    // out += scale * value: a residual
  glu,    // out = activation(value of the first matrix) * value of the second
  qkv,    // three matrices: q is rotated and stored, k is rotated, k and v go to the cache
};

// Where the heads of q, k and v go.
struct QkvOutput {
  StepRows rows = {};
  PagedKv kv = {};
  const float* angles = nullptr;  // [rows][pairs] of cosine and sine (rope_angles); null: no rotation
  int pairs = 0;
  bool half_split = false;  // the two of a pair lie half a head apart; pairs = dim / 2, a power of two, at least a tile
  unsigned long long* saturated = nullptr;  // counts values that F16 could not hold
};

struct GemvMatrix {
  PackedMatrix weight = {};
  DenseMatrix halves = {};      // for half_gemv() instead: F16
  const float* bias = nullptr;  // [rows]
  float* out = nullptr;         // [input rows][stride]
  int stride = 0;
};

// Matrices that share an input are one launch; their types may differ, but not those of a glu.
struct GemvOp {
  const char* name = "gemv";
  SplitInput input = {};
  // Rows that are split already, with room for gemv_rows(); null: the kernel splits `input` itself, which it does for
  // kMaxFusedSplitRows at most.
  const std::byte* split = nullptr;
  GemvMatrix matrices[kMaxGemvMatrices] = {};
  int matrix_count = 1;
  GemvOutput output = GemvOutput::store;
  float scale = 1.0f;
  ActivationKind activation = ActivationKind::silu;
  QkvOutput qkv = {};
  // The kernel before has few blocks (attention, embedding), not one for every multiprocessor as those here.
  bool follows_small_kernel = false;
};

// Once a process and device, before the first gemv().
void prepare_gemv(const LaunchContext& context);

// The rows that the op's kernel is for: usually those of the input, rounded up. Where single rows are too long for a
// block's shared memory, which may be 99 KiB, more, since those kernels can take a row in phases.
int gemv_rows(const LaunchContext& context, const GemvOp& op);

void gemv(const LaunchContext& context, const GemvOp& op);

// Whether a thread block's shared memory has room for all of its rows in one launch.
bool gemv_has_room(const LaunchContext& context, const GemvOp& op);

// The op for some of its rows.
GemvOp part_of(const GemvOp& op, int first, int count);

// How many of its rows a launch can take: all, or as many as a thread block's shared memory has room for.
int rows_of_a_launch(const LaunchContext& context, const GemvOp& op);

// The whole op in as many launches as it takes, with its rows split before them where they are many, into `split`
// (split_bytes() of them).
void gemv_in_parts(const LaunchContext& context, const GemvOp& op, std::byte* split);

}  // namespace quarrel::cuda
