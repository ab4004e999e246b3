// Each warp has its own ring of packed weights, which the copy engine fills from before the wait for the kernel before;
// one warp fetches activations, a chunk of 256 columns at a time, for all of them. Weights become operands 32 columns
// at a time; with `wgmma` in one of two sets of registers, while the tensor cores take the other. Sums go through
// shared memory, so that what is done with them is compiled once, not once for each of a lane's sums.
#include <algorithm>
#include <type_traits>

#include "backend/cuda/chunk_ring.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/parts_end.cuh"
#include "backend/cuda/register_decode.cuh"
#include "backend/cuda/register_gemm.h"
#include "backend/cuda/row_image.h"
#include "backend/cuda/wgmma.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kWorkers = 16;  // warps that decode and multiply
constexpr int kThreads = kWorkers * 32;
// Where a thread does without all of its registers, the small kernels before and after run beside this one. More than
// half of them keep two blocks from piling up on one multiprocessor.
constexpr int max_registers(int tokens) { return tokens <= 8 ? 80 : tokens <= 16 ? 88 : tokens <= 32 ? 96 : 128; }
constexpr int kSharedBytesBeside = 20 * 1024;  // for them
constexpr int kMaxRowSlots = 2 * kWorkers;
constexpr int kMaxRing = 3;
constexpr int kAlignment = 1024;
constexpr int kStaticBytes = 2048;

struct KernelMatrix {
  const std::byte* data;
  int rows;
  int tiles;
  int blocks;     // that have its tiles
  int first_row;  // where its results begin
  WeightFormat format;
};

struct KernelArguments {
  const std::uint16_t* image;
  int rows;
  KernelMatrix matrices[kMaxPackedGemmMatrices];
  int chunks;
  int slab_chunks;
  int block_tiles;
  bool is_paired;
  int ring;
  int chunk_bytes;  // the largest
  int row_slots;
  float* parts;  // null: there are none to be joined
  JoinPartsOp end;
};

// All of a slab's activations are in shared memory at once: making room for others took a seventh of the instructions
// for a chunk of eight rows.
constexpr bool has_all_rows(int tokens) { return tokens == 8; }

constexpr int row_slot_bytes(int tokens) { return chunk_image_numbers(tokens) * 2; }

