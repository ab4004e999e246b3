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
struct CacheFixture {
  OpFixture fixture;
  KvType type;
  std::vector<KvGroup> groups = {{.layers = 2, .kv_heads = kHeads, .key_dim = kDim, .value_dim = kDim},
                                 {.layers = 1, .kv_heads = kHeads, .key_dim = kDim, .value_dim = kDim}};
  QkvOp qkv;
  AttendOp attend;

  CacheFixture(const DeviceUnderTest& device, KvType kv_type) : fixture(device), type(kv_type) {
    qkv = {.kv_group = 1,
           .x = fixture.input(random_matrix(kPositions, 32, 80)),
           .q = fixture.matrix(random_matrix(kHeads * kDim, 32, 81)),
           .k = fixture.matrix(random_matrix(kHeads * kDim, 32, 82)),
           .v = fixture.matrix(random_matrix(kHeads * kDim, 32, 83)),
           .heads = kHeads,
           .kv_heads = kHeads,
           .key_dim = kDim,
           .value_dim = kDim,
           .q_out = fixture.activation(kHeads * kDim)};
    attend = {.kv_group = 1,
              .q = qkv.q_out,
              .out = fixture.activation(kHeads * kDim),
              .heads = kHeads,
              .kv_heads = kHeads,
              .key_dim = kDim,
              .value_dim = kDim,
              .scale = 0.3f};
    fixture.cache(
        {.groups = groups, .state_layers = {}, .kv_type = type, .blocks = std::vector<std::int32_t>(groups.size(), 8)});
  }
  Floats run(std::int32_t position, std::int32_t count, const std::vector<std::int32_t>& table,
             const std::vector<BlockCopy>& copies = {}) {
    const std::vector<std::int32_t> other(table.size(), 7);
    StepPlan plan = StepPlan().add(position, count, {.tables = {other, table}});
    plan.block_copies = copies;
    return fixture.run(plan, attend.out, [&](Backend& b) {
      b.qkv(qkv);
      b.attend(attend);
    });
  }
};

TEST(Memory, CopiedBlocksContinueASequence) {
  for_each_device([](const DeviceUnderTest& device) {
    CacheFixture fixture(device, KvType::f16);
    ASSERT_EQ(fixture.fixture.backend().block_tokens(), 16);
    const Floats all = fixture.run(0, kPositions, {0, 1, 2});
    // In their order: block 6 is what 0 was, and so is 5.
    const std::vector<BlockCopy> copies = {{.group = 1, .from = 0, .to = 6},
                                           {.group = 1, .from = 6, .to = 5},
                                           {.group = 1, .from = 1, .to = 3},
                                           {.group = 1, .from = 1, .to = 6}};
    const Floats copied = fixture.run(32, 4, {5, 3, 4}, copies);
    EXPECT_EQ(copied.values, fixture.run(32, 4, {0, 1, 2}).values);
    EXPECT_EQ(fixture.run(35, 1, {5, 3, 4}).row(0), all.row(35));
  });
}

TEST(Memory, ExportAndImportOfBlocks) {
  for_each_device([](const DeviceUnderTest& device) {
    for (const KvType type : {KvType::f32, KvType::f16}) {
      CacheFixture source(device, type);
      const Floats all = source.run(0, kPositions, {0, 1, 2});
      CacheFixture target(device, type);
      target.run(0, 1, {0});  // reserves
      std::vector<std::byte> bytes(source.fixture.backend().kv_bytes(source.groups[1], type));
      for (const auto& [from, to] : {std::pair{0, 6}, std::pair{1, 2}, std::pair{2, 4}}) {
        Backend& backend = source.fixture.backend();
        const Ticket ticket = backend.start_export_block(1, from, bytes);
        backend.await_transfer(ticket);
        EXPECT_TRUE(backend.transfer_done(ticket));
        target.fixture.backend().await_transfer(target.fixture.backend().start_import_block(1, to, bytes));
      }
      EXPECT_EQ(target.run(35, 1, {6, 2, 4}).row(0), all.row(35));
      Backend& backend = source.fixture.backend();
      const auto refuses = [&](std::int32_t group, std::int32_t block) {
        EXPECT_THROW(backend.await_transfer(backend.start_export_block(group, block, bytes)), Error);
        EXPECT_THROW(backend.await_transfer(backend.start_import_block(group, block, bytes)), Error);
      };
      refuses(2, 0);
      refuses(-1, 0);
      refuses(1, 8);
      refuses(1, -1);
      bytes.pop_back();
      refuses(1, 0);
    }
  });
}

