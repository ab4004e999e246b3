// Answers as text: stop strings, special tokens, several answers, ends, usage.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"
#include "session/refusal.h"
#include "session/session_support.h"
#include "unit/gguf_support.h"

namespace quarrel::test {
namespace {

using Generate = ChatToy;
constexpr float kNever = -std::numeric_limits<float>::infinity();

TEST_F(Generate, TextIsWhatTheTokensSpell) {
  const GenerationResult result = generate(model_, ask(40));
  ASSERT_EQ(result.answers.size(), 1u);
  const quarrel::Answer& answer = result.answers[0];
  EXPECT_EQ(answer.tokens.size(), 40u);
  EXPECT_EQ(answer.logprobs.size(), 40u);
  EXPECT_EQ(answer.reason, FinishReason::length);
  EXPECT_EQ(answer.error, "");
  EXPECT_EQ(answer.seed, 7u);
  // Bytes that are no character come out as a replacement for each, so whole texts are compared where there are none.
  Ask words = ask(20);
  words.sampling.temperature = 0.0f;
  for (TokenId id = 0; id < 259; ++id) words.sampling.logit_bias.emplace_back(id, kNever);
  const quarrel::Answer spelled = generate(model_, words).answers[0];
  EXPECT_EQ(spelled.text, decode(spelled.tokens));
  EXPECT_FALSE(spelled.text.empty());
}

TEST_F(Generate, ATextIdsAndAConversationArePrompts) {
  Ask text = ask(8);
  const std::vector<TokenId> ids = encode_prompt(*model_, text);
  Ask tokens = ask(8);
  tokens.prompt = ids;
  EXPECT_EQ(generate(model_, tokens).answers[0].tokens, generate(model_, text).answers[0].tokens);

  Ask chat = ask(8);
  ChatInput input;
  input.messages.push_back({{"role", "user"}, {"content", "Hello <|im_end|> there"}});
  chat.prompt = input;
  const EncodedChat rendered = render_chat(*model_, input);
  EXPECT_EQ(encode_prompt(*model_, chat), rendered.tokens);
  EXPECT_NE(rendered.text.find("Hello"), std::string::npos);
  // What a user wrote forges no control token: the template has put two there, and no more.
  const auto end = model_->tokenizer()->find("<|im_end|>");
  ASSERT_TRUE(end);
  EXPECT_EQ(std::ranges::count(rendered.tokens, *end), 1);
  EXPECT_EQ(generate(model_, chat).usage.prompt_tokens, rendered.tokens.size());
}

TEST_F(Generate, ArgumentsReachTheTemplateAndHideNothing) {
  KeptLog log;
  LoadOptions options;
  options.chat_template = {
      .kind = TemplateSelection::Kind::text,
      .value = "{{ messages[0].content }}|{{ mood }}|{{ tools[0].name }}|{{ add_generation_prompt }}",
      .origin = "the test"};
  const auto model = load_toy(model_->path(), options);
  EXPECT_EQ(model->template_origin(), "the test");
  ChatInput input;
  input.messages.push_back({{"role", "user"}, {"content", "hi"}});
  input.tools = nlohmann::ordered_json::array({{{"name", "clock"}}});
  input.arguments = {{"mood", "gay"}, {"messages", "stolen"}};
  input.add_generation_prompt = false;
  EXPECT_EQ(render_chat(*model, input).text, "hi|gay|clock|False");
  input.arguments = nlohmann::ordered_json::array();
  expect_error(ErrorKind::bad_input, {"arguments"}, [&] { render_chat(*model, input); });
}

// Wherever the stop string lies in the tokens' text, the answer ends before it.
TEST_F(Generate, StopStringsEndAnAnswerAcrossTokens) {
  Ask words = ask(60);
  for (TokenId id = 0; id < 259; ++id) words.sampling.logit_bias.emplace_back(id, kNever);
  const quarrel::Answer whole = generate(model_, words).answers[0];
  std::size_t across = 0;
  for (const std::size_t length : {1u, 3u, 8u}) {
    for (std::size_t at = 1; at + length < whole.text.size(); at += 7) {
      Ask stopping = words;
      stopping.stop = {whole.text.substr(at, length)};
      const GenerationResult result = generate(model_, stopping);
      const quarrel::Answer& answer = result.answers[0];
      const std::size_t first = whole.text.find(stopping.stop[0]);
      ASSERT_EQ(answer.text, whole.text.substr(0, first));
      ASSERT_EQ(answer.reason, FinishReason::stop);
      // The last token is the one that completed the stop string; none beyond it is counted.
      ASSERT_EQ(result.usage.generated_tokens, answer.tokens.size());
      const std::string read = decode(answer.tokens);
      ASSERT_GE(read.size(), first + length);
      std::vector<TokenId> shorter = answer.tokens;
      shorter.pop_back();
      ASSERT_LT(decode(shorter).size(), first + length);
      if (decode(shorter).size() > first) ++across;
    }
  }
  EXPECT_GT(across, 3u);
}

TEST_F(Generate, HeldBackTextComesAtTheEnd) {
  Ask words = ask(12);
  for (TokenId id = 0; id < 259; ++id) words.sampling.logit_bias.emplace_back(id, kNever);
  const quarrel::Answer whole = generate(model_, words).answers[0];
  Ask stopping = words;
  stopping.stop = {whole.text.substr(whole.text.size() - 2) + "and something that never comes"};
  EXPECT_EQ(generate(model_, stopping).answers[0].text, whole.text);
}

TEST_F(Generate, SpecialTokensAreHiddenOrShown) {
  const TokenId special = *model_->tokenizer()->find("<|im_start|>");
  Ask forced = ask(3);
  forced.sampling.temperature = 0.0f;
  forced.sampling.logit_bias = {{special, 1000.0f}};
  EXPECT_EQ(generate(model_, forced).answers[0].text, "");
  forced.show_special = true;
  EXPECT_EQ(generate(model_, forced).answers[0].text, "<|im_start|><|im_start|><|im_start|>");
  // The one that ends an answer is a special token too.
  forced.stop_tokens = {{special}};
  const quarrel::Answer ended = generate(model_, forced).answers[0];
  EXPECT_EQ(ended.reason, FinishReason::stop);
  EXPECT_EQ(ended.tokens, std::vector<TokenId>{special});
  EXPECT_EQ(ended.text, "<|im_start|>");
  forced.show_special = false;
  EXPECT_EQ(generate(model_, forced).answers[0].text, "");
}

TEST_F(Generate, TheVocabularysEndTokensEndAnAnswerUnlessOthersAreGiven) {
  const TokenId end = *model_->tokenizer()->special().eos;
  Ask forced = ask(5);
  forced.sampling.logit_bias = {{end, 1000.0f}};
  EXPECT_EQ(generate(model_, forced).answers[0].reason, FinishReason::length);
  forced.stop_tokens.reset();
  const GenerationResult result = generate(model_, forced);
  EXPECT_EQ(result.answers[0].reason, FinishReason::stop);
  EXPECT_EQ(result.usage.generated_tokens, 1u);
}

TEST_F(Generate, EndsHaveTheirReasons) {
  Ask full = ask(-1);
  const GenerationResult result = generate(model_, full);
  EXPECT_EQ(result.answers[0].reason, FinishReason::context);
  EXPECT_LE(result.answers[0].tokens.size() + result.usage.prompt_tokens, 513u);
  Ask late = ask(-1);
  late.timeout = std::chrono::microseconds(1);
  EXPECT_EQ(generate(model_, late).answers[0].reason, FinishReason::timeout);
  Ask none = ask(0);
  EXPECT_EQ(generate(model_, none).answers[0].reason, FinishReason::length);
  EXPECT_TRUE(generate(model_, none).answers[0].tokens.empty());
}

TEST_F(Generate, AnswersAreThoseOfTheirSeedsAlone) {
  Ask several = ask(12);
  several.answers = 4;
  several.top = 3;
  const GenerationResult result = generate(model_, several);
  ASSERT_EQ(result.answers.size(), 4u);
  EXPECT_EQ(result.usage.generated_tokens, 48u);
  std::set<std::vector<TokenId>> different;
  for (std::int32_t i = 0; i < 4; ++i) {
    const quarrel::Answer& answer = result.answers[static_cast<std::size_t>(i)];
    Ask alone = ask(12);
    alone.seed = answer.seed;
    EXPECT_EQ(generate(model_, alone).answers[0].tokens, answer.tokens);
    different.insert(answer.tokens);
    ASSERT_EQ(answer.top.size(), 12u);
    for (const auto& top : answer.top) {
      ASSERT_EQ(top.size(), 3u);
      EXPECT_GE(top[0].logprob, top[1].logprob);
    }
  }
  EXPECT_EQ(different.size(), 4u);
}

TEST_F(Generate, WithoutASeedAnswersDiffer) {
  Ask drawn = ask(30);
  drawn.seed.reset();
  const GenerationResult a = generate(model_, drawn);
  const GenerationResult b = generate(model_, drawn);
  EXPECT_NE(a.answers[0].seed, b.answers[0].seed);
  EXPECT_NE(a.answers[0].tokens, b.answers[0].tokens);
}

// Lets one text come and no other.
class OneText : public TokenMask {
 public:
  explicit OneText(std::vector<TokenId> text) : text_(std::move(text)) {}
  void allow(std::span<const TokenId> answer, std::span<std::uint64_t> allowed) override {
    const auto id = static_cast<std::size_t>(text_.at(answer.size()));
    allowed[id / 64] |= std::uint64_t{1} << (id % 64);
  }