int shared_bytes(int tokens, int row_slots, int ring, int chunk_bytes) {
  return row_slots * row_slot_bytes(tokens) + kWorkers * ring * chunk_bytes;
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kGroupWarps = 4;  // of `wgmma`

// Up to 16 rows each warp multiplies for itself, by `mma`: a `wgmma` of four warps waits for the last of them, and
// reading activations once for all four pays only where there are many.
template <int kTokens>
constexpr bool kByGroups = kTokens > 16;

// What a warp works on.
struct Work {
  const KernelMatrix* matrix;
  int tile;
  bool exists;      // the tile does
  bool multiplies;  // it does, or with `wgmma` some tile of the warpgroup may
  int multipliers;  // warps that do
  int first_chunk;
  int chunks;

  __device__ Work(const KernelArguments& a, int warp, bool by_groups) {
    const int within = a.is_paired ? warp % (kWorkers / 2) : warp;
    int block = blockIdx.x;
    matrix = a.matrices;
    if (a.is_paired) {
      matrix += warp / (kWorkers / 2);
    } else {
      while (block >= matrix->blocks) block -= matrix++->blocks;
    }
    tile = block * a.block_tiles + within;
    exists = within < a.block_tiles && tile < matrix->tiles;
    multipliers = min(a.block_tiles, matrix->tiles - block * a.block_tiles);
    if (by_groups) multipliers = (a.block_tiles + kGroupWarps - 1) / kGroupWarps * kGroupWarps;
    multiplies = within < multipliers;
    if (a.is_paired) multipliers *= 2;
    first_chunk = blockIdx.y * a.slab_chunks;
    chunks = min(a.slab_chunks, a.chunks - first_chunk);
  }
};

// Shared memory that the warps have in common.
struct SharedRows {
  std::uint32_t slots;
  std::uint32_t full;  // barriers
  std::uint32_t empty;
};

// Fetches a chunk of activations after the other; one warp does.
template <int kTokens>
class RowFetcher {
 public:
  __device__ RowFetcher(const KernelArguments& arguments, const Work& work, const SharedRows& rows)
      : rows_(rows),
        source_(arguments.image + static_cast<std::size_t>(work.first_chunk) * (kBytes / 2)),
        slots_(arguments.row_slots),
        left_(work.chunks) {}

  // As many as there is room for.
  __device__ void fetch_first() {
    const int count = min(slots_, left_);
    if (is_elected()) {
#pragma unroll 1
      for (int i = 0; i < count; ++i) copy_to(i, source_ + i * (kBytes / 2));
    }
    source_ += count * (kBytes / 2);
    left_ -= count;
  }
  // Nothing when there is none left. Waits until all warps are done with the chunk that lay where this one goes.
  __device__ void fetch_next() {
    if (left_-- <= 0) return;
    wait_for_barrier(rows_.empty + slot_ * 8, phase_);
    if (is_elected()) copy_to(slot_, source_);
    source_ += kBytes / 2;
    if (++slot_ == slots_) {
      slot_ = 0;
      phase_ ^= 1;
    }
  }

 private:
  static constexpr int kBytes = row_slot_bytes(kTokens);

  __device__ void copy_to(int slot, const std::uint16_t* source) const {
    announce_bytes(rows_.full + slot * 8, kBytes);
    copy_bulk(rows_.slots + slot * kBytes, source, kBytes, rows_.full + slot * 8);
  }

  const SharedRows& rows_;
  const std::uint16_t* source_;
  int slots_;
  int left_;
  int slot_ = 0;
  int phase_ = 0;
};

// c += a * b: sums of 16 weight rows and eight rows of activations, over 16 columns.
__device__ void multiply_eight(float* c, const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// As load_matrices(), of what nobody writes meanwhile: other loads may be moved past it.
__device__ void load_rows(std::uint32_t (&b)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(address));
}

// Adds a chunk of weights times a chunk of activations to a warp's sums, by `mma`.
template <WeightFormat F, int kTokens>
class WarpMultiplier {
 public:
  using Sums = float[kTokens / 2];

  // `rows`: where the activations lie in shared memory.
  __device__ WarpMultiplier(const std::byte* weights, std::uint32_t rows)
      : chunk_(weights, threadIdx.x % 32), rows_(rows), lane_(threadIdx.x % 32) {}

  __device__ void add_to(Sums& sums) {
    const std::uint32_t piece = lane_ % 8 * 128 + (lane_ / 8 ^ lane_ % 8) * 16;
    const std::uint32_t even = rows_ + piece;
    const std::uint32_t odd = rows_ + (piece ^ 64);
    Sums products = {};
#pragma unroll
    for (int step = 0; step < kChunkSteps; ++step) {
      if (step % 2 == 0) chunk_.read_pair(step / 2);
      std::uint32_t operands[2][4];
      chunk_.operands_of(step % 2, operands);
#pragma unroll
      for (int n = 0; n < kTokens / 8; ++n) {
        std::uint32_t b[4];
        load_rows(b, (step % 2 == 0 ? even : odd) + (step / 2 * kTokens + n * 8) * 128);
        multiply_eight(products + 4 * n, operands[0], b[0], b[1]);
        multiply_eight(products + 4 * n, operands[1], b[2], b[3]);
      }
    }
    add_minimums(sums);
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) sums[i] = fmaf(chunk_.unit(i % 4 / 2), products[i], sums[i]);
  }

 private:
  using Chunk = IntegerChunk<F>;

  __device__ void add_minimums(Sums& sums) const {
    if constexpr (Chunk::kHasMinimums) {
      const std::uint32_t means =
          rows_ + kTokens * kChunkColumns * 2 + lane_ / 16 * (kTokens * kChunkMeans * 2) + lane_ % 16 * 16;
#pragma unroll
      for (int n = 0; n < kTokens / 8; ++n) {
        std::uint32_t b[4];
        load_rows(b, means + n * 256);
        float products[4] = {};
        multiply_eight(products, chunk_.minimums(), b[0], b[1]);
        multiply_eight(products, chunk_.minimums(), b[2], b[3]);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[4 * n + i] = fmaf(-chunk_.minimum_unit(i / 2), products[i], sums[4 * n + i]);
      }
    }
  }

  Chunk chunk_;
  std::uint32_t rows_;
  int lane_;
};

