// The parameters of an answer, by name and from a model's own JSON, and counts on the command line.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "app/chat_parameters.h"
#include "app/model_options.h"
#include "base/error.h"

namespace quarrel {
namespace {

std::string refusal(ErrorKind kind, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

std::string value_of(const ChatParameters& parameters, const std::string& name) {
  for (const ParameterInfo& info : list_parameters(parameters)) {
    if (info.name == name) return info.value;
  }
  return "absent";
}

TEST(ChatParameters, EveryOneIsSetByNameAndShown) {
  ChatParameters parameters;
  const std::vector<std::pair<std::string, std::string>> values{{"temperature", "0.25"},   {"top_k", "3"},
                                                                {"top_p", "0.5"},          {"min_p", "0.125"},
                                                                {"typical_p", "0.75"},     {"repeat_penalty", "1.5"},
                                                                {"presence_penalty", "1"}, {"frequency_penalty", "-1"},
                                                                {"repeat_last_n", "-1"},   {"mirostat", "2"},
                                                                {"mirostat_tau", "4"},     {"mirostat_eta", "0.5"},
                                                                {"logit_bias", "7=-5"},    {"seed", "42"},
                                                                {"num_predict", "9"},      {"system", "Be brief."},
                                                                {"overflow", "stop"},      {"verbose", "on"}};
  for (const auto& [name, value] : values) {
    EXPECT_NE(value_of(parameters, name), value) << name;
    set_parameter(parameters, name, value);
    EXPECT_EQ(value_of(parameters, name), value) << name;
  }
  EXPECT_EQ(list_parameters(parameters).size(), values.size() + 1);  // and `stop`, below
}

TEST(ChatParameters, StopStringsAreBounded) {
  ChatParameters parameters;
  for (int i = 0; i < 64; ++i) set_parameter(parameters, "stop", fmt::format("END {}", i));
  EXPECT_EQ(refusal(ErrorKind::bad_input, [&] { set_parameter(parameters, "stop", "END"); }),
            "there can be at most 64 stop strings");
  EXPECT_EQ(parameters.stop.size(), 64u);
}

// A penalty that nobody asked for makes small models say that two and two is five.
TEST(ChatParameters, NoPenaltyByDefault) {
  EXPECT_FALSE(has_penalties(ChatParameters{}.sampling));
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{
           {"temperature", "0.7"}, {"top_p", "0.95"}, {"min_p", "0.05"}, {"repeat_penalty", "1"}}) {
    EXPECT_EQ(value_of({}, name), value);
  }
}

TEST(ChatParameters, StopStringsAddUpAndAreCleared) {
  ChatParameters parameters;
  set_parameter(parameters, "stop", "END");
  set_parameter(parameters, "stop", "a\\nb\\\\n");
  EXPECT_EQ(parameters.stop, (std::vector<std::string>{"END", "a\nb\\n"}));
  set_parameter(parameters, "stop", "");
  EXPECT_TRUE(parameters.stop.empty());
}

TEST(ChatParameters, ARefusedValueChangesNothing) {
  ChatParameters parameters;
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{{"temperature", "-1"},
                                                                                    {"temperature", "nan"},
                                                                                    {"temperature", "warm"},
                                                                                    {"temperature", ""},
                                                                                    {"top_p", "7"},
                                                                                    {"top_k", "2.5"},
                                                                                    {"seed", "-3"},
                                                                                    {"mirostat", "1"},
                                                                                    {"num_predict", "-3"},
                                                                                    {"logit_bias", "x=1"},
                                                                                    {"logit_bias", "-1=1"},
                                                                                    {"overflow", "shift"},
                                                                                    {"verbose", "maybe"}}) {
    const std::string before = value_of(parameters, name);
    refusal(ErrorKind::bad_input, [&] { set_parameter(parameters, name, value); });
    EXPECT_EQ(value_of(parameters, name), before) << name;
  }
}

// On the command line a mistake has the option's name, and an empty text clears nothing.
TEST(ChatParameters, FlagsAreRefusedByTheirOwnNames) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases{
      {"repeat_last_n", "-5", "--repeat-last-n must be -1"},
      {"temperature", "-1", "--temperature must be a number"},
      {"top_k", "many", "--top-k: 'many' is not a whole number"},
      {"num_predict", "-2", "--max-tokens: '-2' is not a number of tokens"},
      {"num_predict", "0", "--max-tokens: '0' is not a number of tokens"},
      {"stop", "", "--stop: the value is empty"},
      {"logit_bias", "", "--logit-bias: the value is empty"},
      {"mirostat", "", "--mirostat: the value is empty"},
      {"seed", "", "--seed: the value is empty"},
      {"temperature", "", "--temperature: the value is empty"}};
  for (const auto& [name, value, words] : cases) {
    const std::string sentence = refusal(ErrorKind::usage, [&] { check_flags({{name, value}}); });
    EXPECT_EQ(sentence.find(words), 0u) << sentence;
  }
  ChatParameters parameters;
  const std::string sentence = refusal(ErrorKind::bad_input, [&] { set_parameter(parameters, "repeat_last_n", "-5"); });
  EXPECT_EQ(sentence.find("repeat_last_n must be -1"), 0u) << sentence;
}

