// Blocks and slots as opaque bytes: copies, export and import, and that a sequence goes on from them.
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/harness.h"

namespace quarrel::test {
namespace {

constexpr std::int32_t kHeads = 2;
constexpr std::int32_t kDim = 8;
constexpr std::int32_t kPositions = 36;

// A cache of two groups with an attention layer in each.
struct CacheBench {
  OpBench bench;
  KvType type;
  std::vector<KvGroup> groups = {{.layers = 2, .kv_heads = kHeads, .key_dim = kDim, .value_dim = kDim},
                                 {.layers = 1, .kv_heads = kHeads, .key_dim = kDim, .value_dim = kDim}};
  QkvOp qkv;
  AttendOp attend;

  CacheBench(const DeviceUnderTest& device, KvType kv_type) : bench(device), type(kv_type) {
    qkv = {.kv_group = 1,
           .x = bench.input(random_grid(kPositions, 32, 80)),
           .q = bench.matrix(random_grid(kHeads * kDim, 32, 81)),
           .k = bench.matrix(random_grid(kHeads * kDim, 32, 82)),
           .v = bench.matrix(random_grid(kHeads * kDim, 32, 83)),
           .heads = kHeads,
           .kv_heads = kHeads,
           .key_dim = kDim,
           .value_dim = kDim,
           .q_out = bench.activation(kHeads * kDim)};
    attend = {.kv_group = 1,
              .q = qkv.q_out,
              .out = bench.activation(kHeads * kDim),
              .heads = kHeads,
              .kv_heads = kHeads,
              .key_dim = kDim,
              .value_dim = kDim,
              .scale = 0.3f};
    bench.cache(
        {.groups = groups, .state_layers = {}, .kv_type = type, .blocks = std::vector<std::int32_t>(groups.size(), 8)});
  }
  Floats run(std::int32_t position, std::int32_t count, const std::vector<std::int32_t>& table) {
    const std::vector<std::int32_t> other(table.size(), 7);
    return bench.run(StepPlan().add(position, count, {.tables = {other, table}}), attend.out, [&](Backend& b) {
      b.qkv(qkv);
      b.attend(attend);
    });
  }
};

TEST(Memory, CopiedBlocksContinueASequence) {
  for_each_device([](const DeviceUnderTest& device) {
    CacheBench bench(device, KvType::f16);
    ASSERT_EQ(bench.bench.backend().block_tokens(), 16);
    const Floats all = bench.run(0, kPositions, {0, 1, 2});
    bench.bench.backend().copy_block(1, 0, 5);
    bench.bench.backend().copy_block(1, 1, 3);
    EXPECT_EQ(bench.run(32, 4, {5, 3, 4}).values, bench.run(32, 4, {0, 1, 2}).values);
    EXPECT_EQ(bench.run(35, 1, {5, 3, 4}).row(0), all.row(35));
  });
}

TEST(Memory, ExportAndImportOfBlocks) {
  for_each_device([](const DeviceUnderTest& device) {
    for (const KvType type : {KvType::f32, KvType::f16}) {
      CacheBench source(device, type);
      const Floats all = source.run(0, kPositions, {0, 1, 2});
      CacheBench target(device, type);
      target.run(0, 1, {0});  // reserves
      std::vector<std::byte> bytes(source.bench.backend().kv_bytes(source.groups[1], type));
      for (const auto& [from, to] : {std::pair{0, 6}, std::pair{1, 2}, std::pair{2, 4}}) {
        source.bench.backend().export_block(1, from, bytes);
        target.bench.backend().import_block(1, to, bytes);
      }
      EXPECT_EQ(target.run(35, 1, {6, 2, 4}).row(0), all.row(35));
      bytes.pop_back();
      EXPECT_THROW(source.bench.backend().export_block(1, 0, bytes), Error);
      EXPECT_THROW(target.bench.backend().import_block(1, 0, bytes), Error);
    }
  });
}

TEST(Memory, AHalfCacheIsHalfAsLarge) {
  for_each_device([](const DeviceUnderTest& device) {
    const auto backend = device.device.make_backend({});
    const KvGroup group{.layers = 3, .kv_heads = 2, .key_dim = 32, .value_dim = 16};
    EXPECT_EQ(backend->kv_bytes(group, KvType::f32), 2 * backend->kv_bytes(group, KvType::f16));
    EXPECT_GE(backend->kv_bytes(group, KvType::f16), 3u * 2 * 48 * 2 * as_size(backend->block_tokens()));
  });
}

TEST(Memory, SlotsCopyExportAndImport) {
  for_each_device([](const DeviceUnderTest& device) {
    OpBench bench(device);
    const std::vector<StateLayer> layers = {{.conv_values = 7, .scan_values = 3}, {.conv_values = 1, .scan_values = 5}};
    bench.cache({.groups = {}, .state_layers = layers, .kv_type = KvType::f32, .blocks = {}, .state_slots = 3});
    Backend& backend = bench.backend();
    const std::size_t size = backend.state_bytes(layers);
    ASSERT_GE(size, 16 * sizeof(float));
    std::vector<std::byte> first(size);
    std::vector<std::byte> second(size);
    for (std::size_t i = 0; i < size; ++i) {
      first[i] = static_cast<std::byte>(i * 7 % 100);
      second[i] = static_cast<std::byte>(i * 11 % 100);
    }
    backend.import_slot(0, first);
    backend.import_slot(1, second);
    backend.copy_slot(1, 2);
    std::vector<std::byte> read(size);
    for (const auto& [slot, expected] : {std::pair{0, &first}, std::pair{1, &second}, std::pair{2, &second}}) {
      backend.export_slot(slot, read);
      EXPECT_EQ(read, *expected) << "slot " << slot;
    }
    EXPECT_THROW(backend.import_slot(0, std::span(read).first(size - 1)), Error);
    EXPECT_THROW(backend.export_slot(0, std::span(read).first(size - 1)), Error);
  });
}

TEST(Memory, VectorsAreCountedAsPrepared) {
  for_each_device([](const DeviceUnderTest& device) {
    OpBench bench(device);
    const std::size_t before = bench.backend().prepared_bytes();
    bench.vector(std::vector<float>(100, 1.0f));
    EXPECT_GE(bench.backend().prepared_bytes(), before + 400);
    EXPECT_GT(device.device.memory_available(), 0u);
    EXPECT_GE(bench.backend().workspace_bytes({.rows = 8, .outputs = 8}, 1000), 8u * 1000 * sizeof(float));
  });
}

TEST(Memory, ImpossibleWeightsAreRefused) {
  for_each_device([](const DeviceUnderTest& device) {
    const auto backend = device.device.make_backend({});
    const std::vector<std::byte> bytes(1024);
    const WeightSource good{.name = "w", .type = QuantType::q8_0, .rows = 2, .columns = 64, .data = bytes.data()};
    EXPECT_TRUE(backend->prepare_weight(good).valid());
    for (const std::int64_t columns : {std::int64_t{0}, std::int64_t{33}, std::int64_t{-32}, std::int64_t{1} << 40}) {
      WeightSource bad = good;
      bad.columns = columns;
      EXPECT_THROW(backend->prepare_weight(bad), Error) << columns;
    }
    WeightSource no_rows = good;
    no_rows.rows = 0;
    EXPECT_THROW(backend->prepare_weight(no_rows), Error);
  });
}

}  // namespace
}  // namespace quarrel::test