// The same by `wgmma`.
template <WeightFormat F, int kTokens>
class GroupMultiplier {
 public:
  using Sums = float[kTokens / 2];

  // `rows`: where the activations lie in shared memory.
  __device__ GroupMultiplier(const std::byte* weights, std::uint32_t rows)
      : chunk_(weights, threadIdx.x % 32), rows_(matrix_at(rows)), means_(rows + kTokens * kChunkColumns * 2) {}

  __device__ void add_to(Sums& sums) {
    begin_minimums();
    chunk_.read_pair(0);
    chunk_.operands_of(0, operands_[0]);
    end_minimums(sums);
    add_codes(sums);
  }

 private:
  using Chunk = IntegerChunk<F>;
  __device__ void begin_minimums() {
    if constexpr (Chunk::kHasMinimums) {
      begin_wgmma();
      multiply_operands<kTokens, false>(products_, chunk_.minimums(), narrow_matrix_at(means_));
      multiply_operands<kTokens, true>(products_, chunk_.minimums(),
                                       narrow_matrix_at(means_ + kTokens * kChunkMeans * 2));
      commit_wgmma();
    }
  }
  __device__ void end_minimums(Sums& sums) {
    if constexpr (Chunk::kHasMinimums) {
      wait_for_wgmma<0>();
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) {
        sums[i] = fmaf(-chunk_.minimum_unit(i % 4 / 2), products_[i], sums[i]);
      }
    }
  }

  // The activations of step 2 `pair` + `odd`, columns [16 k, 16 k + 16) of it.
  __device__ std::uint64_t rows_of(int pair, int odd, int k) const {
    return further_on(rows_, static_cast<std::uint32_t>(pair * kTokens * 128 + odd * 64 + k * 32));
  }

  // Operands of the first step are there.
  __device__ void add_codes(Sums& sums) {
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) products_[i] = 0.0f;
#pragma unroll
    for (int pair = 0; pair < kChunkSteps / 2; ++pair) {
      if (pair > 0) chunk_.read_pair(pair);
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        if (pair > 0 || odd > 0) chunk_.operands_of(odd, operands_[odd]);
        begin_wgmma();
        multiply_operands<kTokens, true>(products_, operands_[odd][0], rows_of(pair, odd, 0));
        multiply_operands<kTokens, true>(products_, operands_[odd][1], rows_of(pair, odd, 1));
        commit_wgmma();
        wait_for_wgmma<1>();
      }
    }
    const float units[2] = {chunk_.unit(0), chunk_.unit(1)};
    wait_for_wgmma<0>();
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) sums[i] = fmaf(units[i % 4 / 2], products_[i], sums[i]);
  }

  Chunk chunk_;
  std::uint64_t rows_;
  std::uint32_t means_;
  Sums products_;
  std::uint32_t operands_[2][2][4];
};

template <WeightFormat F, int kTokens>
using Multiplier = std::conditional_t<kByGroups<kTokens>, GroupMultiplier<F, kTokens>, WarpMultiplier<F, kTokens>>;

// With `wgmma` a warp without a tile lends its share of the instructions to the others of its group, and multiplies
// what lies there.
template <WeightFormat F, int kTokens>
__device__ void multiply_slab(const KernelArguments& arguments, const Work& work, const SharedRows& rows,
                              std::byte* own_ring, std::uint32_t ring_barriers, float (&sums)[kTokens / 2]) {
  const int lane = threadIdx.x % 32;
  const std::byte* source = nullptr;
  if (work.exists) {
    source = work.matrix->data +
             (static_cast<std::size_t>(work.tile) * arguments.chunks + work.first_chunk) * chunk_bytes(F);
  }
  ChunkRing<F, true> ring(source, work.chunks, arguments.ring, own_ring, ring_barriers);
  ring.fetch_next();
  allow_next_kernel();
  __syncthreads();  // all barriers are there
  RowFetcher<kTokens> fetcher(arguments, work, rows);
  const bool fetches = threadIdx.x < 32;
  ring.fill([&] { return fetches || is_over(rows.full, 0); });
  if (fetches) {
    wait_for_previous_kernel();
    fetcher.fetch_first();
  }
  int slot = 0;
  int phase = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < work.chunks; ++chunk) {
    const std::byte* weights = !kByGroups<kTokens> || work.exists ? ring.take_next() : own_ring;
    wait_for_barrier(rows.full + slot * 8, phase);
    // The same in all lanes, which the compiler does not know of a loop with waits in it.
    const int at = kByGroups<kTokens> ? __shfl_sync(~0u, slot, 0) : slot;
    Multiplier<F, kTokens>(weights, rows.slots + at * row_slot_bytes(kTokens)).add_to(sums);
    ++slot;
    if constexpr (!has_all_rows(kTokens)) {
      if (lane == 0) arrive(rows.empty + slot * 8 - 8);
      // Where the chunk before lay: by now the other warps are done with that.
      if (fetches && chunk > 0) fetcher.fetch_next();
      if (slot == arguments.row_slots) {
        slot = 0;
        phase ^= 1;
      }
    }
    __syncwarp();
    ring.fetch_next();
  }
}