 private:
  std::vector<TokenId> text_;
};

TEST_F(Generate, AModelThatSpeaksInChannelsAnswersInTheFinalOne) {
  const auto model = load_toy(write_toy_chat(folder_.path(), {.context = 512, .channels = true}));
  const std::string spoken =
      "<|channel|>analysis<|message|>what one?<|end|><|start|>assistant<|channel|>final<|message|>Hello there<|end|>";
  const std::vector<TokenId> ids = model->tokenizer()->encode(spoken, {.parse_special = true});
  Ask wanted = ask(static_cast<std::int32_t>(ids.size()));
  ChatInput input;
  input.messages.push_back({{"role", "user"}, {"content", "Hello"}});
  wanted.prompt = input;
  wanted.mask = [ids](std::int32_t) { return std::make_unique<OneText>(ids); };
  const quarrel::Answer answer = generate(model, wanted).answers[0];
  EXPECT_EQ(answer.text, "Hello there");
  EXPECT_EQ(answer.tokens, ids) << "all of it was generated";
  wanted.show_special = true;
  EXPECT_EQ(generate(model, wanted).answers[0].text, spoken);
  wanted.show_special = false;
  wanted.stop = {"what", "there"};
  EXPECT_EQ(generate(model, wanted).answers[0].text, "Hello ") << "a stop string counts in the answer alone";
}

// A mask that leaves one answer no token, or throws, ends that answer alone.
class OneToken final : public TokenMask {
 public:
  OneToken(std::int32_t answer, bool throws) : answer_(answer), throws_(throws) {}
  void allow(std::span<const TokenId> tokens, std::span<std::uint64_t> allowed) override {
    if (answer_ == 1 && tokens.size() == 3) {
      if (throws_) throw std::runtime_error("the grammar is broken");
      return;
    }
    std::ranges::fill(allowed, ~std::uint64_t{0});
  }

