// What can be known of a model through the public header: before it is loaded, of its file, and while it works.
#include <algorithm>
#include <atomic>
#include <mutex>

#include "api/api_support.h"
#include "gguf/file.h"

namespace quarrel::test {
namespace {

using ApiKnown = ApiTest;

TEST_F(ApiKnown, SpecialTokensAndTheBytesOfAToken) {
  const api::SpecialTokens special = model_.special_tokens();
  EXPECT_EQ(special.eos, 2);
  EXPECT_FALSE(special.add_bos);
  EXPECT_EQ(special.cls, api::kNoToken);
  EXPECT_TRUE(std::ranges::find(special.end_of_generation, 2) != special.end_of_generation.end());
  EXPECT_EQ(model_.token_bytes(2), "");
  EXPECT_EQ(model_.token_bytes(2, true), "<|im_end|>");
  // Half a character is bytes, and no text yet.
  std::string bytes;
  for (const api::Token token : model_.tokenize("Grüße, 世界")) bytes += model_.token_bytes(token);
  EXPECT_EQ(bytes, "Grüße, 世界");
  expect_api_error(api::ErrorKind::bad_input, "vocabulary", [&] { model_.token_bytes(1 << 24); });
  EXPECT_EQ(model_.tokenize("<|im_end|>", false, true), std::vector<api::Token>{2});
  EXPECT_EQ(model_.detokenize(std::vector<api::Token>{2}, true), "<|im_end|>");
}

TEST_F(ApiKnown, TheFilesMetadata) {
  const std::vector<std::string> keys = model_.metadata_keys();
  const GgufFile file = GgufFile::open(file_);
  ASSERT_EQ(keys.size(), file.entries().size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(keys[i], file.entries()[i].key);
    EXPECT_TRUE(model_.metadata(keys[i]));
  }
  EXPECT_EQ(std::get<std::string>(*model_.metadata("general.architecture")), "llama");
  EXPECT_EQ(std::get<std::uint64_t>(*model_.metadata("llama.context_length")), 1024u);
  EXPECT_GT(std::get<double>(*model_.metadata("llama.attention.layer_norm_rms_epsilon")), 0.0);
  const auto tokens = std::get<std::vector<std::string>>(*model_.metadata("tokenizer.ggml.tokens"));
  EXPECT_EQ(tokens, toy_chat_tokens());
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(*model_.metadata("tokenizer.ggml.token_type")).size(), tokens.size());
  EXPECT_FALSE(model_.metadata("no.such.key"));
}

// An estimate is the arithmetic of the load itself.
TEST_F(ApiKnown, WhatALoadWouldTake) {
  const api::MemoryEstimate estimate = api::Model::estimate(file_, small_load());
  EXPECT_EQ(estimate.context, 1024);
  EXPECT_EQ(estimate.trained_context, 1024);
  EXPECT_EQ(estimate.sequences, 2);
  EXPECT_GT(estimate.kv, 0u);
  EXPECT_GT(estimate.weights, 0u);
  EXPECT_EQ(estimate.total,
            estimate.mapped + estimate.weights + estimate.experts + estimate.kv + estimate.state + estimate.workspace);
  api::LoadOptions options = small_load();
  options.sequences = 4;
  EXPECT_EQ(api::Model::estimate(file_, options).kv, 2 * estimate.kv);
  options = small_load();
  options.kv_type = api::KvType::f32;
  const std::uint64_t full = api::Model::estimate(file_, options).kv;
  options.kv_type = api::KvType::f16;
  EXPECT_EQ(full, 2 * api::Model::estimate(file_, options).kv);
  options = small_load();
  options.cache_tokens = 1024;
  EXPECT_LT(api::Model::estimate(file_, options).kv, estimate.kv);
  options = small_load();
  options.context = 256;
  EXPECT_LT(api::Model::estimate(file_, options).kv, estimate.kv);
  options = small_load();
  options.batch_rows = 64;
  EXPECT_LT(api::Model::estimate(file_, options).workspace, estimate.workspace);
  options = small_load();
  options.repack = false;
  EXPECT_NE(api::Model::estimate(file_, options).mapped, estimate.mapped);
  options.memory = 1000;
  expect_api_error(api::ErrorKind::out_of_memory, "", [&] { api::Model::estimate(file_, options); });
  expect_api_error(api::ErrorKind::not_found, "nowhere", [&] { api::Model::estimate("/nowhere/model.gguf"); });
}

TEST_F(ApiKnown, CountsOfWhatItDid) {
  EXPECT_EQ(model_.metrics().accepted, 0u);
  const std::vector<api::Token> prompt(100, 65);
  model_.generate(prompt, unending(8));
  model_.generate(prompt, unending(8));
  const api::Metrics metrics = model_.metrics();
  EXPECT_EQ(metrics.accepted, 2u);
  EXPECT_EQ(metrics.finished, 2u);
  EXPECT_EQ(metrics.refused, 0u);
  EXPECT_EQ(metrics.running, 0);
  EXPECT_EQ(metrics.waiting, 0);
  EXPECT_EQ(metrics.tokens, 16u);
  EXPECT_GE(metrics.steps, 16u);
  EXPECT_GE(metrics.prompt_rows, 100u);
  EXPECT_GT(metrics.cache_hit_tokens, 50u);
  EXPECT_GE(metrics.cache_miss_tokens, 100u);
  EXPECT_EQ(metrics.failed_steps, 0u);
  EXPECT_GT(metrics.blocks_total, 0);
  EXPECT_GT(metrics.blocks_cached, 0);
  EXPECT_EQ(metrics.blocks_used, 0);
}

TEST_F(ApiKnown, WarningsComeWhileLoadingAndAfter) {
  const std::string toy = write_toy_embed(folder_.path()).string();
  std::mutex mutex;
  std::vector<std::string> lines;
  api::LoadOptions options = small_load();
  options.warning = [&](std::string_view line) {
    const std::scoped_lock lock(mutex);
    lines.emplace_back(line);
  };
  const api::Model model = api::Model::load(toy, options);
  EXPECT_EQ(lines.size(), 0u);
  std::string longest;
  for (int i = 0; i < 2000; ++i) longest += "fox ";
  const std::vector<std::string> texts{"a fox", longest};
  const auto embeddings = model.embed(texts);
  EXPECT_FALSE(embeddings[0].cut);
  EXPECT_TRUE(embeddings[1].cut);
  EXPECT_EQ(embeddings[1].full_tokens, 2002u);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines.back().find("2002"), std::string::npos) << lines.back();

