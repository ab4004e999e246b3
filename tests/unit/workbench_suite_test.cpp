// The file of a regression suite: what it says, and how mistakes in it are told.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "app/regress_suite.h"
#include "base/error.h"
#include "support/golden.h"

namespace quarrel {
namespace {

Suite parse(const std::string& text) { return parse_suite(text, "suites", "suite.toml"); }

std::string fault_of(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << text;
  return {};
}

constexpr const char* kWhole = R"(
[coherence]
max_looped = 0.25
max_noise = 3

[[prompts]]
name = "capital"
text = "What is the capital of France?"
max_tokens = 8
must_contain = ["Paris"]

[[prompts]]
name = "raw"
text = "Once upon"
raw = true
temperature = 1
seed = 7

[[models]]
name = "small"
prompts = ["raw"]

[[models.logits]]
tokens = [1, 2, 3]
golden = "small.f32"
max_nmse = 1e-9
backend = "reference"
kv = "f32"

[[models.perplexity]]
text = "text.txt"
windows = 2
max = 20

[[models]]
name = "other.gguf"

[generic]
[[generic.logits]]
random_tokens = 32
max_nmse = 1e-3
class = "generated"
)";

TEST(RegressSuite, ReadsEverything) {
  const Suite suite = parse(kWhole);
  EXPECT_EQ(suite.coherence.max_looped, 0.25);
  EXPECT_EQ(suite.coherence.max_noise, 3);
  EXPECT_EQ(suite.coherence.max_foreign, CoherenceLimits{}.max_foreign);
  ASSERT_EQ(suite.prompts.size(), 2u);
  EXPECT_EQ(suite.prompts[0].max_tokens, 8);
  EXPECT_EQ(suite.prompts[0].must_contain, (std::vector<std::string>{"Paris"}));
  EXPECT_TRUE(suite.prompts[1].raw);
  EXPECT_EQ(suite.prompts[1].temperature, 1.0);
  EXPECT_EQ(suite.prompts[1].seed, 7u);
  ASSERT_EQ(suite.models.size(), 2u);
  EXPECT_EQ(suite.models[0].prompts, (std::vector<std::size_t>{1}));
  ASSERT_EQ(suite.models[0].logits.size(), 1u);
  EXPECT_EQ(suite.models[0].logits[0].tokens.ids, (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(suite.models[0].logits[0].golden, "suites/small.f32");
  EXPECT_EQ(suite.models[0].logits[0].options.backend, "reference");
  ASSERT_EQ(suite.models[0].perplexity.size(), 1u);
  EXPECT_EQ(suite.models[0].perplexity[0].windows, 2);
  EXPECT_EQ(suite.models[0].perplexity[0].max, 20.0);
  EXPECT_EQ(suite.models[1].prompts, (std::vector<std::size_t>{0, 1}));  // all of them
  ASSERT_TRUE(suite.generic.has_value());
  EXPECT_EQ(suite.generic->logits.at(0).tokens.random, 32);
  EXPECT_EQ(suite.generic->logits.at(0).options.row_class, "generated");
}

TEST(RegressSuite, UnknownKeysAreToldWithTheNearestAndTheLine) {
  const std::string fault = fault_of("[[prompts]]\nname = \"a\"\ntext = \"b\"\nmax_token = 3\n");
  EXPECT_NE(fault.find("suite.toml, line 4"), std::string::npos) << fault;
  EXPECT_NE(fault.find("'max_tokens'"), std::string::npos) << fault;
  EXPECT_NE(fault_of("[coherency]\n").find("'coherence'"), std::string::npos);
}

TEST(RegressSuite, RefusesMistakes) {
  const std::string prompt = "[[prompts]]\nname = \"a\"\ntext = \"b\"\n";
  const std::string model = prompt + "[[models]]\nname = \"m\"\n";
  const std::pair<std::string, std::string> cases[] = {
      {"[[prompts", "line 1"},
      {"[[prompts]]\nname = \"a\"\n", "'text'"},
      {"[[prompts]]\ntext = \"a\"\n", "'name'"},
      {"[[prompts]]\nname = 3\n", "must be a text"},
      {prompt + prompt, "earlier"},
      {prompt + "max_tokens = 0\n", "whole number"},
      {prompt + "max_tokens = 1.5\n", "whole number"},
      {prompt + "temperature = nan\n", "number from"},
      {prompt + "raw = 1\n", "true or false"},
      {model + "optional = 1\n", "true or false"},
      {prompt + "[generic]\noptional = true\n", "'optional'"},
      {prompt + "must_contain = [1]\n", "list of texts"},
      {prompt + "raw = true\nsystem = \"x\"\n", "raw"},
      {"prompts = 3\n", "list"},
      {"coherence = 3\n", "table"},
      {"[[models]]\nname = \"m\"\n", "nothing to check"},
      {prompt + "[[models]]\n", "'name'"},
      {model + "prompts = [\"c\"]\n", "'c'"},
      {model + "[[models.logits]]\nmax_nmse = 1\n", "needs one of"},
      {model + "[[models.logits]]\ntokens = [1]\nrandom_tokens = 2\nmax_nmse = 1\n", "needs one of"},
      {model + "[[models.logits]]\ntokens = [1]\n", "max_nmse"},
      {model + "[[models.logits]]\ntokens = [-1]\nmax_nmse = 1\n", "token ids"},
      {model + "[[models.logits]]\ntokens = [1]\nmax_nmse = 1\nclass = \"x\"\n", "prompt or generated"},
      {model + "[[models.perplexity]]\ntext = \"t\"\n", "'max'"},
      {model + "[[models.perplexity]]\nmax = 9.0\n", "'text'"},
  };
  for (const auto& [text, expected] : cases) {
    const std::string fault = fault_of(text);
    EXPECT_NE(fault.find(expected), std::string::npos) << text << "\n" << fault;
  }
}

TEST(RegressSuite, NestingIsBounded) { fault_of("a = " + std::string(100'000, '[')); }

TEST(RegressSuite, LargerModelsAreOptional) {
  const Suite suite = load_suite(test::test_data("regress/models.toml"));
  std::set<std::string> names;
  for (const SuiteModel& model : suite.models) {
    EXPECT_TRUE(model.optional) << model.name;
    names.insert(model.name);
  }
  EXPECT_EQ(names, (std::set<std::string>{"mistral", "tinyllama", "granite4", "nemotron-3-nano", "nemotron-mini:4b",
                                          "gpt-oss", "mixtral"}));
  EXPECT_FALSE(load_suite(test::test_data("regress/default.toml")).models.at(0).optional);
}

TEST(RegressSuite, TheExampleIsValid) {
  const Suite suite = load_suite(test::test_data("regress/default.toml"));
  EXPECT_FALSE(suite.models.empty());
  EXPECT_TRUE(suite.generic.has_value());
}

}  // namespace
}  // namespace quarrel
