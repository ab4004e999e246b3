// The C interface: what it gives is what the C++ one gives, and nothing that a caller hands it makes it crash or throw.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "api/c_api_support.h"

namespace quarrel::test {
namespace {

class CApi : public CApiTest {
 protected:
  // Of a call that must fail: its status, and a message with these words.
  void expect_failure(quarrel_status status, quarrel_status expected, std::string_view words) {
    EXPECT_EQ(status, expected) << error_.message;
    EXPECT_EQ(error_.status, status);
    EXPECT_NE(std::string_view(error_.message).find(words), std::string_view::npos)
        << '"' << error_.message << "\" has no: " << words;
    error_ = QUARREL_ERROR_INIT;
  }
};

struct Seen {
  std::string text = {};
  std::vector<quarrel_token> tokens = {};
  std::size_t most = SIZE_MAX;
};

int collect(const quarrel_piece* piece, void* user) {
  Seen& seen = *static_cast<Seen*>(user);
  EXPECT_EQ(piece->size, sizeof(quarrel_piece));
  seen.text.append(piece->text.data, piece->text.bytes);
  if (piece->token != QUARREL_NO_TOKEN) seen.tokens.push_back(piece->token);
  return seen.tokens.size() < seen.most ? 1 : 0;
}

int throws(const quarrel_piece*, void*) { throw std::runtime_error("a C++ program's mistake"); }
int throws_oddly(const quarrel_piece*, void*) { throw 7; }

TEST_F(CApi, GivesWhatTheOtherOneGives) {
  const char* prompt = "Hello world";
  std::size_t count = 0;
  EXPECT_EQ(quarrel_tokenize(handle_, quarrel_text_of(prompt), 0, nullptr, 0, &count, &error_), QUARREL_TOO_SMALL);
  std::vector<quarrel_token> tokens(count);
  ASSERT_EQ(quarrel_tokenize(handle_, quarrel_text_of(prompt), 0, tokens.data(), count, &count, &error_), QUARREL_OK);
  EXPECT_EQ(tokens, model_.tokenize(prompt));
  EXPECT_STREQ(error_.message, "");

  std::array<char, 64> text{};
  std::size_t bytes = 0;
  ASSERT_EQ(quarrel_detokenize(handle_, tokens.data(), count, text.data(), text.size(), &bytes, &error_), QUARREL_OK);
  EXPECT_EQ(std::string_view(text.data(), bytes), prompt);

  quarrel_generate_options options = unending_c(40);
  options.logprobs = 2;
  quarrel_result* result = nullptr;
  Seen seen;
  ASSERT_EQ(quarrel_generate(handle_, tokens.data(), count, &options, collect, &seen, &result, &error_), QUARREL_OK)
      << error_.message;
  auto info = sized<quarrel_result_info>();
  ASSERT_EQ(quarrel_result_get_info(result, &info, &error_), QUARREL_OK);
  const api::GenerateResult expected = model_.generate(tokens, unending(40));
  EXPECT_EQ(seen.tokens, expected.tokens);
  EXPECT_EQ(seen.text, expected.text);
  EXPECT_EQ(std::string_view(info.text.data, info.text.bytes), expected.text);
  EXPECT_EQ(std::vector<api::Token>(info.tokens, info.tokens + info.token_count), expected.tokens);
  EXPECT_EQ(std::vector<float>(info.logprobs, info.logprobs + info.token_count), expected.logprobs);
  EXPECT_EQ(info.reason, QUARREL_FINISH_LENGTH);
  EXPECT_EQ(info.seed, 1u);
  EXPECT_EQ(info.prompt_tokens, tokens.size());
  const quarrel_logprob* top = nullptr;
  ASSERT_EQ(quarrel_result_get_top(result, 39, &top, &count, &error_), QUARREL_OK);
  ASSERT_EQ(count, 2u);
  EXPECT_EQ(top->token, expected.tokens[39]);
  expect_failure(quarrel_result_get_top(result, 40, &top, &count, &error_), QUARREL_BAD_INPUT, "40");
  quarrel_result_free(result);

  auto about = sized<quarrel_model_info>();
  ASSERT_EQ(quarrel_model_get_info(handle_, &about, &error_), QUARREL_OK);
  EXPECT_EQ(about.context, 1024);
  EXPECT_EQ(std::string_view(about.architecture.data, about.architecture.bytes), "llama");
}

TEST_F(CApi, ConversationsStopsAndTexts) {
  const std::array<quarrel_message, 1> messages{{{quarrel_text_of("user"), quarrel_text_of("Hello")}}};
  const std::vector<api::Message> same{{.role = "user", .content = "Hello"}};
  const std::vector<api::Token> expected = model_.chat_prompt(same).tokens;
  std::vector<quarrel_token> tokens(256);
  std::size_t count = 0;
  ASSERT_EQ(quarrel_chat_prompt(handle_, messages.data(), 1, tokens.data(), tokens.size(), &count, &error_),
            QUARREL_OK);
  tokens.resize(count);
  EXPECT_EQ(tokens, expected);

  quarrel_generate_options options = unending_c(64);
  const std::string whole = model_.generate(expected, unending(64)).text;
  const auto ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80u; };
  const auto later = std::find_if(whole.begin() + 10, whole.end(), ascii);
  ASSERT_NE(later, whole.end());
  const std::string stop(1, *later);
  const std::array<quarrel_text, 1> stops{{{stop.data(), stop.size()}}};
  options.stop = stops.data();
  options.stop_count = 1;
  Seen seen;
  ASSERT_EQ(quarrel_chat(handle_, messages.data(), 1, &options, collect, &seen, nullptr, &error_), QUARREL_OK);
  EXPECT_EQ(seen.text, whole.substr(0, whole.find(stop)));

