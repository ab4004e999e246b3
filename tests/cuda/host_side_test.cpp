// What the CUDA backend's host side does around its kernels, without a GPU (fake_cuda.h): it frees what it takes, takes
// what was planned, captures and replays, and whichever call fails, somebody is told and everybody else goes on. The
// kernels do nothing, so that tokens mean nothing here.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/cuda_device.h"
#include "base/error.h"
#include "cuda/fake_cuda.h"
#include "engine/answers.h"
#include "engine/engine.h"
#include "engine/executor.h"
#include "support/sequences.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

constexpr std::int32_t kContext = 256;

// An attention decoder, experts, recurrent layers with and without experts, windows and sinks.
constexpr std::array kToys = {"llama", "mixtral", "granitehybrid", "nemotron_h_moe", "gpt-oss"};

class HostSide : public testing::Test {
 protected:
  void SetUp() override { reset_fake_cuda(); }
  void TearDown() override {
    reset_fake_cuda();
    EXPECT_EQ(fake_cuda().device_bytes, 0u) << "device memory that nobody freed";
    EXPECT_EQ(fake_cuda().pinned_bytes, 0u) << "pinned memory that nobody freed";
    EXPECT_EQ(fake_cuda().objects, 0) << "streams, events, graphs or descriptions that nobody destroyed";
  }

  std::filesystem::path model(const char* name) const {
    return write_toy(name, folder_.path(), {.type = QuantType::q8_0, .context = kContext});
  }
  static ExecutorOptions options(std::int32_t sequences = 4) {
    return {.context = kContext, .sequences = sequences, .snapshots = 4, .batch_rows = 64};
  }
  std::unique_ptr<Executor> executor(Device& device, const char* name, const ExecutorOptions& options) const {
    return std::make_unique<Executor>(GgufFile::open(model(name)), device, options);
  }
  static EngineRequest request(std::int32_t tokens, std::uint32_t seed = 1) {
    EngineRequest made = text_request(random_tokens(5 + seed % 60, 250, seed), tokens);
    made.sampling.temperature = seed % 3 == 0 ? 0.0f : 0.8f;
    made.sampling.repeat_penalty = seed % 4 == 1 ? 1.2f : 1.0f;
    made.sampling.mirostat = seed % 7 == 5;
    made.top = seed % 5 == 2 ? 3 : 0;
    return made;
  }
  static std::vector<EngineRequest> crowd(std::size_t count) {
    std::vector<EngineRequest> made;
    for (std::uint32_t i = 0; i < count; ++i) made.push_back(request(12 + static_cast<std::int32_t>(i % 9), i));
    return made;
  }

  // Calls of this name fail from the n-th one on, `times` of them. Counting begins when it is set.
  static std::shared_ptr<std::atomic<int>> fail(std::string name, int from, int times, cudaError_t status) {
    const auto calls = std::make_shared<std::atomic<int>>(0);
    fake_cuda().fails = [=](std::string_view call) {
      if (!name.empty() && call != name) return cudaSuccess;
      const int number = (*calls)++;
      return number >= from && number < from + times ? status : cudaSuccess;
    };
    return calls;
  }

  const TempDir folder_;
};

TEST_F(HostSide, ACrowdIsAnsweredAndEverythingIsFreed) {
  for (const char* toy : kToys) {
    for (const std::int32_t in_flight : {1, 2}) {
      SCOPED_TRACE(testing::Message() << toy << ", " << in_flight << " steps in flight");
      cuda::CudaDevice device(0);
      Engine engine(executor(device, toy, options(16)), {.steps_in_flight = in_flight});
      const std::vector<EngineRequest> requests = crowd(40);
      const std::vector<Answer> answers = ask_together(engine, requests);
      for (std::size_t i = 0; i < answers.size(); ++i) {
        EXPECT_EQ(answers[i].endings, 1);
        EXPECT_EQ(answers[i].reason, FinishReason::length) << answers[i].error;
        EXPECT_EQ(std::ssize(answers[i].tokens), requests[i].max_tokens);
      }
      EXPECT_GT(fake_cuda().launches, 0u);
    }
  }
}

