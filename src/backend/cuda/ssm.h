// The stateful middle of a recurrent layer: causal convolution, then a scan that goes from row to row of each sequence.
// A text gives the same bits at once, in chunks and token by token, where the scan is not cut. State is F32 and lies in
// slots. All launches.
#pragma once

#include <cstdint>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/row_ops.h"
#include "backend/cuda/step_rows.h"

namespace quarrel::cuda {

inline constexpr int kMaxConvolutionTaps = 8;
inline constexpr int kMaxScanState = 256;

// One layer's state in the first slot; slots are `slot_stride` numbers apart.
struct SsmState {
  float* convolution = nullptr;  // [taps - 1][channels]: the last inputs, oldest first
  float* scan = nullptr;         // [inner][state]
  std::int64_t slot_stride = 0;
};

// out = silu(sum over taps of weight * input + bias)
struct ConvolveOp {
  StepRuns runs = {};
  SsmState state = {};
  RowSpan in = {};  // its width is the number of channels
  int taps = 0;
  const float* weight = nullptr;  // [channels][taps]
  const float* bias = nullptr;
  float* out = nullptr;
  int out_stride = 0;
};
void convolve(const LaunchContext& context, const ConvolveOp& op);

// state = state * exp(dt A) + dt x B; y = state C + D x, with dt = softplus(dt + dt_bias). Leaves the convolution's
// state too: what it reads has been read.
struct ScanOp {
  StepRuns runs = {};
  SsmState state = {};
  RowSpan convolved = {};  // the convolution's input
  int taps = 0;
  const float* x = nullptr;  // [rows][x_stride], the first `inner` values
  int x_stride = 0;
  const float* b = nullptr;  // [rows][bc_stride], [groups][state]
  const float* c = nullptr;
  int bc_stride = 0;
  const float* dt = nullptr;  // [rows][dt_stride], one a head
  int dt_stride = 0;
  const float* dt_bias = nullptr;  // [heads]
  const float* a = nullptr;        // one a head, or [inner][state] where every channel is a head
  bool has_matrix_a = false;
  const float* d = nullptr;  // [heads]
  int inner = 0;
  int state_size = 0;
  int heads = 0;
  int groups = 1;
  float* y = nullptr;  // [rows][y_stride]
  int y_stride = 0;
  // Runs may be cut into segments that are scanned side by side: first for the states that they end with, were the one
  // they begin with zero, then from the states that follow from these. Other bits than in one piece.
  int segments = 1;
  float* segment_states = nullptr;  // scan_segment_floats()
};
void scan(const LaunchContext& context, const ScanOp& op);

// The same with the convolution before it and the gate after it, in one launch, for runs of a few rows: y becomes
// (state C + D x) * silu(gate), and is normed by groups where that is asked for. Of `scan`, x, B, C and the segments do
// not count.
inline constexpr int kMaxFewScanState = 128;
inline constexpr int kMaxFewScanTaps = 4;
struct FewScanOp {
  ScanOp scan = {};
  const float* weight = nullptr;  // of the convolution: [channels][taps]
  const float* bias = nullptr;
  const float* gate = nullptr;  // [rows][gate_stride]
  int gate_stride = 0;
  int* arrivals = nullptr;  // one for each group of each run, zero before and after
  DeviceNorm norm = {};     // none, or an RMS norm without a bias of each group (can_norm_few)
};
bool can_scan_few(const ScanOp& op);
bool can_norm_few(const LaunchContext& context, const ScanOp& op);
// Once a process and device, before the first scan_few().
void prepare_scan_few(const LaunchContext& context);
void scan_few(const LaunchContext& context, const FewScanOp& op);

// For how many segments there is something to be gained, and what they need. At most kMaxScanSegments a step.
inline constexpr int kMaxScanSegments = 8;
int scan_segments(int runs, int rows);
std::size_t scan_segment_floats(const ScanOp& op);

}  // namespace quarrel::cuda
