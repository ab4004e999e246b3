// What can be known and asked for through the C interface, compared with the C++ one.
#include <algorithm>
#include <limits>
#include <string>

#include "api/c_api_support.h"

namespace quarrel::test {
namespace {

std::string_view view(const quarrel_text& text) { return {text.data, text.bytes}; }

class CKnown : public CApiTest {
 protected:
  // The text of a call that is first asked for its size.
  template <typename Call>
  std::string text_of(const Call& call) {
    std::size_t bytes = 0;
    const quarrel_status status = call(nullptr, 0, &bytes);
    EXPECT_TRUE(status == QUARREL_TOO_SMALL || (status == QUARREL_OK && bytes == 0)) << error_.message;
    std::string text(bytes, '\0');
    if (bytes == 0) return text;
    EXPECT_EQ(call(text.data(), bytes, &bytes), QUARREL_OK) << error_.message;
    return text;
  }
  std::string metadata(const char* key, std::int32_t expected) {
    std::int32_t kind = -1;
    const std::string value = text_of([&](char* data, std::size_t capacity, std::size_t* bytes) {
      return quarrel_model_get_metadata(handle_, quarrel_text_of(key), &kind, data, capacity, bytes, &error_);
    });
    EXPECT_EQ(kind, expected) << key;
    return value;
  }
};

TEST_F(CKnown, TokensAndMetadata) {
  auto special = sized<quarrel_special_tokens>();
  ASSERT_EQ(quarrel_model_get_special_tokens(handle_, &special, &error_), QUARREL_OK);
  EXPECT_EQ(special.eos, 2);
  EXPECT_EQ(special.cls, QUARREL_NO_TOKEN);
  const auto expected = model_.special_tokens().end_of_generation;
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), special.end_of_generation.tokens,
                         special.end_of_generation.tokens + special.end_of_generation.count));
  EXPECT_EQ(text_of([&](char* data, std::size_t capacity, std::size_t* bytes) {
              return quarrel_token_bytes(handle_, 2, 1, data, capacity, bytes, &error_);
            }),
            "<|im_end|>");
  quarrel_token token = 0;
  std::size_t count = 0;
  ASSERT_EQ(quarrel_tokenize_special(handle_, quarrel_text_of("<|im_end|>"), 0, 1, &token, 1, &count, &error_),
            QUARREL_OK);
  EXPECT_EQ(token, 2);
  EXPECT_EQ(text_of([&](char* data, std::size_t capacity, std::size_t* bytes) {
              return quarrel_detokenize_special(handle_, &token, 1, 1, data, capacity, bytes, &error_);
            }),
            "<|im_end|>");

  std::vector<std::string> keys;
  quarrel_text key{};
  while (quarrel_model_get_metadata_key(handle_, keys.size(), &key, &error_) == QUARREL_OK)
    keys.emplace_back(view(key));
  EXPECT_EQ(error_.status, QUARREL_NOT_FOUND);
  EXPECT_EQ(keys, model_.metadata_keys());
  EXPECT_EQ(metadata("general.architecture", QUARREL_METADATA_TEXT), "llama");
  EXPECT_EQ(metadata("llama.context_length", QUARREL_METADATA_JSON), "1024");
  EXPECT_TRUE(metadata("tokenizer.ggml.token_type", QUARREL_METADATA_JSON).starts_with("["));
  std::size_t bytes = 0;
  EXPECT_EQ(quarrel_model_get_metadata(handle_, quarrel_text_of("none"), nullptr, nullptr, 0, &bytes, &error_),
            QUARREL_NOT_FOUND);
}