// Layers as wide as those of models in use, on GPUs that are not at hand: every launch finds room, with few rows and
// with many.
TEST_F(HostSide, LayersOfRealWidthsRunOnEveryGpu) {
  struct Machine {
    int capability, shared_kib, multiprocessors;
  };
  struct Shape {
    const char* toy;
    ToyOptions options;
  };
  const std::array shapes = {
      Shape{
          "llama",
          {.type = QuantType::q8_0, .embedding = 2048, .layers = 1, .feed_forward = 5632, .heads = 32, .kv_heads = 4}},
      Shape{
          "qwen2",
          {.type = QuantType::q6_k, .embedding = 1024, .layers = 1, .feed_forward = 4864, .heads = 16, .kv_heads = 4}},
      Shape{"gpt-oss",
            {.type = QuantType::mxfp4,
             .embedding = 2880,
             .layers = 2,
             .feed_forward = 2880,
             .heads = 45,
             .kv_heads = 5,
             .head = 64,
             .experts = 4,
             .experts_used = 4}},
      Shape{"mixtral",
            {.type = QuantType::q6_k,
             .embedding = 256,
             .layers = 1,
             .feed_forward = 14336,
             .experts = 4,
             .experts_used = 2}},
  };
  for (const Shape& shape : shapes) {
    ToyOptions options = shape.options;
    options.context = kContext;
    const auto file = write_toy(shape.toy, folder_.path(), options);
    for (const Machine& machine : {Machine{86, 99, 82}, {89, 99, 24}, {120, 99, 188}, {80, 163, 108}, {90, 227, 132}}) {
      for (const bool deterministic : {false, true}) {
        SCOPED_TRACE(testing::Message() << shape.toy << ", capability " << machine.capability << ", "
                                        << machine.multiprocessors << " multiprocessors"
                                        << (deterministic ? ", deterministic" : ""));
        fake_cuda().capability = machine.capability;
        fake_cuda().shared_kib = machine.shared_kib;
        fake_cuda().multiprocessors = machine.multiprocessors;
        cuda::CudaDevice device(0);
        ExecutorOptions asked = HostSide::options(16);
        asked.deterministic = deterministic;
        Engine engine(std::make_unique<Executor>(GgufFile::open(file), device, asked), {});
        for (const std::size_t rows : {1u, 3u, 5u, 8u, 13u, 16u}) {
          for (const Answer& answer : ask_together(engine, crowd(rows))) {
            ASSERT_EQ(answer.reason, FinishReason::length) << rows << " rows: " << answer.error;
          }
        }
      }
    }
  }
}

// What was planned is what is taken, but for what the plan calls unlisted, and never more.
TEST_F(HostSide, APlanIsWhatIsTaken) {
  constexpr std::size_t kUnlisted = std::size_t{128} << 20;
  for (const char* toy : kToys) {
    for (const bool deterministic : {false, true}) {
      SCOPED_TRACE(testing::Message() << toy << (deterministic ? ", deterministic" : ""));
      cuda::CudaDevice device(0);
      ExecutorOptions asked = options();
      asked.deterministic = deterministic;
      const auto made = executor(device, toy, asked);
      const std::size_t planned = made->plan().anonymous() - kUnlisted;
      EXPECT_LE(fake_cuda().device_bytes, planned);
      EXPECT_GT(fake_cuda().device_bytes, planned - planned / 20);
    }
  }
}

TEST_F(HostSide, StepsOfOneShapeAreCapturedOnceAndReplayed) {
  for (const bool graphs : {true, false}) {
    reset_fake_cuda();
    cuda::CudaDevice device(0);
    ExecutorOptions asked = options();
    asked.graphs = graphs;
    Engine engine(executor(device, "llama", asked), {});
    ask(engine, request(40));
    EXPECT_EQ(fake_cuda().captures, graphs ? 1u : 0u);
    EXPECT_GE(fake_cuda().replays, graphs ? 35u : 0u);
    ask(engine, request(40, 2));
    EXPECT_EQ(fake_cuda().captures, graphs ? 1u : 0u) << "it is known";
    if (!graphs) {
      EXPECT_EQ(fake_cuda().replays, 0u);
    }
  }
}