  // A context beyond the model's own is warned of while it is loaded, and what the callback throws ends the load.
  const std::string chat = write_toy_chat(folder_.path(), {.context = 128}).string();
  options.context = 256;
  const api::Model beyond = api::Model::load(chat, options);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines.back().find("256"), std::string::npos) << lines.back();
  options.warning = [](std::string_view) { throw std::out_of_range("mine"); };
  EXPECT_THROW(api::Model::load(chat, options), std::out_of_range);
}

// Two models on the threads of one device.
TEST_F(ApiKnown, OneDeviceServesTwoModels) {
  const api::Model beside = api::Model::load(file_, {.threads = 1, .beside = &model_, .sequences = 2});
  EXPECT_EQ(beside.info().device, model_.info().device);
  api::Generation one = model_.open(kPrompt, unending(40));
  api::Generation other = beside.open(kPrompt, unending(40));
  EXPECT_EQ(one.wait().front().tokens, other.wait().front().tokens);
  EXPECT_NE(api::Model::load(file_, {.threads = 1}).info().device, model_.info().device);
}

TEST_F(ApiKnown, OptionsOfALoad) {
  using api::ErrorKind;
  const auto refused = [&](std::string_view words, const api::LoadOptions& options) {
    expect_api_error(ErrorKind::usage, words, [&] { api::Model::load(file_, options); });
  };
  refused("batch", {.batch_rows = 0});
  refused("cache", {.cache_tokens = -1});
  refused("queue", {.queue_limit = -1});
  refused("KV type", {.kv_type = static_cast<api::KvType>(7)});
  refused("activations", {.activations = static_cast<api::Activations>(-1)});
  refused("pooling", {.pooling = static_cast<api::Pooling>(5)});
  refused("template", {.chat_template = "{{ 1 }}", .template_name = "chatml"});
  refused("nosuch", {.template_name = "nosuch"});

  const std::vector<api::Token> plain = model_.generate(kPrompt, unending(16)).tokens;
  for (const auto& options :
       {api::LoadOptions{.threads = 2, .batch_rows = 32}, api::LoadOptions{.threads = 2, .pin = true, .repack = false},
        api::LoadOptions{.threads = 2, .warm_up = true}}) {
    EXPECT_EQ(api::Model::load(file_, options).generate(kPrompt, unending(16)).tokens, plain);
  }
  const api::Model silent = api::Model::load(file_, {.threads = 2, .template_name = "none"});
  const std::vector<api::Message> messages{{.role = "user", .content = "Hello"}};
  expect_api_error(ErrorKind::unsupported, "template", [&] { silent.chat(messages); });
  EXPECT_EQ(silent.info().template_from, "");
  EXPECT_EQ(silent.generate(kPrompt, unending(16)).tokens, plain);
}