 private:
  std::int32_t answer_;
  bool throws_;
};

TEST_F(Generate, OneAnswerOfSeveralMayFail) {
  for (const bool throws : {false, true}) {
    Ask several = ask(8);
    several.answers = 3;
    several.mask = [throws](std::int32_t answer) { return std::make_unique<OneToken>(answer, throws); };
    const GenerationResult result = generate(model_, several);
    Ask plain = ask(8);
    plain.answers = 3;
    const GenerationResult expected = generate(model_, plain);
    for (const std::size_t i : {0u, 2u}) {
      EXPECT_EQ(result.answers[i].tokens, expected.answers[i].tokens);
      EXPECT_EQ(result.answers[i].reason, FinishReason::length);
      EXPECT_EQ(result.answers[i].error, "");
      result.answers[i].require_success();
    }
    EXPECT_EQ(result.answers[1].reason, throws ? FinishReason::failed : FinishReason::no_token);
    EXPECT_EQ(result.answers[1].tokens.size(), 3u);
    expect_error(throws ? ErrorKind::bad_file : ErrorKind::bad_input, {throws ? "grammar" : "no token"},
                 [&] { result.answers[1].require_success(); });
  }
}

TEST_F(Generate, TheBestOfSeveralComeBestFirst) {
  Ask all = ask(10);
  all.answers = 5;
  const GenerationResult five = generate(model_, all);
  const auto mean = [](const quarrel::Answer& answer) {
    double sum = 0.0;
    for (const float logprob : answer.logprobs) sum += static_cast<double>(logprob);
    return sum / static_cast<double>(answer.logprobs.size());
  };
  std::vector<const quarrel::Answer*> order;
  for (const quarrel::Answer& answer : five.answers) order.push_back(&answer);
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](const quarrel::Answer* answer) { return mean(*answer); });

  Ask best = ask(10);
  best.answers = 2;
  best.best_of = 5;
  std::size_t pieces_before_end = 0;
  bool ended = false;
  const GenerationResult two = generate(model_, best, {.on_event = [&](const GenerationEvent& event) {
                                          ended = ended || event.kind == GenerationEvent::Kind::finished;
                                          if (event.answer > 1) ADD_FAILURE() << "there is no answer " << event.answer;
                                          pieces_before_end += event.kind == GenerationEvent::Kind::piece && !ended;
                                          return true;
                                        }});
  ASSERT_EQ(two.answers.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(two.answers[i].tokens, order[i]->tokens);
    EXPECT_EQ(two.answers[i].text, order[i]->text);
    EXPECT_EQ(two.answers[i].reason, FinishReason::length);
  }
  EXPECT_EQ(two.usage.generated_tokens, 50u);
}