// For want of memory, say. Then the steps run as they did before.
TEST_F(HostSide, AStepThatCannotBeCapturedRunsWithoutAGraph) {
  for (const char* call : {"cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphLaunch"}) {
    SCOPED_TRACE(call);
    cuda::CudaDevice device(0);
    Engine engine(executor(device, "llama", options()), {});
    const auto calls = fail(call, 0, 1000, cudaErrorMemoryAllocation);
    const Answer answer = ask(engine, request(40));
    EXPECT_EQ(answer.reason, FinishReason::length) << answer.error;
    EXPECT_EQ(answer.tokens.size(), 40u);
    EXPECT_EQ(*calls, 1) << "it is not tried again";
    EXPECT_EQ(fake_cuda().replays, 0u);
  }
}

// There is room for many shapes, and those that came once make room for one that comes often.
TEST_F(HostSide, ShapesThatComeOnceKeepNoGraphFromOthers) {
  constexpr std::int32_t kTexts = 8;  // as long as the context, together 2048 rows
  cuda::CudaDevice device(0);
  LoneModel lone(GgufFile::open(model("llama")), device,
                 {.context = kContext, .sequences = kTexts, .rows = 2048, .kv_type = KvType::f16, .backend = {}});
  std::array<std::vector<std::int32_t>, kTexts> blocks;
  std::array<std::array<BlockTable, 1>, kTexts> tables;
  for (std::int32_t text = 0; text < kTexts; ++text) {
    const auto at = static_cast<std::size_t>(text);
    for (std::int32_t i = 0; i < 4; ++i) blocks[at].push_back(4 * text + i);
    tables[at] = {BlockTable{.blocks = blocks[at]}};
  }
  const auto run = [&](std::int32_t count, std::size_t outputs) {
    std::vector<StepRow> rows;
    std::vector<StepSequence> sequences;
    for (std::int32_t row = 0; row < count; ++row) {
      const std::int32_t text = row / kContext;
      if (row % kContext == 0) sequences.push_back({.tables = tables[static_cast<std::size_t>(text)], .length = 0});
      rows.push_back({.sequence = text, .position = row % kContext, .token = 1});
      ++sequences.back().length;
    }
    std::vector<StepOutput> wanted(outputs);
    for (std::size_t i = 0; i < outputs; ++i) {
      wanted[i] = {.row = static_cast<std::int32_t>(i), .kind = OutputKind::score, .score = 1};
    }
    lone.backend().wait(lone.backend().submit(
        {.rows = rows, .generated_rows = count, .sequences = sequences, .outputs = wanted}, lone.forward()));
  };
  for (std::int32_t count = 32; count <= 2048; count += 32) run(count, 0);
  for (std::int32_t count = 32; count <= 1024; count += 32) run(count, 1);
  EXPECT_EQ(fake_cuda().captures, 0u);
  for (int i = 0; i < 5; ++i) run(1, 1);
  EXPECT_EQ(fake_cuda().captures, 1u);
  EXPECT_EQ(fake_cuda().replays, 3u);
}

TEST_F(HostSide, EveryAllocationOfALoadMayFail) {
  cuda::CudaDevice device(0);
  for (const char* call : {"cudaMalloc", "cudaMallocHost"}) {
    int failed = 0;
    for (int n = 0;; n += 1 + n / 16) {
      SCOPED_TRACE(testing::Message() << call << ' ' << n);
      const auto calls = fail(call, n, 1, cudaErrorMemoryAllocation);
      try {
        const auto made = executor(device, "granitehybrid", options());
        EXPECT_LE(*calls, n) << "a failed allocation went unnoticed";
        break;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::out_of_memory) << error.what();
        ++failed;
      }
      ASSERT_EQ(fake_cuda().device_bytes, 0u);
      ASSERT_EQ(fake_cuda().pinned_bytes, 0u);
    }
    EXPECT_GT(failed, 1) << call;
    fake_cuda().fails = {};
  }
}

