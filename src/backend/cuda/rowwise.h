// What is computed row by row between the GEMVs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/step_rows.h"

namespace quarrel::cuda {

// True when the code that runs here is that for Hopper, in which kernels wait for the one before. What was made from
// the PTX for older devices does not, and must not be started early.
bool kernels_wait_for_previous();

// angles[row][pair] = magnitude * (cos, sin) of position * frequency: once a step, for all layers. The product is
// reduced in double: at position 30000 an F32 angle would be off by a thousandth.
void rope_angles(const LaunchContext& context, const StepRows& rows, const double* frequencies, int pairs,
                 float magnitude, float* angles);

struct RopeStoreOp {
  StepRows rows = {};
  PagedKv kv = {};
  float* q = nullptr;           // [rows][heads * dim]
  int q_stride = 0;             // from a row to the next; 0: rows follow each other
  const float* q_in = nullptr;  // what is rotated; null: `q` itself, in place
  int q_in_stride = 0;
  const float* k = nullptr;  // [rows][kv heads * dim]
  int k_stride = 0;
  const float* v = nullptr;
  int v_stride = 0;
  int parts = 1;                // of q_in, k and v, to be added up first
  std::size_t part_stride = 0;  // numbers from one to the next
  const float* q_bias = nullptr;
  const float* k_bias = nullptr;
  const float* v_bias = nullptr;
  int heads = 0;
  const float* angles = nullptr;  // null: no rotation
  int pairs = 0;
  bool interleaved = false;
  const float* q_norm = nullptr;  // RMS norm of each head, [dim]; null: none
  const float* k_norm = nullptr;
  float epsilon = 0.0f;
  std::int32_t* first_bad = nullptr;  // [rows]: set to `layer` where a norm's sum is not finite, as SplitInput's
  int layer = 0;
  unsigned long long* saturated = nullptr;  // counts values that F16 could not hold
};

// Norms and rotates the heads of q and k, and stores k and v in the cache; what a GEMM left to do before comes first.
void rope_store(const LaunchContext& context, const RopeStoreOp& op);

// ids[row] = the index of the largest of `count` logits, ties to the lower one; a NaN is never chosen.
void argmax(const LaunchContext& context, const float* logits, int rows, int count, std::int32_t* ids);

}  // namespace quarrel::cuda