TEST_F(CKnown, NumbersOfTheModel) {
  quarrel_load_options load;
  quarrel_load_options_init(&load, sizeof load);
  load.threads = 2;
  load.sequences = 2;
  load.kv_type = QUARREL_KV_F32;
  auto estimate = sized<quarrel_memory_estimate>();
  ASSERT_EQ(quarrel_model_estimate(quarrel_text_of(file_.c_str()), &load, &estimate, &error_), QUARREL_OK)
      << error_.message;
  api::LoadOptions same = small_load();
  same.kv_type = api::KvType::f32;
  EXPECT_EQ(estimate.kv, api::Model::estimate(file_, same).kv);
  EXPECT_EQ(estimate.context, 1024);
  for (load.activations = 0; load.activations <= QUARREL_ACTIVATIONS_F16; ++load.activations) {
    EXPECT_EQ(quarrel_model_estimate(quarrel_text_of(file_.c_str()), &load, &estimate, &error_), QUARREL_OK)
        << load.activations << ": " << error_.message;
  }
  EXPECT_EQ(quarrel_model_estimate(quarrel_text_of(file_.c_str()), &load, &estimate, &error_), QUARREL_USAGE);
  load.activations = 0;
  load.kv_type = 9;
  EXPECT_EQ(quarrel_model_estimate(quarrel_text_of(file_.c_str()), &load, &estimate, &error_), QUARREL_USAGE);

  const quarrel_generate_options options = unending_c(4);
  quarrel_generate_text(handle_, quarrel_text_of(kPrompt), &options, nullptr, nullptr, nullptr, &error_);
  auto metrics = sized<quarrel_metrics>();
  ASSERT_EQ(quarrel_model_get_metrics(handle_, &metrics, &error_), QUARREL_OK);
  EXPECT_EQ(metrics.finished, 1u);
  EXPECT_EQ(metrics.tokens, 4u);
  auto info = sized<quarrel_model_info>();
  ASSERT_EQ(quarrel_model_get_info(handle_, &info, &error_), QUARREL_OK);
  EXPECT_EQ(view(info.path), file_);
  EXPECT_EQ(info.embeds, 1);
  EXPECT_EQ(info.pooling, QUARREL_POOLING_LAST);
  EXPECT_EQ(info.most_answers, model_.info().most_answers);
  auto recommended = sized<quarrel_generate_options>();
  ASSERT_EQ(quarrel_model_get_recommended(handle_, &recommended, &error_), QUARREL_OK);
  EXPECT_EQ(recommended.max_tokens, -1);
  EXPECT_EQ(recommended.typical_p, 1.0f);
}

TEST_F(CKnown, EveryOptionOfAnAnswerArrives) {
  quarrel_generate_options options = unending_c(24);
  options.temperature = 1.5f;
  options.seed = 9;
  options.typical_p = 0.4f;
  options.presence_penalty = 0.7f;
  options.penalty_scope = QUARREL_PENALTY_RECENT;
  options.prompt_logprobs = 1;
  options.logprobs = 1;
  options.show_special = 1;
  options.priority = QUARREL_PRIORITY_BATCH;
  options.overflow = QUARREL_OVERFLOW_SHIFT;
  options.keep = 2;
  options.key = 5;
  options.salt = 6;
  options.use_cache = 0;
  options.pinned = 3;
  const quarrel_bias bias{.token = 1, .bias = 4.0f};
  options.logit_bias = &bias;
  options.logit_bias_count = 1;
  api::GenerateOptions same = unending(24);
  same.temperature = 1.5f;
  same.seed = 9;
  same.typical_p = 0.4f;
  same.presence_penalty = 0.7f;
  same.penalty_scope = api::PenaltyScope::recent;
  same.show_special = true;
  same.prompt_logprobs = true;
  same.logprobs = 1;
  same.logit_bias = {{1, 4.0f}};
  const api::GenerateResult expected = model_.generate(kPrompt, same);

  quarrel_result* result = nullptr;
  ASSERT_EQ(quarrel_generate_text(handle_, quarrel_text_of(kPrompt), &options, nullptr, nullptr, &result, &error_),
            QUARREL_OK)
      << error_.message;
  auto info = sized<quarrel_result_info>();
  ASSERT_EQ(quarrel_result_get_info(result, &info, &error_), QUARREL_OK);
  EXPECT_EQ(view(info.text), expected.text);
  EXPECT_EQ(std::vector<api::Token>(info.tokens, info.tokens + info.token_count), expected.tokens);
  ASSERT_EQ(info.prompt_logprob_count, expected.prompt_logprobs.size());
  EXPECT_EQ(info.prompt_logprobs[1].logprob, expected.prompt_logprobs[1].logprob);
  const quarrel_logprob* top = nullptr;
  std::size_t count = 0;
  ASSERT_EQ(quarrel_result_get_prompt_top(result, 0, &top, &count, &error_), QUARREL_OK);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(quarrel_result_get_prompt_top(result, 999, &top, &count, &error_), QUARREL_BAD_INPUT);
  EXPECT_EQ(info.cached_tokens, 0u);
  quarrel_result_free(result);

  for (std::int32_t quarrel_generate_options::* field :
       {&quarrel_generate_options::priority, &quarrel_generate_options::overflow,
        &quarrel_generate_options::penalty_scope}) {
    quarrel_generate_options wrong = unending_c(2);
    wrong.*field = 7;
    EXPECT_EQ(quarrel_generate_text(handle_, quarrel_text_of("a"), &wrong, nullptr, nullptr, nullptr, &error_),
              QUARREL_USAGE);
  }
}