// Whatever call it is, once: whoever it concerns is told, and the next ones are answered.
TEST_F(HostSide, EveryCallOfAStepMayFailOnce) {
  for (const char* toy : {"llama", "granitehybrid"}) {
    for (const std::int32_t in_flight : {1, 2}) {
      cuda::CudaDevice device(0);
      Engine engine(executor(device, toy, options()), {.steps_in_flight = in_flight});
      int failed = 0;
      for (int n = 0; n < 400; n += 1 + n / 40) {
        SCOPED_TRACE(testing::Message() << toy << ", " << in_flight << " in flight, call " << n);
        fail("", n, 1, cudaErrorUnknown);
        const std::vector<Answer> answers = ask_together(engine, crowd(6));
        fake_cuda().fails = {};
        for (const Answer& answer : answers) {
          ASSERT_EQ(answer.endings, 1);
          if (answer.reason == FinishReason::length) continue;
          ASSERT_EQ(answer.reason, FinishReason::failed);
          ASSERT_NE(answer.error, "");
          ++failed;
        }
        ASSERT_FALSE(device.lost());
        const Answer next = ask(engine, request(6));
        ASSERT_EQ(next.reason, FinishReason::length) << next.error;
      }
      EXPECT_GT(failed, 10);
    }
  }
}

// One call in some thousands fails, in one way or another, while requests come and are cancelled.
TEST_F(HostSide, AStormOfCancelsAndFaultsEndsEveryRequestOnce) {
  cuda::CudaDevice device(0);
  Engine engine(executor(device, "granitehybrid", options(8)), {.steps_in_flight = 2});
  const auto calls = std::make_shared<std::atomic<std::uint32_t>>(0);
  fake_cuda().fails = [calls](std::string_view) {
    const std::uint32_t number = (*calls)++ * 2654435761u >> 16;
    if (number % 4096 != 0) return cudaSuccess;
    return (number / 4096) % 2 == 0 ? cudaErrorMemoryAllocation : cudaErrorUnknown;
  };
  std::mt19937 random(7);
  std::vector<Engine::Submission> submissions;
  for (std::uint32_t i = 0; i < 400; ++i) {
    submissions.push_back(engine.submit(request(4 + static_cast<std::int32_t>(random() % 20), i)));
    ASSERT_NE(submissions.back().stream, nullptr);
    if (random() % 3 == 0) engine.cancel(submissions[random() % submissions.size()].result.id);
    if (random() % 8 == 0) submissions[random() % submissions.size()].stream->next();
  }
  int whole = 0, failed = 0;
  for (const Answer& answer : read_all(submissions)) {
    EXPECT_LE(answer.endings, 1);  // 0: it was read above
    whole += answer.reason == FinishReason::length ? 1 : 0;
    failed += answer.reason == FinishReason::failed ? 1 : 0;
  }
  fake_cuda().fails = {};
  EXPECT_GT(whole, 0);
  EXPECT_GT(failed, 0);
  EXPECT_FALSE(device.lost());
  EXPECT_EQ(ask(engine, request(8)).reason, FinishReason::length);
  EXPECT_EQ(engine.counters().scheduler.running, 0);
}

TEST_F(HostSide, ALastingErrorLosesTheDevice) {
  for (const char* call : {"cudaLaunchKernelExC", "cudaEventSynchronize", "cudaMemcpyAsync"}) {
    SCOPED_TRACE(call);
    cuda::CudaDevice device(0);
    Engine engine(executor(device, "llama", options()), {.steps_in_flight = 2});
    fake_cuda().fails = [name = std::string(call)](std::string_view asked) {
      return asked == name || asked == "cudaStreamSynchronize" ? cudaErrorIllegalAddress : cudaSuccess;
    };
    const Answer answer = ask(engine, request(20));
    EXPECT_EQ(answer.reason, FinishReason::failed);
    EXPECT_NE(answer.error, "");
    EXPECT_TRUE(device.lost());
    fake_cuda().fails = {};
  }
}

