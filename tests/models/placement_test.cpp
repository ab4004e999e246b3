// Which device a model goes to, where one falls back to another.
#include "engine/placement.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/error.h"
#include "support/other_device.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

class PlacementTest : public testing::Test {
 protected:
  GgufFile dense() const { return GgufFile::open(write_toy("llama", folder_.path())); }
  GgufFile experts() const { return GgufFile::open(write_toy("mixtral", folder_.path())); }

  // A device called "first" that falls back to one called "second".
  static std::shared_ptr<OtherDevice> pair(OtherLimits first, OtherLimits second = {}) {
    first.name = "first";
    second.name = "second";
    const auto device = std::make_shared<OtherDevice>(std::move(first));
    device->set_fallback([second] { return std::make_shared<OtherDevice>(second); });
    return device;
  }
  static void expect_refusal(ErrorKind kind, const std::vector<std::string>& words, const GgufFile& file,
                             const std::shared_ptr<Device>& device, const ExecutorOptions& options,
                             const BudgetOf& budget_of = {}) {
    try {
      place_model(file, device, options, budget_of);
      ADD_FAILURE() << "it was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      for (const std::string& word : words) {
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
      }
    }
  }
  static void expect_moved(const Placement& placed, const std::vector<std::string>& words) {
    EXPECT_EQ(placed.device->name(), "second");
    for (const std::string& word : words) {
      EXPECT_NE(placed.moved.find(word), std::string::npos) << placed.moved;
    }
  }

  const TempDir folder_;
};

TEST_F(PlacementTest, StaysWhereItFits) {
  const auto device = pair({});
  const Placement placed = place_model(dense(), device, {});
  EXPECT_EQ(placed.device, device);
  EXPECT_EQ(placed.moved, "");
  EXPECT_EQ(placed.memory.context, 512);
}

TEST_F(PlacementTest, GoesWhereThereIsMemory) {
  expect_moved(place_model(dense(), pair({.memory = 100'000}), {}),
               {"runs on the second, not on first on", "MiB are free"});
}

// What the one cannot compute the other can.
TEST_F(PlacementTest, GoesWhereThereAreTheMeans) {
  const OtherLimits coarse{.activations = {ActivationPrecision::int8_split}};
  const ExecutorOptions exact{.activations = ActivationPrecision::f32};
  expect_moved(place_model(dense(), pair(coarse), exact), {"coarser than f32 (--activations)"});
  expect_refusal(ErrorKind::unsupported, {"first multiplies", "coarser than f32"}, dense(), pair(coarse, coarse),
                 exact);
  const MemoryPlan whole = plan_memory(experts(), *pair({}), {});
  const ExecutorOptions some{.expert_memory = whole.expert_weights / 2};
  expect_moved(place_model(experts(), pair({.expert_cache = false}), some), {"no cache of experts"});
}

// More than a few tokens of context are worth another device, unless they were asked for.
TEST_F(PlacementTest, GoesWhereThereIsAUsualContext) {
  const MemoryPlan whole = plan_memory(dense(), *pair({}), {.repack = false});
  const std::size_t tight = (whole.anonymous() - whole.kv / 2) / 9 * 10;
  const Placement placed = place_model(dense(), pair({.memory = tight}), {.repack = false});
  const MemoryPlan narrow = plan_memory(dense(), *pair({.memory = tight}), {.repack = false});
  ASSERT_LT(narrow.context, 512);
  expect_moved(placed, {"a context of only " + std::to_string(narrow.context) + " tokens"});
  EXPECT_EQ(placed.memory.context, 512);
  EXPECT_EQ(place_model(dense(), pair({.memory = tight}), {.context = 16, .repack = false}).device->name(), "first");
  EXPECT_EQ(place_model(dense(), pair({.memory = tight}, {.memory = tight}), {.repack = false}).device->name(), "first")
      << "the other has no more";
}

TEST_F(PlacementTest, IsRefusedWithBothReasons) {
  expect_refusal(ErrorKind::out_of_memory, {"first: ", "; second: "}, dense(),
                 pair({.memory = 100'000}, {.memory = 100'000}), {.context = 512});
}

// Each device has its own, and the request's own holds on both.
TEST_F(PlacementTest, KeepsBudgets) {
  const auto device = pair({});
  const MemoryPlan whole = plan_memory(dense(), *device, {});
  const auto budget_of = [&](const Device& of) { return &of == device.get() ? 100'000 : 2 * whole.total(); };
  const Placement placed = place_model(dense(), device, {}, budget_of);
  expect_moved(placed, {"are allowed (--memory-budget)"});
  EXPECT_EQ(placed.options.memory_budget, 2 * whole.total());
  EXPECT_EQ(place_model(dense(), device, {.memory_budget = whole.total()}, budget_of).options.memory_budget,
            whole.total());
  expect_refusal(ErrorKind::out_of_memory, {"first: ", "second: "}, dense(), device,
                 {.context = 512, .memory_budget = 50'000}, budget_of);
}

// Without a cache of experts a model of experts has the context that its budget leaves, or goes elsewhere.
TEST_F(PlacementTest, OfExpertsWhereNoCacheIsKept) {
  const auto device = pair({.expert_cache = false});
  const MemoryPlan whole = plan_memory(experts(), *device, {});
  const Placement shorter = place_model(experts(), std::make_shared<OtherDevice>(OtherLimits{.expert_cache = false}),
                                        {.memory_budget = whole.total() - whole.kv / 2});
  EXPECT_GT(shorter.memory.context, 0);
  EXPECT_LT(shorter.memory.context, 512);
  EXPECT_FALSE(shorter.memory.expert_cache);
  const Placement placed =
      place_model(experts(), device, {.context = 512, .memory_budget = whole.total() - whole.expert_weights / 2});
  expect_moved(placed, {"would fit (--ctx)"});
  EXPECT_TRUE(placed.memory.expert_cache);
}

}  // namespace
}  // namespace quarrel::test
