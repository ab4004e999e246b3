// A thread block has 32 channels of a run and goes through its rows. What it needs of the convolution it computes
// itself: x of its channels, B and C of their group. Everything that the kernel before does not write is asked for
// before the wait: the state, the convolution's last inputs, all weights. Where groups are normed, the blocks of a
// group are a cluster and tell each other their sums of squares.
#include "backend/cuda/launch.cuh"
#include "backend/cuda/primitives.cuh"
#include "backend/cuda/scan_state.cuh"
#include "backend/cuda/ssm.h"

namespace quarrel::cuda {
namespace {

constexpr int kThreads = kScanChannels * kScanLanes;
constexpr int kShare = kMaxFewScanState / kScanLanes;  // numbers of a channel's state in a thread
constexpr int kTaps = kMaxFewScanTaps;
constexpr int kMostBlocksOfGroup = 16;                            // that can be a cluster
constexpr int kConvolved = kScanChannels + 2 * kMaxFewScanState;  // channels of the convolution in a block, at most
constexpr int kOwn = (kConvolved + kThreads - 1) / kThreads;      // of a thread

// One channel of the convolution: its weights and the inputs that it sees, the newest one last. Where there are fewer
// taps than room for them, the first weights and inputs are zeros.
struct Convolution {
  int channel = -1;     // -1: the thread has none
  bool is_own = false;  // no other block has it too
  float* target = nullptr;
  float weights[kTaps] = {};
  float window[kTaps] = {};
  float bias = 0.0f;

  __device__ void begin(const FewScanOp& op, const StepRun& run, int of_channel, bool own, float* to) {
    channel = of_channel;
    is_own = own;
    target = to;
    const ScanOp& scan = op.scan;
    if (op.bias != nullptr) bias = op.bias[channel];
    const float* state = scan.state.convolution + run.state_in * scan.state.slot_stride + channel;
#pragma unroll
    for (int i = 0; i < kTaps; ++i) {
      const int tap = i - (kTaps - scan.taps);
      if (tap < 0) continue;
      weights[i] = op.weight[channel * scan.taps + tap];
      // Inputs move on when a row comes: the last place is free.
      if (tap > 0 && run.state_in >= 0) window[i] = state[static_cast<std::size_t>(tap - 1) * scan.convolved.width];
    }
  }
  __device__ void next(float input) {
#pragma unroll
    for (int i = 1; i + 1 < kTaps; ++i) window[i - 1] = window[i];
    window[kTaps - 2] = window[kTaps - 1];
    window[kTaps - 1] = input;
    float sum = bias;
#pragma unroll
    for (int i = 0; i < kTaps; ++i) sum = fmaf(window[i], weights[i], sum);
    *target = sum / (1.0f + expf(-sum));
  }
  __device__ void store(const ScanOp& scan, int slot) const {
    float* to = scan.state.convolution + slot * scan.state.slot_stride + channel;
#pragma unroll
    for (int i = 1; i < kTaps; ++i) {
      const int place = i - 1 - (kTaps - scan.taps);
      if (place >= 0) to[static_cast<std::size_t>(place) * scan.convolved.width] = window[i];
    }
  }
};

// What a row of the run gives, for the block's channels.
struct RowInputs {
  float b[kMaxFewScanState];
  float c[kMaxFewScanState];
  float x[kScanChannels];
  float dt[kScanChannels];
  float decay[kScanChannels];
};

// The same operations in the same order as in the scan of many rows.
__device__ float scan_row(const RowInputs& row, const ScanThread& thread, StatePart<kShare>& state) {
  const float decay = row.decay[thread.own];
  const float dtx = row.dt[thread.own] * row.x[thread.own];
  float sums[4] = {};
#pragma unroll
  for (int k = 0; k < kShare; k += 4) {
    const int s = StatePart<kShare>::index(thread.lane, k);
    const float4 b = *reinterpret_cast<const float4*>(&row.b[s]);
    const float4 c = *reinterpret_cast<const float4*>(&row.c[s]);
    const float bs[4] = {b.x, b.y, b.z, b.w};
    const float cs[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      state.h[k + i] = fmaf(state.h[k + i], decay, dtx * bs[i]);
      sums[i] = fmaf(state.h[k + i], cs[i], sums[i]);
    }
  }
  float y = (sums[0] + sums[1]) + (sums[2] + sums[3]);
#pragma unroll
  for (int mask = 1; mask < kScanLanes; mask <<= 1) y += __shfl_xor_sync(~0u, y, mask);
  return fmaf(thread.d, row.x[thread.own], y);
}

// Which channel of the convolution a thread has as its `number`-th.
__device__ void begin_convolution(const FewScanOp& op, const StepRun& run, const ScanPlace& place, int number,
                                  RowInputs& row, Convolution& convolution) {
  const ScanOp& scan = op.scan;
  const int i = number * kThreads + static_cast<int>(threadIdx.x);
  const int of_group = i - kScanChannels;  // first B, then C
  if (i < place.channels) {
    convolution.begin(op, run, place.first_channel + i, true, &row.x[i]);
  } else if (of_group >= 0 && of_group < 2 * scan.state_size) {
    const bool is_c = of_group >= scan.state_size;
    const int s = is_c ? of_group - scan.state_size : of_group;
    const int channel = scan.inner + ((is_c ? scan.groups : 0) + place.group) * scan.state_size + s;
    convolution.begin(op, run, channel, false, is_c ? &row.c[s] : &row.b[s]);
  }
}

// The norm of a group, of which each block of the cluster has some values.
struct GroupNorm {
  float values[kScanChannels];
  // Of all blocks, for even and for odd rows: a block may be one row ahead of another.
  float squares[2][kMostBlocksOfGroup];

