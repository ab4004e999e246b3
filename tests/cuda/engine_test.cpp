// The engine on a GPU: conversations that share their beginnings, crowds, cancellation and exchanged models, all under
// `deterministic`, so that an answer's bits are its own.
#include "cuda/cuda_test.h"
#include "engine/cancel_storm.h"
#include "engine/served.h"
#include "session/registry_fixture.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

constexpr std::int32_t kContext = 256;

Setting on_gpu(Setting setting) {
  setting.backend = "cuda";
  setting.deterministic = true;
  return setting;
}

// Dense, hybrid with experts, experts with a window and sinks.
class CudaEngine : public CudaTest, public testing::WithParamInterface<const char*> {
 protected:
  std::filesystem::path model() const {
    return write_toy(GetParam(), folder_.path(), {.type = QuantType::q8_0, .context = kContext});
  }
  TempDir folder_;
};
INSTANTIATE_TEST_SUITE_P(Toys, CudaEngine, testing::Values("llama", "granitehybrid", "gpt-oss"), [](const auto& toy) {
  std::string name = toy.param;
  std::erase(name, '-');
  return name;
});

TEST_P(CudaEngine, TenTurnsWithACachedPrefix) { expect_turns_to_share(model(), kContext, on_gpu({})); }

TEST_P(CudaEngine, ACrowdChangesNothing) {
  expect_a_crowd_changes_nothing(
      model(), kContext, 128,
      {on_gpu({.sequences = 64, .steps_in_flight = 2}), on_gpu({.sequences = 64, .prefix_cache = false}),
       on_gpu({.chunk = 32}), on_gpu({.sequences = 8, .cache_tokens = 1024, .steps_in_flight = 2})});
}

TEST_F(CudaTest, ACrowdOf256ChangesNothing) {
  const TempDir folder;
  const auto model = write_toy("llama", folder.path(), {.type = QuantType::q8_0, .context = kContext});
  expect_a_crowd_changes_nothing(
      model, kContext, 512,
      {on_gpu({.sequences = 256, .steps_in_flight = 2}), on_gpu({.sequences = 256, .prefix_cache = false})},
      [](std::int32_t vocabulary) { return many_requests(vocabulary, 256); });
}

TEST_F(CudaTest, AStormOfCancelledRequestsPasses) {
  for (const char* toy : {"llama", "granitehybrid"}) {
    storm::expect_a_storm_to_pass(toy, 1500, on_gpu({.sequences = 12, .cache_tokens = 768, .steps_in_flight = 2}));
  }
}

// ---- Models that are exchanged ----

std::shared_ptr<Device> gpu_or_cpu() {
  try {
    return make_device({.backend = "cuda"});
  } catch (const Error&) {
    return make_device({.backend = "cpu", .threads = 1});  // the tests are skipped
  }
}

class CudaRegistry : public RegistryTest {
 protected:
  CudaRegistry() : RegistryTest(gpu_or_cpu()) {}
  void SetUp() override {
    if (device_->name() == "cuda") return;
    ASSERT_FALSE(has_gpu()) << "there is a GPU that cannot be opened";
    GTEST_SKIP() << "no GPU to test on";
  }
};

// While an answer is written, its model is exchanged for another and back again: it is what it would have been.
TEST_F(CudaRegistry, AnExchangeChangesNoAnswer) {
  RegistryOptions asked = options();
  asked.load.executor.deterministic = true;
  const auto models = registry(std::move(asked));
  const EngineRequest text = text_request({1, 2, 3, 4, 5}, 80);
  Lease lease = models->acquire_and_wait("llama");
  const Answer llama = ask(lease->engine(), text);
  ASSERT_EQ(llama.tokens.size(), 80u);
  for (int round = 0; round < 3; ++round) {
    const Engine::Submission running = lease->engine().submit(text);
    models->exchange_and_wait("llama", file("qwen3"));
    Lease other = models->acquire_and_wait("llama");
    EXPECT_EQ(other->path(), file("qwen3"));
    const Engine::Submission beside = other->engine().submit(text);
    EXPECT_EQ(read_answers(*running.stream).front(), llama);
    lease.reset();
    models->exchange_and_wait("llama", file("llama"));
    const Answer qwen = read_answers(*beside.stream).front();
    EXPECT_EQ(qwen.tokens.size(), 80u);
    EXPECT_NE(qwen.tokens, llama.tokens);
    EXPECT_EQ(ask(other->engine(), text), qwen);
    other.reset();
    lease = models->acquire_and_wait("llama");
    EXPECT_EQ(ask(lease->engine(), text), llama);
  }
}

}  // namespace
}  // namespace quarrel::test