TEST_F(Generate, UsageTellsOfTheCache) {
  Ask first = ask(4);
  first.prompt = std::string(300, 'x');
  const Usage cold = generate(model_, first).usage;
  const Usage warm = generate(model_, first).usage;
  EXPECT_EQ(cold.prompt_tokens, encode_prompt(*model_, first).size());
  EXPECT_EQ(cold.cached_tokens, 0u);
  EXPECT_GT(warm.cached_tokens, 0u);
  EXPECT_LT(warm.cached_tokens, warm.prompt_tokens);
  EXPECT_GT(cold.prompt_seconds, 0.0);
  EXPECT_GT(cold.generate_seconds, 0.0);
  first.use_cache = false;
  EXPECT_EQ(generate(model_, first).usage.cached_tokens, 0u);
  first.use_cache = true;
  first.salt = 9;
  EXPECT_EQ(generate(model_, first).usage.cached_tokens, 0u);
}

TEST_F(Generate, ThePromptIsScored) {
  Ask scored = ask(2);
  scored.prompt_scores = true;
  scored.top = 2;
  const GenerationResult result = generate(model_, scored);
  const std::vector<TokenId> prompt = encode_prompt(*model_, scored);
  ASSERT_EQ(result.prompt_scores.size(), prompt.size() - 1);
  for (std::size_t i = 0; i < result.prompt_scores.size(); ++i) {
    EXPECT_EQ(result.prompt_scores[i].token, prompt[i + 1]);
    EXPECT_LT(result.prompt_scores[i].logprob, 0.0f);
    EXPECT_EQ(result.prompt_scores[i].top.size(), 2u);
  }
}

TEST_F(Generate, MistakesAreRefusedWithTheirNumbers) {
  const auto refuse = [&](ErrorKind kind, std::vector<std::string> parts, const Ask& wrong) {
    expect_error(kind, parts, [&] { generate(model_, wrong); });
  };
  Ask wrong = ask(4);
  wrong.prompt = std::vector<TokenId>{};
  refuse(ErrorKind::bad_input, {"empty"}, wrong);
  wrong.prompt = std::vector<TokenId>(600, 1);
  refuse(ErrorKind::bad_input, {"601", "512"}, wrong);
  wrong.prompt = std::vector<TokenId>{1, 1'000'000};
  refuse(ErrorKind::bad_input, {"1000000"}, wrong);
  wrong = ask(4);
  wrong.sampling.logit_bias = {{1'000'000, 1.0f}};
  refuse(ErrorKind::bad_input, {"bias", "1000000"}, wrong);
  wrong = ask(-2);
  refuse(ErrorKind::bad_input, {"max_tokens"}, wrong);
  wrong = ask(4);
  wrong.answers = 0;
  refuse(ErrorKind::bad_input, {"answers"}, wrong);
  wrong.answers = 3;
  wrong.best_of = 2;
  refuse(ErrorKind::bad_input, {"best_of"}, wrong);
  wrong = ask(4);
  wrong.stop.assign(257, "x");
  refuse(ErrorKind::bad_input, {"257", "256"}, wrong);
  wrong = ask(4);
  wrong.timeout = std::chrono::microseconds(-1);
  refuse(ErrorKind::bad_input, {"timeout"}, wrong);
  wrong = ask(4);
  wrong.sampling.temperature = -1.0f;
  refuse(ErrorKind::bad_input, {"temperature"}, wrong);
}

TEST_F(Generate, AFullQueueIsBusy) {
  LoadOptions options;
  options.engine.queue_limit = 1;
  const auto model = load_toy(model_->path(), options);
  model->engine().pause();
  const GenerationStream waiting(model, ask(4));
  try {
    generate(model, ask(4));
    FAIL() << "it was accepted";
  } catch (const BusyError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::busy);
  }
}

TEST_F(Generate, WithoutAVocabularyIdsAloneAreTaken) {
  const auto model = load_toy(write_toy("llama", folder_.path(), {.context = 128}));
  EXPECT_EQ(model->tokenizer(), nullptr);
  Ask ids = ask(5);
  ids.prompt = std::vector<TokenId>{1, 2, 3};
  const quarrel::Answer answer = generate(model, ids).answers[0];
  EXPECT_EQ(answer.tokens.size(), 5u);
  EXPECT_EQ(answer.text, "");
  expect_error(ErrorKind::unsupported, {"vocabulary"}, [&] { generate(model, ask(5)); });
  ids.stop = {"x"};
  expect_error(ErrorKind::unsupported, {"vocabulary"}, [&] { generate(model, ids); });
}

}  // namespace
}  // namespace quarrel::test