constexpr int kBoxPitch = kWorkers * kTileRows + 4;  // floats from a row to the next: a warp's fall into all banks

// A warp's sums to shared memory, [row][weight row of the block].
template <int kTokens>
__device__ void put_into_box(float* box, const float (&sums)[kTokens / 2]) {
  const int lane = threadIdx.x % 32;
  float* place = box + lane % 4 * 2 * kBoxPitch + threadIdx.x / 32 * kTileRows + lane / 4;
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) place[(i / 4 * 8 + i % 2) * kBoxPitch + i % 4 / 2 * 8] = sums[i];
}

// What comes after the sums of the block, whose first one is that of weight row `first`. Sixteen lanes have a tile.
__device__ void end_block(const KernelArguments& arguments, const KernelMatrix& matrix, int first, const float* box) {
  const JoinPartsOp& end = arguments.end;
  const RegisterImage image = image_of(end);
  const int columns = kWorkers * kTileRows / (arguments.is_paired ? 2 : 1);
  const int within = static_cast<int>(threadIdx.x) % columns;
  const int column = first + within;
  if (within >= arguments.block_tiles * kTileRows || column >= matrix.rows) return;
  float* parts = arguments.parts;
  if (parts != nullptr) parts += static_cast<std::size_t>(blockIdx.y) * arguments.rows * end.width + matrix.first_row;
#pragma unroll 2
  for (int row = threadIdx.x / columns; row < arguments.rows; row += kThreads / columns) {
    const float sum = box[row * kBoxPitch + within];
    if (arguments.is_paired) {
      const float value = end_glu(end, row, column, sum, box[row * kBoxPitch + columns + within]);
      if (end.halves != nullptr) image.put_by_half_warp(row, column, value);
    } else if (parts != nullptr) {
      parts[static_cast<std::size_t>(row) * end.width + column] = sum;
    } else {
      end_sum(end, row, matrix.first_row + column, sum);
    }
  }
}

#endif

template <int kTokens>
__global__ void __maxnreg__(max_registers(kTokens))
    register_gemm_kernel(const __grid_constant__ KernelArguments arguments) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ std::byte unaligned[];
  __shared__ std::uint64_t ring_barriers[kWorkers * kMaxRing];
  __shared__ std::uint64_t full_barriers[kMaxRowSlots];
  __shared__ std::uint64_t empty_barriers[kMaxRowSlots];
  const int warp = threadIdx.x / 32;
  const Work work(arguments, warp, kByGroups<kTokens>);
  // By a lane of each warp: by all threads, as many were made one after the other as a warp has lanes.
  if (is_elected()) {
#pragma unroll
    for (int i = 0; i < kMaxRing; ++i) init_barrier(shared_address(ring_barriers + warp * kMaxRing + i), 1);
#pragma unroll
    for (int i = 0; i < kMaxRowSlots; i += kWorkers) {
      init_barrier(shared_address(full_barriers + warp + i), 1);
      init_barrier(shared_address(empty_barriers + warp + i), work.multipliers);
    }
    show_to_tensor_cores();  // and to the copy engine
  }
  __syncwarp();
  const std::uint32_t base = shared_address(unaligned);
  std::byte* shared = unaligned + ((base + kAlignment - 1) / kAlignment * kAlignment - base);
  const std::uint32_t slots = shared_address(shared);
  const SharedRows rows{.slots = slots, .full = shared_address(full_barriers), .empty = shared_address(empty_barriers)};
  std::byte* rings = shared + arguments.row_slots * row_slot_bytes(kTokens);
  float sums[kTokens / 2] = {};
  if (work.multiplies) {
    with_integer_format(work.matrix->format, [&]<WeightFormat F>() {
      multiply_slab<F, kTokens>(arguments, work, rows, rings + warp * arguments.ring * arguments.chunk_bytes,
                                shared_address(ring_barriers + warp * kMaxRing), sums);
    });
  } else {
    __syncthreads();
  }
  auto* box = reinterpret_cast<float*>(shared);
  __syncthreads();  // nobody multiplies what lies there any more
  put_into_box<kTokens>(box, sums);
  __syncthreads();
  wait_for_previous_kernel();
  const Work first(arguments, 0, kByGroups<kTokens>);
  end_block(arguments, *first.matrix, first.tile * kTileRows, box);
