#include <algorithm>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/primitives.cuh"
#include "backend/cuda/scan_state.cuh"
#include "backend/cuda/ssm.h"

namespace quarrel::cuda {
namespace {

constexpr int kConvolveThreads = 128;

// Input number `index` of a run, counted from the oldest one that the state holds.
struct RunInputs {
  const float* state;  // null: zeros
  const float* rows;   // the run's first row, at the channel
  int history;
  int channels;
  int stride;

  __device__ float at(int index) const {
    if (index >= history) return rows[static_cast<std::size_t>(index - history) * stride];
    return state == nullptr ? 0.0f : state[static_cast<std::size_t>(index) * channels];
  }
};

__global__ void __launch_bounds__(kConvolveThreads) convolve_kernel(const __grid_constant__ ConvolveOp op) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int channel = blockIdx.x * kConvolveThreads + threadIdx.x;
  const int row = blockIdx.y;
  const int number = op.runs.run_of[row];
  if (number < 0 || channel >= op.in.width) return;
  const StepRun run = op.runs.runs[number];
  const RunInputs inputs{
      .state = run.state_in < 0 ? nullptr : op.state.convolution + run.state_in * op.state.slot_stride + channel,
      .rows = op.in.data + static_cast<std::size_t>(run.first) * op.in.stride + channel,
      .history = op.taps - 1,
      .channels = op.in.width,
      .stride = op.in.stride};
  float sum = op.bias == nullptr ? 0.0f : op.bias[channel];
  for (int tap = 0; tap < op.taps; ++tap) {
    sum = fmaf(inputs.at(row - run.first + tap), op.weight[channel * op.taps + tap], sum);
  }
  op.out[static_cast<std::size_t>(row) * op.out_stride + channel] = sum / (1.0f + expf(-sum));
}

// ---- The scan ----

constexpr int kTileRows = 16;  // rows that are fetched together
constexpr int kTogether = 4;   // rows whose results are added up together

__device__ void copy_word(float* to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// What the rows of a tile need of memory.
template <int kShare>
struct TileRows {
  float b[kTileRows][kScanLanes * kShare];
  float c[kTileRows][kScanLanes * kShare];
  float x[kTileRows][kScanChannels];
  float dt[kTileRows][kScanChannels];
};

// A warp has a row at a time.
template <int kShare>
__device__ void fetch(const ScanOp& op, const ScanPlace& place, int first_row, int count, TileRows<kShare>& tile) {
  const int lane = threadIdx.x % 32;
  const int head = (place.first_channel + min(lane, place.channels - 1)) / (op.inner / op.heads);
  for (int row = threadIdx.x / 32; row < count; row += blockDim.x / 32) {
    const std::size_t number = static_cast<std::size_t>(first_row + row);
    const std::size_t shared_at = number * op.bc_stride + place.group * op.state_size;
    for (int s = lane; s < op.state_size; s += 32) {
      copy_word(&tile.b[row][s], op.b + shared_at + s);
      copy_word(&tile.c[row][s], op.c + shared_at + s);
    }
    if (lane < place.channels) {
      copy_word(&tile.x[row][lane], op.x + number * op.x_stride + place.first_channel + lane);
      copy_word(&tile.dt[row][lane], op.dt + number * op.dt_stride + head);
    }
  }
  commit_copies();
}

// What the convolution of the run's next row will need, in the slots that are asked for. The old state is read first: a
// slot may be both.
__device__ void store_convolution(const ScanOp& op, const StepRun& run) {
  const int history = op.taps - 1;
  const int channels = op.convolved.width;
  const int threads = static_cast<int>(blockDim.x);
  for (int channel = blockIdx.x * threads + threadIdx.x; channel < channels; channel += gridDim.x * threads) {
    float old[kMaxConvolutionTaps - 1];
    const float* state = op.state.convolution + run.state_in * op.state.slot_stride + channel;
#pragma unroll
    for (int i = 0; i < kMaxConvolutionTaps - 1; ++i) {
      old[i] = run.state_in >= 0 && i < history ? state[static_cast<std::size_t>(i) * channels] : 0.0f;
    }
    const float* rows = op.convolved.data + static_cast<std::size_t>(run.first) * op.convolved.stride + channel;
    const auto store = [&](int slot, int after) {
      float* to = op.state.convolution + slot * op.state.slot_stride + channel;
      for (int i = 0; i < history; ++i) {
        const int index = after + i;
        float value = 0.0f;
        if (index >= history) {
          value = rows[static_cast<std::size_t>(index - history) * op.convolved.stride];
        } else {
#pragma unroll
          for (int j = 0; j < kMaxConvolutionTaps - 1; ++j) value = j == index ? old[j] : value;
        }
        to[static_cast<std::size_t>(i) * channels] = value;
      }
    };
    if (run.has_snapshots != 0) {
      for (int t = 0; t < run.count; ++t) {
        const int slot = op.runs.snapshots[run.first + t];
        if (slot >= 0) store(slot, t + 1);
      }
    }
    if (run.state_out >= 0) store(run.state_out, run.count);
  }
}

// What a kernel does of a scan that is cut.
enum class ScanPass : std::uint8_t {
  whole,  // it is not
  ends,   // the states that all segments but the last end with
  rest,   // results, from the states that segments begin with
};

// Channels of a thread. What it reads of B and C serves all of them; where a scan is not cut, there are too few threads
// for that.
constexpr int channels_of_thread(ScanPass pass) { return pass == ScanPass::whole ? 1 : 2; }
constexpr int scan_threads(ScanPass pass) { return kScanChannels * kScanLanes / channels_of_thread(pass); }

// Rows [first, end) of a run.
struct ScanSegment {
  int first;
  int end;

  __device__ ScanSegment(const StepRun& run, int segments, int number) {
    const int tiles = (run.count + kTileRows - 1) / kTileRows;
    const int length = (tiles + segments - 1) / segments * kTileRows;
    first = min(run.count, number * length);
    end = min(run.count, first + length);
  }
};

// The state that a segment begins with, from those that the ones before it end with.
template <int kShare, bool kMatrixA>
__device__ void join_segments(const ScanOp& op, const ScanThread& thread, const float (&a)[kMatrixA ? kShare : 1],
                              int segment, StatePart<kShare>& state) {
  state.load(thread.segment_state(op, min(segment, 1)), op.state_size, thread.lane);
  for (int i = 2; i <= segment; ++i) {
    const float dt = *thread.segment_dt(op, i - 1);
    StatePart<kShare> end;
    end.load(thread.segment_state(op, i), op.state_size, thread.lane);
#pragma unroll
    for (int k = 0; k < kShare; ++k) {
      const float factor = kMatrixA ? a[k] : op.a[thread.channel / (op.inner / op.heads)];
      state.h[k] = fmaf(state.h[k], expf(dt * factor), end.h[k]);
    }
  }
}

// dt as the scan takes it, and what a row leaves of the state. Rows that are not there change nothing: their dt is
// zero.
template <int kShare, bool kMatrixA>
__device__ void prepare_rows(const ScanOp& op, const ScanPlace& place, int count, TileRows<kShare>& tile,
                             float (&decays)[kTileRows][kScanChannels]) {
  const int computed = (count + kTogether - 1) / kTogether * kTogether;
  for (int i = threadIdx.x; i < computed * kScanChannels; i += blockDim.x) {
    const int row = i / kScanChannels;
    const int of_block = i % kScanChannels;
    if (row >= count || of_block >= place.channels) {
      tile.x[row][of_block] = tile.dt[row][of_block] = 0.0f;
      decays[row][of_block] = 1.0f;
      continue;
    }
    const int head = (place.first_channel + of_block) / (op.inner / op.heads);
    float& dt = tile.dt[row][of_block];
    dt = softplus(dt + (op.dt_bias == nullptr ? 0.0f : op.dt_bias[head]));
    if constexpr (!kMatrixA) decays[row][of_block] = expf(dt * op.a[head]);
  }
}

// `y`: this lane's parts of rows [t, t + kTogether).
template <int kShare>
__device__ void store_results(const ScanOp& op, const StepRun& run, const ScanThread& thread,
                              const TileRows<kShare>& tile, int first, int t, int count, float (&y)[kTogether]) {
#pragma unroll
  for (int mask = 1; mask < kScanLanes; mask <<= 1) {
#pragma unroll
    for (float& value : y) value += __shfl_xor_sync(~0u, value, mask);
  }
  // Lane j of a channel writes row t + j.
  float own_y = y[0];
#pragma unroll
  for (int j = 1; j < kTogether; ++j) own_y = thread.lane == j ? y[j] : own_y;
  if (!thread.exists || thread.lane >= kTogether || t + thread.lane >= count) return;
  const std::size_t row = static_cast<std::size_t>(run.first + first + t + thread.lane);
  op.y[row * op.y_stride + thread.channel] = fmaf(thread.d, tile.x[t + thread.lane][thread.own], own_y);
}

// What a thread has of each of its channels.
template <int kShare, bool kMatrixA>
struct ScanChannel {
  ScanThread thread;
  StatePart<kShare> state;
  float a[kMatrixA ? kShare : 1];
  float sum_dt = 0.0f;  // of a segment

  __device__ void begin(const ScanOp& op, const ScanPlace& place, int number) {
    thread = ScanThread(op, place, number);
    if constexpr (kMatrixA) {
#pragma unroll
      for (int k = 0; k < kShare; ++k) {
        const int s = StatePart<kShare>::index(thread.lane, k);
        a[k] = s < op.state_size ? op.a[static_cast<std::int64_t>(thread.channel) * op.state_size + s] : 0.0f;
      }
    }
  }
};

// Rows [t, t + kTogether) of a tile that begins with row `first` of the run and has `count` rows.
template <int kShare, bool kMatrixA, bool kKeeps, bool kResults, int kOwn>
__device__ void scan_rows(const ScanOp& op, const StepRun& run, const TileRows<kShare>& tile,
                          const float (&decays)[kTileRows][kScanChannels], int first, int t, int count,
                          ScanChannel<kShare, kMatrixA> (&channels)[kOwn]) {
  float y[kOwn][kTogether];
#pragma unroll
  for (int j = 0; j < kTogether; ++j) {
    float dt[kOwn];
    float dtx[kOwn];
    float sums[kOwn][4] = {};
#pragma unroll
    for (int o = 0; o < kOwn; ++o) {
      dt[o] = tile.dt[t + j][channels[o].thread.own];
      dtx[o] = dt[o] * tile.x[t + j][channels[o].thread.own];
      if constexpr (!kResults) channels[o].sum_dt += dt[o];
    }
#pragma unroll
    for (int k = 0; k < kShare; k += 4) {
      const int s = StatePart<kShare>::index(channels[0].thread.lane, k);
      const float4 b = *reinterpret_cast<const float4*>(&tile.b[t + j][s]);
      float4 c = {};
      if constexpr (kResults) c = *reinterpret_cast<const float4*>(&tile.c[t + j][s]);
      const float bs[4] = {b.x, b.y, b.z, b.w};
      const float cs[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
      for (int o = 0; o < kOwn; ++o) {
        ScanChannel<kShare, kMatrixA>& own = channels[o];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float factor = 0.0f;
          if constexpr (kMatrixA) {
            factor = expf(dt[o] * own.a[k + i]);
          } else {
            factor = decays[t + j][own.thread.own];
          }
          own.state.h[k + i] = fmaf(own.state.h[k + i], factor, dtx[o] * bs[i]);
          if constexpr (kResults) sums[o][i] = fmaf(own.state.h[k + i], cs[i], sums[o][i]);
        }
      }
    }
#pragma unroll
    for (int o = 0; o < kOwn; ++o) {
      y[o][j] = (sums[o][0] + sums[o][1]) + (sums[o][2] + sums[o][3]);
      if constexpr (kKeeps) {
        const ScanThread& thread = channels[o].thread;
        const int slot = t + j < count ? op.runs.snapshots[run.first + first + t + j] : -1;
        if (slot >= 0 && thread.exists) {
          channels[o].state.store(thread.state_at(op, slot), op.state_size, thread.lane);
        }
      }
    }
  }
  if constexpr (kResults) {
#pragma unroll
    for (int o = 0; o < kOwn; ++o) store_results(op, run, channels[o].thread, tile, first, t, count, y[o]);
  }
}

// What a channel begins with.
template <ScanPass kPass, int kShare, bool kMatrixA>
__device__ void begin_channel(const ScanOp& op, const StepRun& run, int segment,
                              ScanChannel<kShare, kMatrixA>& channel) {
  const ScanThread& thread = channel.thread;
  if constexpr (kPass == ScanPass::rest) {
    join_segments<kShare, kMatrixA>(op, thread, channel.a, segment, channel.state);
  } else {
    const bool begins = run.state_in >= 0 && segment == 0;
    channel.state.load(begins ? thread.state_at(op, run.state_in) : nullptr, op.state_size, thread.lane);
  }
  // The slot that the run begins with may be that in which it ends.
  if (kPass == ScanPass::ends && segment == 0 && thread.exists) {
    channel.state.store(thread.segment_state(op, 0), op.state_size, thread.lane);
  }
}

// What it leaves.
template <ScanPass kPass, int kShare, bool kMatrixA>
__device__ void end_channel(const ScanOp& op, const StepRun& run, int segment, bool ends_run,
                            const ScanChannel<kShare, kMatrixA>& channel) {
  const ScanThread& thread = channel.thread;
  if (!thread.exists) return;
  if constexpr (kPass == ScanPass::ends) {
    channel.state.store(thread.segment_state(op, segment + 1), op.state_size, thread.lane);
    if (thread.lane == 0) *thread.segment_dt(op, segment) = channel.sum_dt;
  } else if (ends_run && run.state_out >= 0) {
    channel.state.store(thread.state_at(op, run.state_out), op.state_size, thread.lane);
  }
}

template <int kShare, bool kMatrixA, ScanPass kPass>
__global__ void __launch_bounds__(scan_threads(kPass), kShare <= 16 && kPass != ScanPass::whole ? 4 : 1)
    scan_kernel(const __grid_constant__ ScanOp op) {
  constexpr int kOwn = channels_of_thread(kPass);
  constexpr int kThreads = scan_threads(kPass);
  constexpr bool kResults = kPass != ScanPass::ends;
  extern __shared__ __align__(16) std::byte shared[];
  auto* tiles = reinterpret_cast<TileRows<kShare>*>(shared);
  __shared__ float decays[kTileRows][kScanChannels];
  wait_for_previous_kernel();
  allow_next_kernel();
  const StepRun run = op.runs.runs[blockIdx.y];
  if (run.first < 0) return;
  const int number = blockIdx.z;
  const ScanSegment segment(run, op.segments, number);
  const ScanPlace place(op);
  // What nobody fetches counts nothing: rows that are not there, and numbers of B and C behind the state's size.
  for (int i = threadIdx.x; i < 2 * static_cast<int>(sizeof(TileRows<kShare>) / sizeof(float4)); i += kThreads) {
    reinterpret_cast<float4*>(shared)[i] = {0.0f, 0.0f, 0.0f, 0.0f};
  }
  __syncthreads();
  fetch(op, place, run.first + segment.first, min(kTileRows, segment.end - segment.first), tiles[0]);
  ScanChannel<kShare, kMatrixA> channels[kOwn];
#pragma unroll
  for (int o = 0; o < kOwn; ++o) {
    channels[o].begin(op, place, threadIdx.x / kScanLanes + o * (kScanChannels / kOwn));
    begin_channel<kPass>(op, run, number, channels[o]);
  }
#pragma unroll 1
  for (int first = segment.first; first < segment.end; first += kTileRows) {
    const int count = min(kTileRows, segment.end - first);
    const int next = min(kTileRows, segment.end - first - kTileRows);
    TileRows<kShare>& tile = tiles[(first - segment.first) / kTileRows % 2];
    if (next > 0) {
      fetch(op, place, run.first + first + kTileRows, next, tiles[((first - segment.first) / kTileRows + 1) % 2]);
      wait_for_copies(1);
    } else {
      wait_for_copies(0);
    }
    __syncthreads();
    prepare_rows<kShare, kMatrixA>(op, place, count, tile, decays);
    __syncthreads();
#pragma unroll 1
    for (int t = 0; t < count; t += kTogether) {
      if (kResults && run.has_snapshots != 0) {
        scan_rows<kShare, kMatrixA, kResults, kResults>(op, run, tile, decays, first, t, count, channels);
      } else {
        scan_rows<kShare, kMatrixA, false, kResults>(op, run, tile, decays, first, t, count, channels);
      }
    }
    __syncthreads();
  }
  const bool ends_run = segment.end == run.count && segment.first < segment.end;
#pragma unroll
  for (int o = 0; o < kOwn; ++o) end_channel<kPass>(op, run, number, ends_run, channels[o]);
  if (kResults && number == 0) store_convolution(op, run);
}

template <int kShare, bool kMatrixA, ScanPass kPass>
void run_scan(const LaunchContext& context, const ScanOp& op, int segments) {
  const int of_group = op.inner / op.groups;
  const dim3 grid(static_cast<unsigned>((of_group + kScanChannels - 1) / kScanChannels * op.groups),
                  static_cast<unsigned>(op.runs.count), static_cast<unsigned>(segments));
  const int shared_bytes = 2 * static_cast<int>(sizeof(TileRows<kShare>));
  const auto kernel = scan_kernel<kShare, kMatrixA, kPass>;
  if (shared_bytes > 48 * 1024 - 4096) allow_shared_bytes("scan", kernel, shared_bytes);
  launch("scan", context, kernel, grid, dim3(static_cast<unsigned>(scan_threads(kPass))), shared_bytes, op);
}

template <int kShare, bool kMatrixA>
void run_scan(const LaunchContext& context, const ScanOp& op) {
  if (op.segments <= 1) return run_scan<kShare, kMatrixA, ScanPass::whole>(context, op, 1);
  run_scan<kShare, kMatrixA, ScanPass::ends>(context, op, op.segments - 1);
  run_scan<kShare, kMatrixA, ScanPass::rest>(context, op, op.segments);
}

template <bool kMatrixA>
void run_scan(const LaunchContext& context, const ScanOp& op) {
  if (op.state_size <= 4 * kScanLanes) return run_scan<4, kMatrixA>(context, op);
  if (op.state_size <= 16 * kScanLanes) return run_scan<16, kMatrixA>(context, op);
  run_scan<32, kMatrixA>(context, op);
}

}  // namespace

void convolve(const LaunchContext& context, const ConvolveOp& op) {
  const dim3 grid(static_cast<unsigned>((op.in.width + kConvolveThreads - 1) / kConvolveThreads),
                  static_cast<unsigned>(op.in.count));
  launch("convolution", context, convolve_kernel, grid, dim3(kConvolveThreads), 0, op);
}

int scan_segments(int runs, int rows) {
  constexpr int kLeastRows = 64;  // of a segment
  if (runs < 1) return 1;
  return std::max(1, std::min(kMaxScanSegments / runs, rows / runs / kLeastRows));
}

std::size_t scan_segment_floats(const ScanOp& op) {
  return static_cast<std::size_t>(op.runs.count) * static_cast<std::size_t>(op.segments) *
         static_cast<std::size_t>(op.inner) * static_cast<std::size_t>(op.state_size + 1);
}

void scan(const LaunchContext& context, const ScanOp& op) {
  if (op.state_size > kMaxScanState || op.taps > kMaxConvolutionTaps) {
    fail_launch("scan", "a state of more than 256 numbers or a convolution of more than 8 taps");
  }
  if (op.has_matrix_a) return run_scan<true>(context, op);
  run_scan<false>(context, op);
}

}  // namespace quarrel::cuda