  seen = {.most = 3};
  const quarrel_generate_options plain = unending_c(-1);
  ASSERT_EQ(quarrel_generate_text(handle_, quarrel_text_of("Hello"), &plain, collect, &seen, nullptr, &error_),
            QUARREL_OK);
  EXPECT_EQ(seen.tokens.size(), 3u);
}

TEST_F(CApi, ACancelHandleEndsAnswers) {
  quarrel_cancel* cancel = nullptr;
  ASSERT_EQ(quarrel_cancel_new(&cancel, &error_), QUARREL_OK);
  quarrel_generate_options options = unending_c(-1);
  options.cancel = cancel;
  const auto now = [](const quarrel_piece*, void* user) {
    EXPECT_EQ(quarrel_cancel_now(static_cast<quarrel_cancel*>(user), nullptr), QUARREL_OK);
    return 1;
  };
  quarrel_result* result = nullptr;
  ASSERT_EQ(quarrel_generate_text(handle_, quarrel_text_of("Hello"), &options, now, cancel, &result, &error_),
            QUARREL_OK);
  auto info = sized<quarrel_result_info>();
  ASSERT_EQ(quarrel_result_get_info(result, &info, nullptr), QUARREL_OK);
  EXPECT_EQ(info.reason, QUARREL_FINISH_CANCELLED);
  EXPECT_EQ(info.token_count, 1u);
  quarrel_result_free(result);
  quarrel_cancel_free(cancel);
}

TEST_F(CApi, NoExceptionCrosses) {
  const quarrel_text prompt = quarrel_text_of("Hello");
  const quarrel_generate_options options = unending_c(8);
  expect_failure(quarrel_generate_text(handle_, prompt, &options, throws, nullptr, nullptr, &error_), QUARREL_INTERNAL,
                 "a C++ program's mistake");
  expect_failure(quarrel_generate_text(handle_, prompt, &options, throws_oddly, nullptr, nullptr, &error_),
                 QUARREL_INTERNAL, "threw");
  quarrel_load_options load;
  quarrel_load_options_init(&load, sizeof load);
  load.progress = [](std::uint64_t, std::uint64_t, void*) -> int { throw 7; };
  quarrel_model* model = nullptr;
  expect_failure(quarrel_model_load(quarrel_text_of(file_.c_str()), &load, &model, &error_), QUARREL_INTERNAL, "threw");
  load.progress = [](std::uint64_t, std::uint64_t, void*) { return 0; };
  expect_failure(quarrel_model_load(quarrel_text_of(file_.c_str()), &load, &model, &error_), QUARREL_CANCELLED, "load");
  EXPECT_EQ(model, nullptr);
}

TEST_F(CApi, NullsAreToldNotFollowed) {
  const quarrel_text text = quarrel_text_of("a");
  const quarrel_text broken{nullptr, 5};
  quarrel_token token = 5;
  std::size_t count = 0;
  char letter = 0;
  float value = 0.0f;
  quarrel_model* model = nullptr;
  const quarrel_message message{text, text};
  const quarrel_message half{text, broken};
  auto info = sized<quarrel_model_info>();
  auto about = sized<quarrel_result_info>();
  const quarrel_logprob* top = nullptr;
  const auto null = [this](quarrel_status status) { expect_failure(status, QUARREL_USAGE, "null"); };

  EXPECT_EQ(quarrel_load_options_init(nullptr, sizeof(quarrel_load_options)), QUARREL_USAGE);
  EXPECT_EQ(quarrel_generate_options_init(nullptr, sizeof(quarrel_generate_options)), QUARREL_USAGE);
  null(quarrel_model_load(text, nullptr, nullptr, &error_));
  null(quarrel_model_load(broken, nullptr, &model, &error_));
  null(quarrel_model_get_info(nullptr, &info, &error_));
  null(quarrel_model_get_info(handle_, nullptr, &error_));
  null(quarrel_tokenize(nullptr, text, 0, &token, 1, &count, &error_));
  null(quarrel_tokenize(handle_, broken, 0, &token, 1, &count, &error_));
  null(quarrel_tokenize(handle_, text, 0, &token, 1, nullptr, &error_));
  null(quarrel_tokenize(handle_, text, 0, nullptr, 1, &count, &error_));
  null(quarrel_detokenize(nullptr, &token, 1, &letter, 1, &count, &error_));
  null(quarrel_detokenize(handle_, nullptr, 1, &letter, 1, &count, &error_));
  null(quarrel_detokenize(handle_, &token, 1, &letter, 1, nullptr, &error_));
  null(quarrel_detokenize(handle_, &token, 1, nullptr, 8, &count, &error_));
  null(quarrel_chat_prompt(nullptr, &message, 1, &token, 1, &count, &error_));
  null(quarrel_chat_prompt(handle_, nullptr, 1, &token, 1, &count, &error_));
  null(quarrel_chat_prompt(handle_, &half, 1, &token, 1, &count, &error_));
  null(quarrel_chat_prompt(handle_, &message, 1, &token, 1, nullptr, &error_));
  null(quarrel_generate(nullptr, &token, 1, nullptr, nullptr, nullptr, nullptr, &error_));
  null(quarrel_generate(handle_, nullptr, 1, nullptr, nullptr, nullptr, nullptr, &error_));
  null(quarrel_generate_text(nullptr, text, nullptr, nullptr, nullptr, nullptr, &error_));
  null(quarrel_generate_text(handle_, broken, nullptr, nullptr, nullptr, nullptr, &error_));
  null(quarrel_chat(nullptr, &message, 1, nullptr, nullptr, nullptr, nullptr, &error_));
  null(quarrel_chat(handle_, nullptr, 1, nullptr, nullptr, nullptr, nullptr, &error_));
  null(quarrel_result_get_info(nullptr, &about, &error_));
  null(quarrel_result_get_top(nullptr, 0, &top, &count, &error_));
  null(quarrel_cancel_new(nullptr, &error_));
  null(quarrel_cancel_now(nullptr, &error_));
  null(quarrel_embed(nullptr, &text, 1, &value, 1, &count, &error_));
  null(quarrel_embed(handle_, nullptr, 1, &value, 1, &count, &error_));
  null(quarrel_embed(handle_, &text, 1, &value, 1, nullptr, &error_));

  quarrel_generate_options options = unending_c(4);
  options.stop_count = 1;
  null(quarrel_generate(handle_, &token, 1, &options, nullptr, nullptr, nullptr, &error_));
  options = unending_c(4);
  options.stop_token_count = 1;
  null(quarrel_generate(handle_, &token, 1, &options, nullptr, nullptr, nullptr, &error_));

  // Nothing is wanted of these but the status, and it is given without a place for the message.
  EXPECT_EQ(quarrel_cancel_now(nullptr, nullptr), QUARREL_USAGE);
  quarrel_model_free(nullptr);
  quarrel_result_free(nullptr);
  quarrel_cancel_free(nullptr);
}

TEST_F(CApi, HandlesOfAnotherKindAreTold) {
  quarrel_cancel* cancel = nullptr;
  ASSERT_EQ(quarrel_cancel_new(&cancel, &error_), QUARREL_OK);
  alignas(16) std::array<unsigned char, 512> zeros{};
  auto info = sized<quarrel_model_info>();
  for (void* wrong : {static_cast<void*>(cancel), static_cast<void*>(zeros.data())}) {
    auto* model = static_cast<quarrel_model*>(wrong);
    auto* result = static_cast<quarrel_result*>(wrong);
    expect_failure(quarrel_model_get_info(model, &info, &error_), QUARREL_USAGE, "a handle of another kind");
    auto about = sized<quarrel_result_info>();
    expect_failure(quarrel_result_get_info(result, &about, &error_), QUARREL_USAGE, "a handle of another kind");
    quarrel_model_free(model);  // left alone
    quarrel_result_free(result);
  }
  quarrel_generate_options options = unending_c(4);
  options.cancel = reinterpret_cast<const quarrel_cancel*>(handle_);
  expect_failure(quarrel_generate_text(handle_, quarrel_text_of("a"), &options, nullptr, nullptr, nullptr, &error_),
                 QUARREL_USAGE, "a handle of another kind");
  EXPECT_EQ(quarrel_cancel_now(cancel, &error_), QUARREL_OK);
  quarrel_cancel_free(cancel);
}

TEST_F(CApi, StructsOfOtherVersionsAreUnderstood) {
  // A newer program: what it sets beyond what we know is not swallowed, what it leaves at zero is fine.
  struct Newer {
    quarrel_generate_options known;
    std::uint64_t unknown;
  };
  Newer newer;
  ASSERT_EQ(quarrel_generate_options_init(&newer.known, sizeof newer), QUARREL_OK);
  EXPECT_EQ(newer.unknown, 0u);
  EXPECT_EQ(newer.known.size, sizeof newer);
  newer.known.max_tokens = 2;
  const quarrel_text prompt = quarrel_text_of("a");
  EXPECT_EQ(quarrel_generate_text(handle_, prompt, &newer.known, nullptr, nullptr, nullptr, &error_), QUARREL_OK);
  newer.unknown = 1;
  expect_failure(quarrel_generate_text(handle_, prompt, &newer.known, nullptr, nullptr, nullptr, &error_),
                 QUARREL_UNSUPPORTED, "does not know");

  // An older one: its first two fields alone.
  quarrel_generate_options older;
  std::memset(static_cast<void*>(&older), 0xff, sizeof older);
  ASSERT_EQ(quarrel_generate_options_init(&older, 8), QUARREL_OK);
  older.max_tokens = 3;
  Seen seen;
  EXPECT_EQ(quarrel_generate_text(handle_, prompt, &older, collect, &seen, nullptr, &error_), QUARREL_OK)
      << error_.message;
  EXPECT_EQ(seen.tokens.size(), 3u);

  for (const std::uint32_t size : {0u, 3u, std::numeric_limits<std::uint32_t>::max()}) {
    older.size = size;
    expect_failure(quarrel_generate_text(handle_, prompt, &older, nullptr, nullptr, nullptr, &error_), QUARREL_USAGE,
                   "size");
    auto info = sized<quarrel_model_info>(size);
    expect_failure(quarrel_model_get_info(handle_, &info, &error_), QUARREL_USAGE, "size");
  }
  EXPECT_EQ(quarrel_load_options_init(reinterpret_cast<quarrel_load_options*>(&older), 2), QUARREL_USAGE);

  // A message is cut to the room there is, between characters.
  struct {
    std::uint32_t size = 16;
    quarrel_status status = 0;
    std::array<char, 504> message{};
  } small;
  small.message.fill('#');
  EXPECT_EQ(quarrel_cancel_now(nullptr, reinterpret_cast<quarrel_error*>(&small)), QUARREL_USAGE);
  EXPECT_EQ(small.status, QUARREL_USAGE);
  EXPECT_EQ(std::strlen(small.message.data()), 7u);
  EXPECT_EQ(small.message[8], '#');
}

TEST_F(CApi, ErrorsHaveTheirKind) {
  quarrel_model* model = nullptr;
  expect_failure(quarrel_model_load(quarrel_text_of("/nowhere/model.gguf"), nullptr, &model, &error_),
                 QUARREL_NOT_FOUND, "/nowhere/model.gguf");
  expect_failure(quarrel_model_load(quarrel_text_of(""), nullptr, &model, &error_), QUARREL_USAGE, "empty");
  const quarrel_token far = 1 << 24;
  expect_failure(quarrel_generate(handle_, &far, 1, nullptr, nullptr, nullptr, nullptr, &error_), QUARREL_BAD_INPUT,
                 "16777216");
  expect_failure(quarrel_generate(handle_, nullptr, 0, nullptr, nullptr, nullptr, nullptr, &error_), QUARREL_BAD_INPUT,
                 "empty");
  expect_failure(quarrel_generate(handle_, &far, SIZE_MAX, nullptr, nullptr, nullptr, nullptr, &error_), QUARREL_USAGE,
                 "more than memory");
  std::size_t needed = 0;
  const quarrel_text text = quarrel_text_of("a");
  float value = 0.0f;
  expect_failure(quarrel_embed(handle_, &text, 1, &value, 1, &needed, &error_), QUARREL_TOO_SMALL, "needed");
  for (quarrel_status status = QUARREL_OK; status <= QUARREL_END; ++status) {
    EXPECT_STRNE(quarrel_status_name(status), "unknown") << status;
  }
  EXPECT_STREQ(quarrel_status_name(-1), "unknown");
  EXPECT_EQ(quarrel_abi_version(), std::uint32_t{QUARREL_ABI_VERSION});
  EXPECT_STREQ(quarrel_version(), api::version());
}

TEST(CApiEmbedding, GivesOneVectorAfterTheOther) {
  const TempDir folder;
  const std::string file = write_toy_embed(folder.path()).string();
  quarrel_model* model = nullptr;
  ASSERT_EQ(quarrel_model_load(quarrel_text_of(file.c_str()), nullptr, &model, nullptr), QUARREL_OK);
  const std::array<quarrel_text, 2> texts{quarrel_text_of("a fox"), quarrel_text_of("the dog")};
  std::size_t needed = 0;
  EXPECT_EQ(quarrel_embed(model, texts.data(), 2, nullptr, 0, &needed, nullptr), QUARREL_TOO_SMALL);
  std::vector<float> values(needed);
  ASSERT_EQ(quarrel_embed(model, texts.data(), 2, values.data(), values.size(), &needed, nullptr), QUARREL_OK);
  std::vector<float> expected;
  const std::vector<std::string> same{"a fox", "the dog"};
  for (const auto& embedding : api::Model::load(file).embed(same)) {
    expected.insert(expected.end(), embedding.values.begin(), embedding.values.end());
  }
  EXPECT_EQ(values, expected);
  quarrel_model_free(model);
}

}  // namespace
}  // namespace quarrel::test