#endif
}

template <typename Action>
void with_kernel(int tokens, const Action& action) {
  switch (tokens) {
    case 8: return action(register_gemm_kernel<8>);
    case 16: return action(register_gemm_kernel<16>);
    case 32: return action(register_gemm_kernel<32>);
    default: return action(register_gemm_kernel<64>);
  }
}

int largest_chunk(const PackedGemmOp& op) {
  int bytes = 0;
  for (int i = 0; i < op.matrix_count; ++i) bytes = std::max(bytes, chunk_bytes(op.matrices[i].format));
  return bytes;
}

// Enough on its way to keep the memory busy, and no more: what is asked for before it can be used holds up what the
// small kernel before still reads. False where there is too little shared memory.
bool fit(const LaunchContext& context, const PackedGemmOp& op, RegisterGemmPlan& plan) {
  const int tokens = image_rows(op.rows);
  const int beside = max_registers(tokens) * kThreads < 65536 ? kSharedBytesBeside : 0;
  const int room = context.shared_bytes - kStaticBytes - kAlignment - beside;
  const auto fits = [&](int ring, int row_slots) {
    return shared_bytes(tokens, row_slots, ring, largest_chunk(op)) <= room;
  };
  const int most = std::min(plan.slab_chunks, kMaxRowSlots);
  if (has_all_rows(tokens) && most < plan.slab_chunks) return false;
  for (int ring = has_all_rows(tokens) ? 2 : kMaxRing; ring >= 2; --ring) {
    plan.ring = std::min(ring, plan.slab_chunks);
    plan.row_slots = has_all_rows(tokens) ? most : std::min(3, most);
    if (!fits(plan.ring, plan.row_slots)) continue;
    while (plan.row_slots < most && fits(plan.ring, plan.row_slots + 1)) ++plan.row_slots;
    return true;
  }
  return false;
}

// In the times that 16 warps take for a chunk each: what the busiest multiprocessor does, and what parts cost on their
// way through the cache. Activations come out of it, and faster than weights out of memory.
double cost_of(const LaunchContext& context, const RegisterGemmPlan& plan, int blocks, int tokens, int chunk_bytes,
               double part_floats) {
  const int waves = (blocks * plan.slabs + context.multiprocessors - 1) / context.multiprocessors;
  const int tiles = plan.block_tiles * (plan.is_paired ? 2 : 1);
  const double whole = static_cast<double>(kWorkers * chunk_bytes);
  const double bytes = tiles * chunk_bytes + 0.6 * row_slot_bytes(tokens);
  const double joining = part_floats > 0.0 ? 1.5 + part_floats * 1.6e-6 : 0.0;
  return waves * (plan.slab_chunks * std::max(bytes / whole, 0.4) + 1.5) + joining;
}

bool has_parts(const RegisterGemmPlan& plan, PartsEnd end) {
  return plan.slabs > 1 || (end == PartsEnd::glu && !plan.is_paired);
}

}  // namespace

int image_rows(int rows) { return rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : 64; }

std::size_t register_image_numbers(int rows, int columns) {
  const int chunks = (columns + kChunkColumns - 1) / kChunkColumns;
  return static_cast<std::size_t>(chunk_image_numbers(image_rows(rows))) * static_cast<std::size_t>(chunks);
}