// Rows that a device adds have no place in the cache: what was there stays.
TEST(Memory, PaddingWritesNoBlock) {
  for_each_device([](const DeviceUnderTest& device) {
    CacheFixture fixture(device, KvType::f32);
    fixture.run(0, 16, {0});
    Backend& backend = fixture.fixture.backend();
    const auto read = [&](std::int32_t block) {
      std::vector<std::byte> bytes(backend.kv_bytes(fixture.groups[1], KvType::f32));
      backend.await_transfer(backend.start_export_block(1, block, bytes));
      return bytes;
    };
    const std::vector<std::byte> before = read(0);
    const std::vector<std::byte> unused = read(5);
    fixture.run(16, 5, {0, 3});  // five rows in a bucket of eight
    EXPECT_EQ(read(0), before);
    EXPECT_EQ(read(5), unused);
    EXPECT_NE(read(3), unused);
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
    OpFixture fixture(device);
    const std::vector<StateLayer> layers = {{.conv_values = 7, .scan_values = 3}, {.conv_values = 1, .scan_values = 5}};
    fixture.cache({.groups = {}, .state_layers = layers, .kv_type = KvType::f32, .blocks = {}, .state_slots = 3});
    Backend& backend = fixture.backend();
    const std::size_t size = backend.state_bytes(layers);
    ASSERT_GE(size, 16 * sizeof(float));
    std::vector<std::byte> first(size);
    std::vector<std::byte> second(size);
    for (std::size_t i = 0; i < size; ++i) {
      first[i] = static_cast<std::byte>(i * 7 % 100);
      second[i] = static_cast<std::byte>(i * 11 % 100);
    }
    backend.await_transfer(backend.start_import_slot(0, first));
    backend.await_transfer(backend.start_import_slot(1, second));
    StepPlan copying;
    copying.slot_copies = {{.from = 1, .to = 2}};
    fixture.run(copying, [](Backend&) {});  // a step may have copies and no rows
    std::vector<std::byte> read(size);
    for (const auto& [slot, expected] : {std::pair{0, &first}, std::pair{1, &second}, std::pair{2, &second}}) {
      backend.await_transfer(backend.start_export_slot(slot, read));
      EXPECT_EQ(read, *expected) << "slot " << slot;
    }
    const std::span<std::byte> shorter = std::span(read).first(size - 1);
    EXPECT_THROW(backend.await_transfer(backend.start_import_slot(0, shorter)), Error);
    EXPECT_THROW(backend.await_transfer(backend.start_export_slot(0, shorter)), Error);
    EXPECT_THROW(backend.await_transfer(backend.start_import_slot(3, read)), Error);
    EXPECT_THROW(backend.await_transfer(backend.start_export_slot(-1, read)), Error);
    EXPECT_THROW(backend.await_transfer(1000), Error) << "never started";
  });
}

TEST(Memory, VectorsAreCountedAsPrepared) {
  for_each_device([](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    const std::size_t before = fixture.backend().prepared_bytes();
    fixture.vector(std::vector<float>(100, 1.0f));
    EXPECT_GE(fixture.backend().prepared_bytes(), before + 400);
    EXPECT_GT(device.device.memory_available(), 0u);
    EXPECT_GE(device.device.memory_total(), device.device.memory_available());
    EXPECT_EQ(device.device.ordinal(), 0);
    EXPECT_TRUE(device.device.supports(ActivationPrecision::f32));
    EXPECT_GE(fixture.backend().workspace_bytes({.rows = 8, .outputs = 8}, 1000), 8u * 1000 * sizeof(float));
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