TEST_F(CKnown, AMaskAndFailures) {
  quarrel_generate_options options = unending_c(6);
  options.mask = [](std::size_t, const quarrel_token*, std::size_t count, std::uint64_t* allowed, std::size_t,
                    void* user) {
    allowed[1] = 2;  // token 65
    return count < *static_cast<std::size_t*>(user) ? 1 : 0;
  };
  std::size_t most = 100;
  options.mask_user = &most;
  quarrel_result* result = nullptr;
  ASSERT_EQ(quarrel_generate_text(handle_, quarrel_text_of("a"), &options, nullptr, nullptr, &result, &error_),
            QUARREL_OK);
  auto info = sized<quarrel_result_info>();
  quarrel_result_get_info(result, &info, &error_);
  EXPECT_EQ(std::vector<api::Token>(info.tokens, info.tokens + info.token_count), std::vector<api::Token>(6, 65));
  quarrel_result_free(result);

  most = 3;
  EXPECT_EQ(quarrel_generate_text(handle_, quarrel_text_of("a"), &options, nullptr, nullptr, &result, &error_),
            QUARREL_FAILED);
  EXPECT_EQ(result, nullptr);
  options.answers = 2;
  ASSERT_EQ(quarrel_generate_text(handle_, quarrel_text_of("a"), &options, nullptr, nullptr, &result, &error_),
            QUARREL_OK);
  for (std::size_t answer = 0; answer < 2; ++answer) {
    ASSERT_EQ(quarrel_result_get_answer_info(result, answer, &info, &error_), QUARREL_OK);
    EXPECT_EQ(info.reason, QUARREL_FINISH_FAILED);
    EXPECT_NE(view(info.error).find("gave up"), std::string_view::npos) << view(info.error);
    EXPECT_EQ(info.token_count, 3u);
  }
  quarrel_result_free(result);
}

TEST_F(CKnown, ConversationsWithTools) {
  quarrel_load_options load;
  quarrel_load_options_init(&load, sizeof load);
  load.threads = 2;
  load.chat_template =
      quarrel_text_of("{{ tools[0].name }}{{ x }}{% for m in messages %}[{{ m.content }}{{ m.id }}]{% endfor %}");
  quarrel_model* model = nullptr;
  ASSERT_EQ(quarrel_model_load(quarrel_text_of(file_.c_str()), &load, &model, &error_), QUARREL_OK) << error_.message;
  const std::array<quarrel_message, 2> messages{
      {{quarrel_text_of("user"), quarrel_text_of("a")}, {quarrel_text_of("tool"), quarrel_text_of("b")}}};
  const std::array<quarrel_text, 2> more{quarrel_text{nullptr, 0}, quarrel_text_of(R"({"id": 7})")};
  auto chat = sized<quarrel_chat_input>();
  chat.messages = messages.data();
  chat.message_count = messages.size();
  chat.more = more.data();
  chat.tools = quarrel_text_of(R"([{"name": "sum"}])");
  chat.arguments = quarrel_text_of(R"({"x": "-"})");
  const std::string text = text_of([&](char* data, std::size_t capacity, std::size_t* bytes) {
    return quarrel_chat_text(model, &chat, data, capacity, bytes, &error_);
  });
  EXPECT_EQ(text, "sum-[a][b7]");
  std::vector<quarrel_token> tokens(64);
  std::size_t count = 0;
  ASSERT_EQ(quarrel_chat_tokens(model, &chat, tokens.data(), tokens.size(), &count, &error_), QUARREL_OK);
  tokens.resize(count);

  auto prompt = sized<quarrel_prompt>();
  prompt.kind = QUARREL_PROMPT_CHAT;
  prompt.chat = &chat;
  const quarrel_generate_options options = unending_c(8);
  quarrel_result* result = nullptr;
  ASSERT_EQ(quarrel_generate_prompt(model, &prompt, &options, nullptr, nullptr, &result, &error_), QUARREL_OK);
  auto info = sized<quarrel_result_info>();
  quarrel_result_get_info(result, &info, &error_);
  EXPECT_EQ(std::vector<api::Token>(info.tokens, info.tokens + info.token_count),
            model_.generate(tokens, unending(8)).tokens);
  quarrel_result_free(result);
  chat.tools = quarrel_text_of("{");
  EXPECT_EQ(quarrel_chat_tokens(model, &chat, tokens.data(), 0, &count, &error_), QUARREL_BAD_INPUT);
  EXPECT_EQ(quarrel_chat_tokens(model, nullptr, tokens.data(), 0, &count, &error_), QUARREL_USAGE);
  quarrel_model_free(model);
}

