// What a loaded model is put together from: vocabulary, template, recommended sampling, what it can do; files that are
// cut short.
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "base/error.h"
#include "gguf/writer.h"
#include "session/embedding.h"
#include "session/session_support.h"
#include "support/other_device.h"
#include "unit/gguf_support.h"

namespace quarrel::test {
namespace {

namespace fs = std::filesystem;

class Load : public testing::Test {
 protected:
  std::shared_ptr<LoadedModel> load(const fs::path& path, const LoadOptions& options = {}) {
    log_.lines.clear();
    return LoadedModel::load(path, make_device({.backend = "cpu", .threads = 1}), options, log_);
  }
  fs::path chat() const { return write_toy_chat(folder_.path(), {.context = 128}); }

  TempDir folder_;
  KeptLog log_;
};

TEST_F(Load, AModelThatChats) {
  const auto model = load(chat(), {.warm_up = true});
  EXPECT_EQ(model->name(), "chat");
  EXPECT_EQ(model->context(), 128);
  EXPECT_TRUE(model->generates());
  EXPECT_TRUE(model->embeds());
  EXPECT_FALSE(model->ranks());
  EXPECT_EQ(model->pooling(), Pooling::last);
  EXPECT_EQ(model->template_origin(), "the model's own");
  EXPECT_NE(model->chat_template(), nullptr);
  EXPECT_GT(model->load_seconds(), 0.0);
  EXPECT_EQ(model->device_description(), model->device().description());
  EXPECT_EQ(model->engine().counters().scheduler.cache_hit_tokens, 0u);
  EXPECT_TRUE(log_.lines.empty());
}

TEST_F(Load, AModelThatIsTooLargeForItsDeviceGoesWhereThatFallsBackTo) {
  for (const std::size_t memory : {std::size_t{1} << 30, std::size_t{100'000}}) {
    const auto device = std::make_shared<OtherDevice>(OtherLimits{.memory = memory});
    if (memory == 100'000) {
      expect_error(ErrorKind::out_of_memory, {"MiB are free"},
                   [&] { LoadedModel::load(chat(), device, LoadOptions{}, log_); });
    }
    device->set_fallback([] { return make_device({.backend = "cpu", .threads = 1}); });
    log_.lines.clear();
    const auto model = LoadedModel::load(chat(), device, LoadOptions{}, log_);
    if (memory > 100'000) {
      EXPECT_EQ(&model->device(), device.get());
      EXPECT_TRUE(log_.lines.empty());
      continue;
    }
    EXPECT_EQ(model->device().name(), "cpu");
    EXPECT_EQ(&model->device(), device->fallback().get());
    EXPECT_EQ(model->device_description(), model->device().description());
    ASSERT_EQ(log_.lines.size(), 1u);
    for (const char* part : {"runs on the cpu, not on other", "MiB are free", "workspace"}) {
      EXPECT_NE(log_.lines[0].find(part), std::string::npos) << log_.lines[0];
    }
  }
}

TEST_F(Load, TemplatesByChoice) {
  const auto none = load(chat(), {.chat_template = {.kind = TemplateSelection::Kind::none}});
  EXPECT_EQ(none->chat_template(), nullptr);
  EXPECT_EQ(none->template_origin(), "");
  expect_error(ErrorKind::unsupported, {"template"}, [&] { none->require_template(); });
  const auto named = load(chat(), {.chat_template = {.kind = TemplateSelection::Kind::named, .value = "zephyr"}});
  EXPECT_EQ(named->template_origin(), "zephyr");
  expect_error(ErrorKind::usage, {"no-such", "zephyr"},
               [&] { load(chat(), {.chat_template = {.kind = TemplateSelection::Kind::named, .value = "no-such"}}); });
  expect_error(ErrorKind::bad_input, {},
               [&] { load(chat(), {.chat_template = {.kind = TemplateSelection::Kind::text, .value = "{{ broken"}}); });
}

TEST_F(Load, AnEncoderEmbedsAndDoesNothingElse) {
  const auto model = load(write_toy_embed(folder_.path()), {.warm_up = true});
  EXPECT_FALSE(model->generates());
  EXPECT_TRUE(model->embeds());
  EXPECT_GT(model->executor().plan().sequences, 8);
  EXPECT_TRUE(log_.lines.empty()) << "nobody misses a chat template: " << log_.lines.front();
  expect_error(ErrorKind::unsupported, {"cannot generate text"}, [&] { model->require_generation(); });
  expect_error(ErrorKind::unsupported, {"cannot generate text"},
               [&] { generate(model, {.prompt = std::string("hello"), .max_tokens = 3}); });
}

TEST_F(Load, WithoutAVocabulary) {
  const auto model = load(write_toy("llama", folder_.path(), {.context = 64}), {.warm_up = true});
  EXPECT_EQ(model->tokenizer(), nullptr);
  EXPECT_EQ(model->chat_template(), nullptr);
  expect_error(ErrorKind::unsupported, {"vocabulary"}, [&] { model->require_tokenizer(); });
}

TEST_F(Load, AWarmUpMayBeGivenUp) {
  int calls = 0;
  const LoadOptions options{.warm_up = true, .on_warming = [&] {
                              ++calls;
                              throw Error(ErrorKind::cancelled, "enough");
                            }};
  expect_error(ErrorKind::cancelled, {"enough"}, [&] { load(chat(), options); });
  EXPECT_EQ(calls, 1);
}

TEST_F(Load, WhatTheMakersRecommend) {
  GgufWriter writer;
  writer.put_string("general.architecture", "toy");
  writer.put_f32("general.sampling.temp", 0.3f);
  writer.put_u32("general.sampling.top_k", 11);
  writer.put_f32("general.sampling.top_p", 7.0f);  // is none
  writer.add_tensor("w", {4}, std::vector<float>(4));
  const std::vector<std::byte> bytes = writer.to_bytes();
  const GgufFile file = GgufFile::view(bytes, "made up");
  const RecommendedSampling read = read_recommended_sampling(
      file,
      R"({"temperature": 0.9, "min_p": 0.2, "stop": ["a", "b"], "num_ctx": 4096, "seed": 5, "repeat_last_n": -1,
          "nonsense": 1, "top_k": "many", "mirostat": 1})",
      log_);
  EXPECT_FLOAT_EQ(read.temperature.value(), 0.3f);  // the file's own word counts more
  EXPECT_EQ(read.top_k, 11);
  EXPECT_FALSE(read.top_p);
  EXPECT_FLOAT_EQ(read.min_p.value(), 0.2f);
  EXPECT_EQ(read.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read.context, 4096);
  EXPECT_EQ(read.seed, 5u);
  EXPECT_EQ(read.penalty_window, -1);
  EXPECT_FALSE(read.mirostat);
  EXPECT_EQ(log_.lines.size(), 4u);  // top_p, nonsense, top_k, mirostat
  const SamplingParams params = read.over({.temperature = 1.0f, .top_k = 40, .top_p = 0.9f});
  EXPECT_FLOAT_EQ(params.temperature, 0.3f);
  EXPECT_EQ(params.top_k, 11);
  EXPECT_FLOAT_EQ(params.top_p, 0.9f);

  log_.lines.clear();
  for (const char* wrong : {"[1]", "{", "3"}) {
    EXPECT_FALSE(read_recommended_sampling(file, wrong, log_).min_p);
  }
  EXPECT_EQ(log_.lines.size(), 6u);  // each with the file's own mistake
}

RecommendedSampling recommended_for(const std::string& key, const std::string& name, const char* store, KeptLog& log,
                                    std::optional<float> temperature = {}) {
  GgufWriter writer;
  writer.put_string(key, name);
  if (temperature) writer.put_f32("general.sampling.temp", *temperature);
  writer.add_tensor("w", {4}, std::vector<float>(4));
  const std::vector<std::byte> bytes = writer.to_bytes();
  return read_recommended_sampling(GgufFile::view(bytes, "made up"), store, log);
}

TEST_F(Load, AFamilyIsKnownByItsName) {
  const RecommendedSampling small = recommended_for("general.basename", "smollm2", "", log_);
  EXPECT_EQ(small.summary(), "temperature 0.2, top_p 0.9 (preset for SmolLM2)");
  EXPECT_EQ(recommended_for("general.name", "meta-llama_3.1-8B Instruct", "", log_).origin, "preset for Meta Llama 3");
  EXPECT_EQ(recommended_for("general.name", "Qwen2.5 7B", "", log_).top_k, 20);
  EXPECT_EQ(recommended_for("general.name", "gpt-oss 20b", "", log_).top_p, 1.0f);
  for (const char* stranger : {"", "llama", "Llama 30B", "not smollm2", "Qwen"}) {
    EXPECT_EQ(recommended_for("general.name", stranger, "", log_).summary(), "") << stranger;
  }
  EXPECT_TRUE(log_.lines.empty());
}

// Stop strings leave room for what a family is known for; somebody else's way to choose tokens does not.
TEST_F(Load, WhatIsSaidOfTheModelItselfCountsMoreThanItsFamily) {
  const RecommendedSampling stops = recommended_for("general.name", "SmolLM2", R"({"stop": ["x"]})", log_);
  EXPECT_EQ(stops.summary(), "temperature 0.2, top_p 0.9, stop 'x' (from the store, preset for SmolLM2)");
  const RecommendedSampling store = recommended_for("general.name", "SmolLM2", R"({"top_k": 7})", log_);
  EXPECT_EQ(store.summary(), "top_k 7 (from the store)");
  const RecommendedSampling file = recommended_for("general.name", "SmolLM2", "", log_, 0.5f);
  EXPECT_EQ(file.summary(), "temperature 0.5 (from the file)");
}

TEST_F(Load, ARecommendedContextIsUsedWhereItIsWanted) {
  const ResolvedModel model{
      .path = chat(), .name = "toy", .system = {}, .template_text = {}, .params = R"({"num_ctx": 64})"};
  const auto context = [&](const LoadOptions& options) {
    return LoadedModel::load(model, make_device({.backend = "cpu", .threads = 1}), options, log_)->context();
  };
  EXPECT_EQ(context({}), 128);
  EXPECT_EQ(context({.recommended_context = true}), 64);
  EXPECT_EQ(context({.executor = {.context = 96}, .recommended_context = true}), 96);
}

// Weights are read where they lie in the file, and the file is cut: answers end with an error, and the process lives.
TEST_F(Load, AFileThatIsCutEndsItsRequests) {
  const fs::path path = chat();
  LoadOptions options;
  options.executor.repack = false;
  const auto model = load(path, options);
  Ask ask{.prompt = std::string("Hello"), .max_tokens = 4};
  ask.stop_tokens.emplace();
  generate(model, ask).answers[0].require_success();
  fs::resize_file(path, 4096);
  try {
    const quarrel::Answer answer = generate(model, ask).answers[0];
    EXPECT_EQ(answer.reason, FinishReason::failed);
    EXPECT_NE(answer.error.find("cut short"), std::string::npos) << answer.error;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_file);
  }
  expect_error(ErrorKind::bad_file, {"cut short"}, [&] { embedding_rows(*model, std::vector<TokenId>{1}); });
}

}  // namespace
}  // namespace quarrel::test
