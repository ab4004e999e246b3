// Answers that no thread waits for, through the C interface.
#include <poll.h>

#include <future>

#include "api/c_api_support.h"

namespace quarrel::test {
namespace {

class CGeneration : public CApiTest {
 protected:
  static quarrel_prompt text_prompt() {
    quarrel_prompt prompt{};
    prompt.size = sizeof prompt;
    prompt.kind = QUARREL_PROMPT_TEXT;
    prompt.text = quarrel_text_of(kPrompt);
    return prompt;
  }
  quarrel_generation* open(const quarrel_generate_options& options) {
    const quarrel_prompt prompt = text_prompt();
    quarrel_generation* generation = nullptr;
    EXPECT_EQ(quarrel_generation_open(handle_, &prompt, &options, &generation, &error_), QUARREL_OK) << error_.message;
    return generation;
  }
  static quarrel_event sized_event() {
    quarrel_event event{};
    event.size = sizeof event;
    return event;
  }
};

TEST_F(CGeneration, IsReadByALoop) {
  const api::GenerateResult expected = model_.generate(kPrompt, unending(40));
  quarrel_generate_options options = unending_c(40);
  options.logprobs = 2;
  quarrel_generation* generation = open(options);
  int descriptor = -1;
  ASSERT_EQ(quarrel_generation_get_event_fd(generation, &descriptor, &error_), QUARREL_OK);
  std::string text;
  std::vector<quarrel_token> tokens;
  quarrel_status status = QUARREL_OK;
  while (status != QUARREL_END) {
    pollfd entry{.fd = descriptor, .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&entry, 1, 60'000), 1);
    quarrel_event event = sized_event();
    while ((status = quarrel_generation_next(generation, 0, &event, &error_)) == QUARREL_OK) {
      text.append(event.text.data, event.text.bytes);
      EXPECT_EQ(event.reason, event.kind == QUARREL_EVENT_FINISHED ? QUARREL_FINISH_LENGTH : QUARREL_FINISH_STOP);
      if (event.kind != QUARREL_EVENT_PIECE || event.token == QUARREL_NO_TOKEN) continue;
      tokens.push_back(event.token);
      ASSERT_EQ(event.top_count, 2u);
      EXPECT_EQ(event.top[0].token, event.token);
    }
    ASSERT_TRUE(status == QUARREL_END || status == QUARREL_NOTHING) << error_.message;
  }
  EXPECT_EQ(text, expected.text);
  EXPECT_EQ(tokens, expected.tokens);
  std::int32_t done = 0;
  EXPECT_EQ(quarrel_generation_get_done(generation, &done, &error_), QUARREL_OK);
  EXPECT_EQ(done, 1);
  quarrel_result* result = nullptr;
  ASSERT_EQ(quarrel_generation_wait(generation, &result, &error_), QUARREL_OK);
  quarrel_result_info info{};
  info.size = sizeof info;
  ASSERT_EQ(quarrel_result_get_info(result, &info, &error_), QUARREL_OK);
  EXPECT_EQ(std::string_view(info.text.data, info.text.bytes), expected.text);
  quarrel_result_free(result);
  quarrel_generation_free(generation);
}

TEST_F(CGeneration, CallsBack) {
  struct Seen {
    std::string text;
    std::string whole;
    std::promise<void> done;
  } seen;
  const auto on_event = [](const quarrel_event* event, void* user) {
    static_cast<Seen*>(user)->text.append(event->text.data, event->text.bytes);
    return 1;
  };
  const auto on_done = [](const quarrel_result* result, void* user) {
    quarrel_result_info info{};
    info.size = sizeof info;
    EXPECT_EQ(quarrel_result_get_info(result, &info, nullptr), QUARREL_OK);
    static_cast<Seen*>(user)->whole.assign(info.text.data, info.text.bytes);
    static_cast<Seen*>(user)->done.set_value();
  };
  const quarrel_prompt prompt = text_prompt();
  const quarrel_generate_options options = unending_c(40);
  quarrel_generation* generation = nullptr;
  ASSERT_EQ(quarrel_generation_start(handle_, &prompt, &options, on_event, on_done, &seen, &generation, &error_),
            QUARREL_OK);
  seen.done.get_future().wait();
  EXPECT_EQ(seen.text, model_.generate(kPrompt, unending(40)).text);
  EXPECT_EQ(seen.whole, seen.text);
  quarrel_event event = sized_event();
  EXPECT_EQ(quarrel_generation_next(generation, -1, &event, &error_), QUARREL_USAGE);
  quarrel_generation_free(generation);
}

TEST_F(CGeneration, IsCancelled) {
  quarrel_generate_options options = unending_c(-1);
  quarrel_generation* generation = open(options);
  quarrel_event event = sized_event();
  ASSERT_EQ(quarrel_generation_next(generation, -1, &event, &error_), QUARREL_OK);
  EXPECT_EQ(event.kind, QUARREL_EVENT_STARTED);
  ASSERT_EQ(quarrel_generation_cancel_answer(generation, 0, &error_), QUARREL_OK);
  ASSERT_EQ(quarrel_generation_cancel(generation, &error_), QUARREL_OK);
  ASSERT_EQ(quarrel_generation_next(generation, -1, &event, &error_), QUARREL_OK);
  EXPECT_EQ(event.kind, QUARREL_EVENT_FINISHED);
  EXPECT_EQ(event.reason, QUARREL_FINISH_CANCELLED);
  EXPECT_EQ(quarrel_generation_next(generation, -1, &event, &error_), QUARREL_END);
  quarrel_generation_free(generation);
  quarrel_generation_free(open(options));  // in the middle of it
}

TEST_F(CGeneration, MistakesAreReported) {
  quarrel_prompt prompt = text_prompt();
  quarrel_generation* generation = nullptr;
  const auto open_with = [&](const quarrel_prompt* given) {
    return quarrel_generation_open(handle_, given, nullptr, &generation, &error_);
  };
  EXPECT_EQ(open_with(nullptr), QUARREL_USAGE);
  prompt.kind = 3;
  EXPECT_EQ(open_with(&prompt), QUARREL_USAGE);
  prompt.kind = QUARREL_PROMPT_CHAT;
  EXPECT_EQ(open_with(&prompt), QUARREL_USAGE);
  prompt.kind = QUARREL_PROMPT_TOKENS;
  EXPECT_EQ(open_with(&prompt), QUARREL_BAD_INPUT);
  prompt.tokens.count = 4;
  EXPECT_EQ(open_with(&prompt), QUARREL_USAGE);
  prompt.size = 0;
  EXPECT_EQ(open_with(&prompt), QUARREL_USAGE);
  EXPECT_EQ(generation, nullptr);
  prompt = text_prompt();
  EXPECT_EQ(quarrel_generation_open(handle_, &prompt, nullptr, nullptr, &error_), QUARREL_USAGE);
  EXPECT_EQ(quarrel_generation_open(nullptr, &prompt, nullptr, &generation, &error_), QUARREL_USAGE);
  EXPECT_EQ(quarrel_generation_start(nullptr, &prompt, nullptr, nullptr, nullptr, nullptr, &generation, &error_),
            QUARREL_USAGE);

  quarrel_event event = sized_event();
  std::int32_t done = 0;
  int descriptor = 0;
  for (auto* wrong : {static_cast<quarrel_generation*>(nullptr), reinterpret_cast<quarrel_generation*>(handle_)}) {
    EXPECT_EQ(quarrel_generation_next(wrong, 0, &event, &error_), QUARREL_USAGE);
    EXPECT_EQ(quarrel_generation_wait(wrong, nullptr, &error_), QUARREL_USAGE);
    EXPECT_EQ(quarrel_generation_get_done(wrong, &done, &error_), QUARREL_USAGE);
    EXPECT_EQ(quarrel_generation_get_event_fd(wrong, &descriptor, &error_), QUARREL_USAGE);
    EXPECT_EQ(quarrel_generation_cancel(wrong, &error_), QUARREL_USAGE);
    EXPECT_EQ(quarrel_generation_cancel_answer(wrong, 0, &error_), QUARREL_USAGE);
    quarrel_generation_free(wrong);
  }
  const quarrel_generate_options options = unending_c(2);
  generation = open(options);
  EXPECT_EQ(quarrel_generation_next(generation, 0, nullptr, &error_), QUARREL_USAGE);
  EXPECT_EQ(quarrel_generation_get_done(generation, nullptr, &error_), QUARREL_USAGE);
  EXPECT_EQ(quarrel_generation_get_event_fd(generation, nullptr, &error_), QUARREL_USAGE);
  quarrel_generation_free(generation);
}

}  // namespace
}  // namespace quarrel::test