TEST_F(CKnown, VectorsWithOptions) {
  quarrel_embed_options options;
  ASSERT_EQ(quarrel_embed_options_init(&options, sizeof options), QUARREL_OK);
  options.dimensions = 8;
  const std::array<quarrel_text, 2> texts{quarrel_text_of("Hello"), quarrel_text_of("what is")};
  quarrel_embeddings* embeddings = nullptr;
  ASSERT_EQ(quarrel_embed_texts(handle_, texts.data(), 2, &options, &embeddings, &error_), QUARREL_OK)
      << error_.message;
  const std::vector<std::string> same{"Hello", "what is"};
  const auto expected = model_.embed(same, {.dimensions = 8});
  auto info = sized<quarrel_embedding_info>();
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(quarrel_embeddings_get_info(embeddings, i, &info, &error_), QUARREL_OK);
    EXPECT_EQ(std::vector<float>(info.values, info.values + info.width), expected[i].values);
    EXPECT_EQ(info.vectors, 1u);
    EXPECT_EQ(info.tokens, expected[i].tokens);
  }
  EXPECT_EQ(quarrel_embeddings_get_info(embeddings, 2, &info, &error_), QUARREL_BAD_INPUT);
  quarrel_embeddings_free(embeddings);

  options.dimensions = 0;
  options.pooling = QUARREL_POOLING_NONE;
  options.no_normalize = 1;
  const std::vector<quarrel_token> tokens = model_.tokenize("Hello world");
  const quarrel_token_list list{.tokens = tokens.data(), .count = tokens.size()};
  ASSERT_EQ(quarrel_embed_tokens(handle_, &list, 1, &options, &embeddings, &error_), QUARREL_OK) << error_.message;
  ASSERT_EQ(quarrel_embeddings_get_info(embeddings, 0, &info, &error_), QUARREL_OK);
  EXPECT_EQ(info.vectors, tokens.size());
  const std::vector<std::vector<api::Token>> lists{tokens};
  const auto rows = model_.embed(lists, {.pooling = api::Pooling::none, .normalize = false}).front().token_vectors;
  EXPECT_EQ(std::vector<float>(info.values + info.width, info.values + 2 * info.width), rows[1]);
  quarrel_embeddings_free(embeddings);

  options.pooling = 6;
  EXPECT_EQ(quarrel_embed_tokens(handle_, &list, 1, &options, &embeddings, &error_), QUARREL_USAGE);
  EXPECT_EQ(quarrel_embed_texts(handle_, nullptr, 1, nullptr, &embeddings, &error_), QUARREL_USAGE);
  EXPECT_EQ(quarrel_embeddings_get_info(nullptr, 0, &info, &error_), QUARREL_USAGE);

  std::size_t needed = 0;
  EXPECT_EQ(quarrel_embedding_rows(handle_, tokens.data(), tokens.size(), nullptr, 0, &needed, &error_),
            QUARREL_TOO_SMALL);
  std::vector<float> values(needed);
  ASSERT_EQ(
      quarrel_embedding_rows_of_text(handle_, quarrel_text_of("Hello world"), values.data(), needed, &needed, &error_),
      QUARREL_OK);
  std::vector<float> table;
  for (const auto& row : model_.embedding_rows(tokens)) table.insert(table.end(), row.begin(), row.end());
  EXPECT_EQ(values, table);
}

TEST_F(CKnown, WarningsAndModelsSideBySide) {
  const std::string toy = write_toy_embed(folder_.path()).string();
  std::vector<std::string> lines;
  quarrel_load_options load;
  quarrel_load_options_init(&load, sizeof load);
  load.beside = handle_;
  load.user = &lines;
  load.warning = [](quarrel_text line, void* user) {
    static_cast<std::vector<std::string>*>(user)->emplace_back(view(line));
  };
  quarrel_model* model = nullptr;
  ASSERT_EQ(quarrel_model_load(quarrel_text_of(toy.c_str()), &load, &model, &error_), QUARREL_OK) << error_.message;
  lines.clear();
  std::string longest;
  for (int i = 0; i < 2000; ++i) longest += "fox ";
  const quarrel_text text{longest.data(), longest.size()};
  quarrel_embeddings* embeddings = nullptr;
  ASSERT_EQ(quarrel_embed_texts(model, &text, 1, nullptr, &embeddings, &error_), QUARREL_OK);
  auto info = sized<quarrel_embedding_info>();
  quarrel_embeddings_get_info(embeddings, 0, &info, &error_);
  EXPECT_EQ(info.cut, 1);
  EXPECT_EQ(info.full_tokens, 2002u);
  EXPECT_EQ(lines.size(), 1u);
  quarrel_embeddings_free(embeddings);
  quarrel_model_free(model);
  load.beside = reinterpret_cast<quarrel_model*>(&load);
  EXPECT_EQ(quarrel_model_load(quarrel_text_of(toy.c_str()), &load, &model, &error_), QUARREL_USAGE);
}

}  // namespace
}  // namespace quarrel::test