TEST_F(ApiKnown, TemplatesGetToolsAndArguments) {
  api::LoadOptions options = small_load();
  options.chat_template =
      "{% for t in tools or [] %}<{{ t.name }}>{% endfor %}{{ mood }}|"
      "{% for m in messages %}{{ m.role }}:{{ m.content }}{% if m.tool_calls %}({{ m.tool_calls[0].id }}){% endif %};"
      "{% endfor %}{% if add_generation_prompt %}!{% endif %}";
  const api::Model model = api::Model::load(file_, options);
  api::Chat chat{.messages = {{.role = "user", .content = "a"},
                              {.role = "assistant", .content = "", .more = R"({"tool_calls": [{"id": "x7"}]})"},
                              {.role = "tool", .content = "b", .more = R"({"name": "sum"})"}},
                 .tools = R"([{"name": "sum"}, {"name": "now"}])",
                 .arguments = R"({"mood": "calm"})"};
  EXPECT_EQ(model.chat_prompt(chat).text, "<sum><now>calm|user:a;assistant:(x7);tool:b;!");
  chat.add_generation_prompt = false;
  chat.tools.clear();
  chat.arguments.clear();
  const api::ChatPrompt prompt = model.chat_prompt(chat);
  EXPECT_EQ(prompt.text, "|user:a;assistant:(x7);tool:b;");
  EXPECT_EQ(model.generate(chat, unending(8)).tokens, model.generate(prompt.tokens, unending(8)).tokens);

  const auto refused = [&](std::string_view words, const api::Chat& wrong) {
    expect_api_error(api::ErrorKind::bad_input, words, [&] { model.chat_prompt(wrong); });
  };
  refused("tools are not JSON", {.messages = chat.messages, .tools = "[{"});
  refused("tools have to be a list", {.messages = chat.messages, .tools = "{}"});
  refused("arguments have to be an object", {.messages = chat.messages, .arguments = "[]"});
  refused("fields", {.messages = {{.role = "user", .content = "a", .more = "7"}}});
  refused("nest", {.messages = chat.messages, .tools = std::string(100, '[') + std::string(100, ']')});
}

TEST_F(ApiKnown, WhatTheMakersRecommend) {
  const api::GenerateOptions recommended = model_.recommended();
  EXPECT_EQ(recommended.max_tokens, -1);
  EXPECT_EQ(recommended.temperature, 0.0f);
  EXPECT_TRUE(recommended.stop.empty());
}

}  // namespace
}  // namespace quarrel::test