// An empty system prompt is one: it takes the place of the store's.
TEST(ChatParameters, AnEmptySystemPromptIsAValue) { EXPECT_NO_THROW(check_flags({{"system", ""}})); }

TEST(ChatParameters, WhatIsClearedIsOff) {
  ChatParameters parameters;
  apply_given(parameters, {{"mirostat", "2"}, {"mirostat", ""}});
  EXPECT_FALSE(parameters.sampling.mirostat);
}

// What was cleared in a chat stays so with another model.
TEST(ChatParameters, WhatWasClearedCanBeAppliedAgain) {
  ChatParameters parameters;
  apply_given(parameters, {{"stop", "END"}, {"stop", ""}, {"logit_bias", "5=1"}, {"logit_bias", ""}, {"stop", "X"}});
  EXPECT_EQ(parameters.stop, std::vector<std::string>{"X"});
  EXPECT_TRUE(parameters.sampling.logit_bias.empty());
}

TEST(ChatParameters, AnUnknownNameGetsTheNearest) {
  ChatParameters parameters;
  const std::string message = refusal(ErrorKind::bad_input, [&] { set_parameter(parameters, "temprature", "1"); });
  EXPECT_NE(message.find("temperature"), std::string::npos);
}

TEST(ChatParameters, WhatIsRecommendedIsTakenOver) {
  ChatParameters parameters;
  RecommendedSampling recommended;
  recommended.temperature = 0.25f;
  recommended.max_tokens = 9;
  recommended.seed = 4;
  recommended.stop = {"<|end|>", "\\n"};
  apply_recommended(parameters, recommended);
  EXPECT_EQ(parameters.sampling.temperature, 0.25f);
  EXPECT_EQ(parameters.sampling.top_p, ChatParameters{}.sampling.top_p);
  EXPECT_EQ(parameters.max_tokens, 9);
  EXPECT_EQ(parameters.seed, 4u);
  EXPECT_EQ(parameters.stop, recommended.stop);
  apply_recommended(parameters, {});
  EXPECT_EQ(parameters.max_tokens, 9);
}

TEST(ChatParameters, MistakesNameTheLongOption) {
  ChatParameters parameters;
  const std::string message = refusal(ErrorKind::usage, [&] { apply_given(parameters, {{"num_predict", "many"}}); });
  EXPECT_TRUE(message.starts_with("--max-tokens: ")) << message;
  const std::string hot = refusal(ErrorKind::usage, [&] { apply_given(parameters, {{"temperature", "hot"}}); });
  EXPECT_TRUE(hot.starts_with("--temperature: ")) << hot;
  const std::string chat = refusal(ErrorKind::usage, [&] { apply_given(parameters, {{"overflow", "shift"}}); });
  EXPECT_TRUE(chat.starts_with("overflow: ")) << chat;
}

TEST(ParseDevice, TakesANameAndANumber) {
  EXPECT_EQ(parse_device("cpu").backend, "cpu");
  EXPECT_EQ(parse_device("cuda").ordinal, 0);
  EXPECT_EQ(parse_device("cuda:3").backend, "cuda");
  EXPECT_EQ(parse_device("cuda:3").ordinal, 3);
  for (const char* text : {"cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cpu:0", ":1"}) {
    EXPECT_THROW(parse_device(text), Error) << text;
  }
}

TEST(ParseCount, TakesUnits) {
  EXPECT_EQ(parse_count("4096", "--ctx"), 4096);
  EXPECT_EQ(parse_count("32k", "--ctx"), 32768);
  EXPECT_EQ(parse_count("1M", "--ctx"), 1048576);
}

TEST(ParseCount, RefusesWhatIsNoCount) {
  for (const char* text :
       {"", "k", "0", "-1", "4k2", "4.5k", "3000000000", "2048M", "99999999999999999999", " 4", "4 "}) {
    const std::string message = refusal(ErrorKind::usage, [&] { parse_count(text, "--ctx"); });
    EXPECT_NE(message.find("--ctx"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace quarrel