// A GEMM that the device did not run is no reason to give the device up, unless it says so itself.
TEST_F(HostSide, AFailedGemmIsALostDeviceOnlyWhereTheDeviceSaysSo) {
  for (const bool lost : {false, true}) {
    cuda::CudaDevice device(0);
    Engine engine(executor(device, "llama", options()), {});
    fake_cuda().fails = [lost](std::string_view call) {
      if (call == "cublasLtMatmul") return cudaErrorUnknown;
      return lost && call == "cudaMemGetInfo" ? cudaErrorIllegalAddress : cudaSuccess;
    };
    EngineRequest long_prompt = text_request(random_tokens(64, 250, 1), 4);
    EXPECT_EQ(ask(engine, long_prompt).reason, FinishReason::failed);
    EXPECT_EQ(device.lost(), lost);
    fake_cuda().fails = {};
    if (!lost) {
      EXPECT_EQ(ask(engine, long_prompt).reason, FinishReason::length);
    }
  }
}

// ---- Steps by hand ----

class HostSteps : public HostSide {
 protected:
  // A row of one text after the other, each of which samples a token.
  Ticket submit(LoneModel& model, bool begins) {
    rows_ = {{.sequence = 0, .position = position_++, .token = begins ? 5 : ~0}};
    sequences_ = {StepSequence{.tables = tables_, .length = position_}};
    starts_.clear();
    if (begins) starts_.push_back({.lane = 0, .sampling = &params_});
    return model.backend().submit({.rows = rows_,
                                   .generated_rows = begins ? 0 : 1,
                                   .sequences = sequences_,
                                   .outputs = outputs_,
                                   .lane_starts = starts_},
                                  model.forward());
  }
  std::unique_ptr<LoneModel> lone(Device& device) const {
    return std::make_unique<LoneModel>(GgufFile::open(model("llama")), device,
                                       LoneModel::Options{.context = kContext, .kv_type = KvType::f16, .backend = {}});
  }

  const SamplingParams params_{.temperature = 0.8f, .repeat_penalty = 1.1f};
  const std::vector<std::int32_t> blocks_ = {0, 1, 2, 3};
  const std::array<BlockTable, 1> tables_ = {BlockTable{.blocks = blocks_}};
  std::int32_t position_ = 0;
  std::vector<StepRow> rows_;
  std::vector<StepSequence> sequences_;
  std::vector<StepOutput> outputs_ = {{.row = 0, .lane = 0}};
  std::vector<LaneStart> starts_;
};

TEST_F(HostSteps, TheStepBehindOneThatFailsFailsToo) {
  for (const bool in_order : {true, false}) {
    cuda::CudaDevice device(0);
    const auto model = lone(device);
    position_ = 0;
    const Ticket first = submit(*model, true);
    const Ticket second = submit(*model, false);
    fail("cudaEventSynchronize", 0, 1, cudaErrorUnknown);
    EXPECT_THROW(model->backend().wait(in_order ? first : second), Error);
    EXPECT_THROW(model->backend().wait(in_order ? second : first), Error);
    fake_cuda().fails = {};
    position_ = 0;
    EXPECT_EQ(model->backend().wait(submit(*model, true)).samples.size(), 1u) << "and others do not";
  }
}

// The step before can still be read, and the one that failed can be tried again.
TEST_F(HostSteps, ASubmitThatFailsLeavesNoTrace) {
  cuda::CudaDevice device(0);
  const auto model = lone(device);
  model->backend().wait(submit(*model, true));
  int failed = 0;
  for (int n = 0;; ++n) {
    SCOPED_TRACE(n);
    ASSERT_LT(position_, kContext - 2);
    const Ticket before = submit(*model, false);
    const std::int32_t position = position_;
    const auto calls = fail("", n, 1, cudaErrorUnknown);
    Ticket next = 0;
    try {
      next = submit(*model, false);
    } catch (const Error&) {
      ++failed;
    }
    const bool reached = *calls > n;
    fake_cuda().fails = {};
    EXPECT_EQ(model->backend().wait(before).samples.size(), 1u);
    if (next == 0) {
      position_ = position;
      next = submit(*model, false);
    }
    EXPECT_EQ(model->backend().wait(next).samples.size(), 1u);
    if (!reached || n > 60) break;
  }
  EXPECT_GT(failed, 5);
}

}  // namespace
}  // namespace quarrel::test
