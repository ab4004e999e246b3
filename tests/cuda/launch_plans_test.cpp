// Whether kernels find room on GPUs that are not at hand: how a launch divides the shared memory is arithmetic alone,
// and needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "backend/cuda/expert_gemv.h"
#include "backend/cuda/expert_matrix.h"
#include "backend/cuda/fused_experts.h"
#include "backend/cuda/gemv.h"
#include "backend/cuda/grouped_gemm.h"

namespace quarrel::cuda {
namespace {

constexpr std::array kFormats = {WeightFormat::q4_0, WeightFormat::q4_1, WeightFormat::q5_0, WeightFormat::q5_1,
                                 WeightFormat::q8_0, WeightFormat::q4_k, WeightFormat::q5_k, WeightFormat::q6_k};

// Shared memory a thread block may have, and multiprocessors: of smaller GPUs, of an A100, of Hopper.
struct Machine {
  int shared_kib;
  int multiprocessors;
};
constexpr Machine kMachines[] = {{99, 16}, {99, 24},  {99, 28},  {99, 46},   {99, 60},   {99, 68},  {99, 82},
                                 {99, 84}, {99, 128}, {99, 188}, {163, 108}, {227, 114}, {227, 132}};

LaunchContext context_of(const Machine& machine) {
  return {.multiprocessors = machine.multiprocessors, .shared_bytes = machine.shared_kib * 1024};
}

std::byte somewhere;  // nobody looks there

PackedMatrix matrix_of(WeightFormat format, int rows, int columns) {
  return {.data = &somewhere, .format = format, .rows = rows, .columns = columns};
}

// ---- GEMV ----

struct GemvCase {
  const char* name;
  GemvOp op;
};

// What layers ask for: one matrix; gate and up; q, k and v with heads of neighbouring pairs or of halves.
std::vector<GemvCase> gemv_cases(WeightFormat format, int columns, int rows) {
  std::vector<GemvCase> cases;
  const SplitInput input{.columns = columns, .norm = NormKind::rms};
  GemvOp one{.input = input};
  one.matrices[0].weight = matrix_of(format, rows, columns);
  cases.push_back({"one matrix", one});
  GemvOp glu{.input = input, .matrix_count = 2, .output = GemvOutput::glu};
  glu.matrices[0].weight = glu.matrices[1].weight = matrix_of(format, rows, columns);
  cases.push_back({"glu", glu});
  for (const bool halves : {false, true}) {
    GemvOp qkv{.input = input, .matrix_count = 3, .output = GemvOutput::qkv};
    for (GemvMatrix& matrix : qkv.matrices) matrix.weight = matrix_of(format, 1024, columns);
    qkv.matrices[2].weight.format = WeightFormat::q6_k;  // as the usual mixtures have it
    qkv.qkv.kv.dim = 64;
    qkv.qkv.half_split = halves;
    cases.push_back({halves ? "q, k and v, halves" : "q, k and v", qkv});
  }
  return cases;
}

std::string named(const Machine& machine, const char* name, WeightFormat format, int columns, int rows) {
  return std::string(name) + ", format " + std::to_string(static_cast<int>(format)) + ", " + std::to_string(columns) +
         " columns, " + std::to_string(rows) + " rows, " + std::to_string(machine.shared_kib) + " KiB, " +
         std::to_string(machine.multiprocessors) + " multiprocessors";
}

template <typename Check>
void for_each_gemv(const Machine& machine, const Check& check) {
  for (const WeightFormat format : kFormats) {
    for (const int columns : {256, 576, 2048, 4096, 5632, 8192, 14336, 28672}) {
      for (const int outputs : {512, 14336}) {
        for (GemvCase& each : gemv_cases(format, columns, outputs)) {
          for (int rows = 1; rows <= kMaxSplitRows; ++rows) {
            each.op.input.count = rows;
            check(each.op, named(machine, each.name, format, columns, rows));
          }
        }
      }
    }
  }
}

// In parts, if all of them are too many.
TEST(LaunchPlans, EveryGemvHasRoomEverywhere) {
  for (const Machine& machine : kMachines) {
    const LaunchContext context = context_of(machine);
    for_each_gemv(machine, [&](const GemvOp& op, const std::string& what) {
      const int most = rows_of_a_launch(context, op);
      ASSERT_GE(most, 1) << what;
      EXPECT_TRUE(gemv_has_room(context, part_of(op, 0, std::min(most, op.input.count)))) << what;
    });
  }
}

// Single rows and pairs of them never wait for a kernel that splits them, where blocks have Hopper's memory or an
// A100's and rows are those of the models in use.
TEST(LaunchPlans, LargeGpusTakeRowsWhole) {
  for (const Machine& machine : kMachines) {
    if (machine.shared_kib < 163) continue;
    const LaunchContext context = context_of(machine);
    for_each_gemv(machine, [&](const GemvOp& op, const std::string& what) {
      EXPECT_GE(rows_of_a_launch(context, op), op.input.count) << what;
      if (op.input.columns <= 14336 && op.input.count <= kMaxFusedSplitRows) {
        EXPECT_EQ(gemv_rows(context, op), op.input.count) << what;
      }
    });
  }
}

// A part has the op's pointers where its rows begin.
TEST(LaunchPlans, PartsOfAGemv) {
  std::array<float, 64> in{};
  std::array<float, 64> out{};
  std::array<float, 64> angles{};
  std::array<std::int32_t, 16> bad{};
  std::array<std::int32_t, 16> rows{};
  GemvOp op{.input = {.rows = in.data(), .stride = 4, .columns = 4, .count = 16, .first_bad_layer = bad.data()},
            .output = GemvOutput::qkv,
            .qkv = {.rows = {.positions = rows.data(), .sequences = rows.data(), .first_new = rows.data(), .count = 16},
                    .angles = angles.data(),
                    .pairs = 2}};
  op.matrices[0].out = out.data();
  op.matrices[0].stride = 3;
  const GemvOp part = part_of(op, 8, 5);
  EXPECT_EQ(part.input.rows, in.data() + 32);
  EXPECT_EQ(part.input.count, 5);
  EXPECT_EQ(part.input.first_bad_layer, bad.data() + 8);
  EXPECT_EQ(part.matrices[0].out, out.data() + 24);
  EXPECT_EQ(part.matrices[1].out, nullptr);
  EXPECT_EQ(part.qkv.rows.positions, rows.data() + 8);
  EXPECT_EQ(part.qkv.rows.count, 5);
  EXPECT_EQ(part.qkv.angles, angles.data() + 32);
}

// ---- Experts ----

struct ExpertShape {
  const char* name;
  WeightFormat in;
  WeightFormat down;
  int width, hidden, experts, used;
  int shared_hidden;  // 0: there is no shared expert
  bool gated = true;
};
constexpr ExpertShape kExperts[] = {
    {"gpt-oss", WeightFormat::mxfp4, WeightFormat::mxfp4, 2880, 2880, 32, 4, 0},
    {"Mixtral", WeightFormat::q4_k, WeightFormat::q6_k, 4096, 14336, 8, 2, 0},
    {"OLMoE", WeightFormat::q6_k, WeightFormat::q6_k, 2048, 1024, 64, 8, 0},
    {"Qwen1.5-MoE", WeightFormat::q8_0, WeightFormat::q8_0, 2048, 1408, 60, 4, 5632},
    {"granite4-tiny-h", WeightFormat::q4_k, WeightFormat::q6_k, 1536, 512, 64, 6, 1024},
    {"Nemotron-3-Nano", WeightFormat::q5_0, WeightFormat::q8_0, 2688, 1856, 128, 6, 3712, false},
    {"a toy", WeightFormat::q4_0, WeightFormat::q4_0, 64, 64, 4, 2, 64},
};

FusedExpertsOp experts_of(const ExpertShape& shape) {
  FusedExpertsOp op;
  op.route.logits.width = shape.experts;
  op.route.used = shape.used;
  op.input.columns = shape.width;
  op.in_count = shape.gated ? 2 : 1;
  for (int i = 0; i < op.in_count; ++i) op.in[i].packed = matrix_of(shape.in, shape.hidden, shape.width);
  op.down.packed = matrix_of(shape.down, shape.width, shape.hidden);
  if (shape.shared_hidden == 0) return op;
  for (int i = 0; i < op.in_count; ++i) op.shared_in[i].packed = matrix_of(shape.in, shape.shared_hidden, shape.width);
  op.shared_down.packed = matrix_of(shape.down, shape.width, shape.shared_hidden);
  return op;
}

// Where fused kernels are chosen they have room for as many rows as they are given, not just for those they were asked
// about.
TEST(LaunchPlans, FusedExpertsHaveRoomForEveryNumberOfRows) {
  int chosen = 0;
  for (const Machine& machine : kMachines) {
    const LaunchContext context = context_of(machine);
    for (const ExpertShape& shape : kExperts) {
      FusedExpertsOp op = experts_of(shape);
      op.input.count = 1;
      if (!can_run_fused_experts(context, op)) continue;
      ++chosen;
      ASSERT_GE(most_fused_expert_rows(context), 1);
      for (op.input.count = 1; op.input.count <= most_fused_expert_rows(context); ++op.input.count) {
        EXPECT_TRUE(fused_experts_have_room(context, op))
            << shape.name << ", " << op.input.count << " rows, " << machine.shared_kib << " KiB, "
            << machine.multiprocessors << " multiprocessors";
      }
    }
  }
  EXPECT_GT(chosen, 50);
}

// Experts that are not fused are computed one by one or sorted: all of a layer's matrices have room for the one or for
// the other.
TEST(LaunchPlans, OtherExpertsHaveRoomEverywhere) {
  for (const Machine& machine : kMachines) {
    const LaunchContext context = context_of(machine);
    for (const ExpertShape& shape : kExperts) {
      const std::array matrices = {matrix_of(shape.in, shape.hidden, shape.width),
                                   matrix_of(shape.down, shape.width, shape.hidden)};
      const auto all = [&](auto can_run) {
        return std::ranges::all_of(matrices, [&](const PackedMatrix& matrix) { return can_run(context, matrix); });
      };
      EXPECT_TRUE(all(can_run_grouped_gemm) || all(can_run_expert_gemv))
          << shape.name << ", " << machine.shared_kib << " KiB";
    }
  }
}

TEST(LaunchPlans, FusedExpertsNeedTwoMultiprocessorsARow) {
  const FusedExpertsOp op = experts_of(kExperts[4]);
  EXPECT_EQ(most_fused_expert_rows(context_of({227, 132})), kMaxFusedExpertRows);
  EXPECT_EQ(most_fused_expert_rows(context_of({99, 24})), 12);
  EXPECT_FALSE(can_run_fused_experts(context_of({99, 3}), op));
}

}  // namespace
}  // namespace quarrel::cuda