  // The scale for row `t` of the run, by all threads of all blocks.
  __device__ float scale(const FewScanOp& op, std::size_t row, int t, int blocks, int width) {
    __syncthreads();
    if (threadIdx.x < 32) {
      float sum = values[threadIdx.x] * values[threadIdx.x];
      for (int mask = 16; mask > 0; mask >>= 1) sum += __shfl_xor_sync(~0u, sum, mask);
      const int other = threadIdx.x;
      if (other < blocks) store_in_block(&squares[t % 2][cluster_rank()], other, sum);
    }
    cluster_barrier();
    float sum = 0.0f;
    for (int i = 0; i < blocks; ++i) sum += squares[t % 2][i];
    if (isfinite(sum)) return 1.0f / sqrtf(sum / static_cast<float>(width) + op.norm.epsilon);
    if (threadIdx.x == 0 && op.norm.first_bad != nullptr && op.norm.first_bad[row] < 0) {
      op.norm.first_bad[row] = op.norm.layer;
    }
    return __int_as_float(0x7fc00000);
  }
};

template <bool kNorms>
__global__ void __launch_bounds__(kThreads) scan_few_kernel(const __grid_constant__ FewScanOp op) {
  __shared__ __align__(16) RowInputs row;
  __shared__ GroupNorm group_norm;
  __shared__ bool is_last;
  const ScanOp& scan = op.scan;
  const StepRun run = scan.runs.runs[blockIdx.y];
  const bool exists = run.first >= 0;
  const ScanPlace place(scan);
  const ScanThread thread(scan, place, static_cast<int>(threadIdx.x) / kScanLanes);
  const int head = thread.channel / (scan.inner / scan.heads);
  StatePart<kShare> state;
  Convolution convolutions[kOwn];
  if (exists) {
    state.load(run.state_in >= 0 ? thread.state_at(scan, run.state_in) : nullptr, scan.state_size, thread.lane);
#pragma unroll
    for (int o = 0; o < kOwn; ++o) begin_convolution(op, run, place, o, row, convolutions[o]);
  }
  const float a = scan.a[head];
  const float dt_bias = scan.dt_bias == nullptr ? 0.0f : scan.dt_bias[head];
  for (int i = threadIdx.x; i < kMaxFewScanState; i += kThreads)
    row.b[i] = row.c[i] = 0.0f;  // where the state is small
  const float norm_weight = kNorms && op.norm.weight != nullptr ? op.norm.weight[thread.channel] : 1.0f;
  if constexpr (kNorms) {
    if (threadIdx.x < kScanChannels) group_norm.values[threadIdx.x] = 0.0f;
    cluster_barrier();  // all blocks have begun
  } else {
    __syncthreads();
  }
  wait_for_previous_kernel();
  allow_next_kernel();
  if (!exists) return;
  const int blocks_of_group = static_cast<int>(gridDim.x) / scan.groups;
  const bool is_first = static_cast<int>(blockIdx.x) % blocks_of_group == 0;
#pragma unroll 1
  for (int t = 0; t < run.count; ++t) {
    const std::size_t number = static_cast<std::size_t>(run.first + t);
    const float z = op.gate[number * op.gate_stride + thread.channel];
    float dt = scan.dt[number * scan.dt_stride + head];
#pragma unroll
    for (Convolution& convolution : convolutions) {
      if (convolution.channel < 0) continue;
      convolution.next(scan.convolved.data[number * scan.convolved.stride + convolution.channel]);
    }
    dt = softplus(dt + dt_bias);
    if (thread.lane == 0) {
      row.dt[thread.own] = thread.exists ? dt : 0.0f;
      row.decay[thread.own] = thread.exists ? expf(dt * a) : 1.0f;
      if (!thread.exists) row.x[thread.own] = 0.0f;
    }
    __syncthreads();
    // All that the block reads of the state it has: the last block to come may write what all of a group have read.
    if (t == 0 && threadIdx.x == 0) {
      int* arrivals = op.arrivals + blockIdx.y * scan.groups + place.group;
      is_last = atomicAdd(arrivals, 1) + 1 == blocks_of_group;
      if (is_last) *arrivals = 0;
    }
    float y = scan_row(row, thread, state) * (z / (1.0f + expf(-z)));
    if constexpr (kNorms) {
      if (thread.exists && thread.lane == 0) group_norm.values[thread.own] = y;
      y *= group_norm.scale(op, number, t, blocks_of_group, scan.inner / scan.groups) * norm_weight;
    }
    if (thread.exists && thread.lane == 0) scan.y[number * scan.y_stride + thread.channel] = y;
    const int slot = run.has_snapshots != 0 ? scan.runs.snapshots[number] : -1;
    if (slot >= 0) {
      if (thread.exists) state.store(thread.state_at(scan, slot), scan.state_size, thread.lane);
#pragma unroll
      for (const Convolution& convolution : convolutions) {
        if (convolution.channel >= 0 && (convolution.is_own || is_first)) convolution.store(scan, slot);
      }
    }
    __syncthreads();
  }
  if (run.state_out < 0) return;
  if (thread.exists) state.store(thread.state_at(scan, run.state_out), scan.state_size, thread.lane);
#pragma unroll
  for (const Convolution& convolution : convolutions) {
    if (convolution.channel >= 0 && (convolution.is_own || is_last)) convolution.store(scan, run.state_out);
  }
}

int blocks_of_group(const ScanOp& op) { return (op.inner / op.groups + kScanChannels - 1) / kScanChannels; }

}  // namespace

bool can_scan_few(const ScanOp& op) {
  return !op.has_matrix_a && op.state_size <= kMaxFewScanState && op.taps <= kMaxFewScanTaps;
}

bool can_norm_few(const LaunchContext& context, const ScanOp& op) {
  return context.has_wgmma && can_scan_few(op) && blocks_of_group(op) <= kMostBlocksOfGroup;
}

void prepare_scan_few(const LaunchContext& context) {
  if (!context.has_wgmma) return;
  check(cudaFuncSetAttribute(scan_few_kernel<true>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), "scan");
}

void scan_few(const LaunchContext& context, const FewScanOp& op) {
  const ScanOp& scan = op.scan;
  if (!can_scan_few(scan)) fail_launch("scan", "a state of more than 128 numbers or a convolution of more than 4 taps");
  const dim3 grid(static_cast<unsigned>(blocks_of_group(scan) * scan.groups), static_cast<unsigned>(scan.runs.count));
  if (op.norm.kind == NormKind::none) {
    return launch("scan", context, scan_few_kernel<false>, grid, dim3(kThreads), 0, op);
  }
  if (!can_norm_few(context, scan)) fail_launch("scan", "groups that are too wide for a cluster");
  launch_clusters("scan", context, blocks_of_group(scan), scan_few_kernel<true>, grid, dim3(kThreads), 0, op);
}

}  // namespace quarrel::cuda