std::optional<RegisterGemmPlan> plan_register_gemm(const LaunchContext& context, const PackedGemmOp& op,
                                                   const JoinPartsOp& end, std::size_t part_floats) {
  if (!context.has_wgmma || op.rows > kMaxRegisterGemmRows || op.columns > kMaxImageColumns) return std::nullopt;
  for (int i = 0; i < op.matrix_count; ++i) {
    if (!has_integer_operands(op.matrices[i].format)) return std::nullopt;
  }
  const int chunks = op.matrices[0].chunks();
  const bool can_pair = end.end == PartsEnd::glu;
  if (can_pair && op.matrices[0].rows % kMeanColumns != 0) return std::nullopt;  // images have whole means
  std::optional<RegisterGemmPlan> best;
  double least = 0.0;
  // By the room that rows have, not by their number: then a row's bits do not depend on how many there are.
  const int rows = image_rows(op.rows);
  const auto consider = [&](RegisterGemmPlan plan, int blocks) {
    const double floats = has_parts(plan, end.end) ? static_cast<double>(plan.slabs) * rows * op.width() : 0.0;
    if (floats > static_cast<double>(part_floats) || !fit(context, op, plan)) return;
    const double cost = cost_of(context, plan, blocks, rows, largest_chunk(op), floats);
    if (best && cost >= least) return;
    least = cost;
    best = plan;
  };
  for (int tiles = 1; tiles <= kWorkers; ++tiles) {
    int blocks = 0;
    for (int i = 0; i < op.matrix_count; ++i) blocks += (op.matrices[i].tiles() + tiles - 1) / tiles;
    for (int slabs = 1; slabs <= std::min(chunks, 16); ++slabs) {
      const int slab_chunks = (chunks + slabs - 1) / slabs;
      if ((chunks + slab_chunks - 1) / slab_chunks != slabs) continue;
      consider({.block_tiles = tiles, .slab_chunks = slab_chunks, .slabs = slabs}, blocks);
    }
    if (can_pair && 2 * tiles <= kWorkers) {
      consider({.block_tiles = tiles, .slab_chunks = chunks, .slabs = 1, .is_paired = true}, blocks / 2);
    }
  }
  return best;
}

void prepare_register_gemm(const LaunchContext& context) {
  if (!context.has_wgmma) return;
  for (const int tokens : {8, 16, 32, 64}) {
    with_kernel(tokens,
                [&](auto kernel) { allow_shared_bytes("register gemm", kernel, context.shared_bytes - kStaticBytes); });
  }
}

std::optional<JoinPartsOp> register_gemm(const LaunchContext& context, const PackedGemmOp& op,
                                         const RegisterGemmPlan& plan, JoinPartsOp end) {
  const bool joins = has_parts(plan, end.end);
  end.parts = op.parts;
  end.slabs = plan.slabs;
  end.rows = op.rows;
  end.width = op.width();
  KernelArguments arguments{.image = op.in,
                            .rows = op.rows,
                            .matrices = {},
                            .chunks = op.matrices[0].chunks(),
                            .slab_chunks = plan.slab_chunks,
                            .block_tiles = plan.block_tiles,
                            .is_paired = plan.is_paired,
                            .ring = plan.ring,
                            .chunk_bytes = largest_chunk(op),
                            .row_slots = plan.row_slots,
                            .parts = joins ? op.parts : nullptr,
                            .end = end};
  int blocks = 0;
  int first_row = 0;
  for (int i = 0; i < op.matrix_count; ++i) {
    const PackedMatrix& matrix = op.matrices[i];
    const int of_matrix = (matrix.tiles() + plan.block_tiles - 1) / plan.block_tiles;
    arguments.matrices[i] = {.data = matrix.data,
                             .rows = matrix.rows,
                             .tiles = matrix.tiles(),
                             .blocks = of_matrix,
                             .first_row = first_row,
                             .format = matrix.format};
    if (!plan.is_paired || i == 0) blocks += of_matrix;
    first_row += matrix.rows;
  }
  const int tokens = image_rows(op.rows);
  const int bytes = shared_bytes(tokens, plan.row_slots, plan.ring, arguments.chunk_bytes) + kAlignment;
  with_kernel(tokens, [&](auto kernel) {
    launch("register gemm", context, kernel, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(plan.slabs)),
           dim3(kThreads), bytes, arguments);
  });
  if (!joins) return std::nullopt;
  return end;
}

}  // namespace quarrel::cuda
