// The real default model against exact arithmetic: token by token on recorded texts, and as perplexity. Skipped, with
// the reason printed, where the model has not been pulled.
#include "support/default_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include "app/perplexity.h"
#include "models/runner.h"
#include "support/golden.h"
#include "text/tokenizer.h"

namespace quarrel::test {
namespace {

using nlohmann::json;

class DefaultModel : public DefaultModelTest {
 protected:
  std::unique_ptr<Tokenizer> tokenizer() const {
    MemoryLog log;
    return Tokenizer::load(GgufFile::open(path_), log);
  }
};

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

json recorded_texts() { return json::parse(read_text(test_data("smollm2/greedy.json"))); }

double log_probability(std::span<const float> logits, TokenId id) {
  const double largest = *std::ranges::max_element(logits);
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit) - largest);
  return static_cast<double>(logits[static_cast<std::size_t>(id)]) - largest - std::log(total);
}

TEST_F(DefaultModel, TokenizesTheRecordedTexts) {
  const auto vocabulary = tokenizer();
  for (const json& text : recorded_texts()) {
    EXPECT_EQ(vocabulary->encode(text["text"].get<std::string>(), {.parse_special = true}),
              text["tokens"].get<std::vector<TokenId>>());
    std::vector<TokenId> answer = text["greedy"].get<std::vector<TokenId>>();
    EXPECT_EQ(vocabulary->decode(answer, true), text["greedy_text"].get<std::string>());
  }
}

// Feeds the recorded token at every step: prompt rows for the text, generated rows for the answer.
TEST_F(DefaultModel, FollowsTheRecordedAnswers) {
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    Executor executor(GgufFile::open(path_), *named.device, {.context = 256, .batch_rows = 128});
    const auto vocabulary = static_cast<std::size_t>(executor.spec().vocabulary);
    double difference = 0;
    int compared = 0;
    int near_ties = 0;
    for (const json& text : recorded_texts()) {
      const auto tokens = text["tokens"].get<std::vector<TokenId>>();
      const auto answer = text["greedy"].get<std::vector<TokenId>>();
      const auto margins = text["greedy_margin"].get<std::vector<double>>();
      const auto expected = text["logprob_of_next"].get<std::vector<double>>();
      std::vector<float> logits((tokens.size() + answer.size()) * vocabulary);
      const auto wants = [&](std::size_t first, std::size_t count) {
        std::vector<Want> list;
        for (std::size_t i = 0; i < count; ++i) {
          list.push_back({.index = static_cast<std::int32_t>(i), .logits = logits.data() + (first + i) * vocabulary});
        }
        return list;
      };
      Sequences texts(executor);
      TestSequence sequence = texts.make();
      const auto prompt_wants = wants(0, tokens.size());
      texts.run_chunked({.sequence = &sequence, .tokens = tokens, .wants = prompt_wants});
      const auto answer_wants = wants(tokens.size(), answer.size());
      texts.run_chunked(
          {.sequence = &sequence, .tokens = answer, .row_class = RowClass::generated, .wants = answer_wants});
      texts.truncate(sequence, 0);
      const auto row = [&](std::size_t i) { return std::span(logits).subspan(i * vocabulary, vocabulary); };

      for (std::size_t i = 0; i < expected.size(); ++i) {
        const double error = std::abs(log_probability(row(i), tokens[i + 1]) - expected[i]);
        EXPECT_LE(error, named.exact ? 1e-3 : 10.0) << "token " << i;
        difference += error;
        ++compared;
      }
      for (const json& top : text["top10_at_end"]) {
        const double error =
            std::abs(log_probability(row(tokens.size() - 1), top[0].get<TokenId>()) - top[1].get<double>());
        EXPECT_LE(error, named.exact ? 1e-3 : 10.0);
        difference += error;
        ++compared;
      }
      for (std::size_t i = 0; i < answer.size(); ++i) {
        const auto scores = row(tokens.size() - 1 + i);
        const auto best = static_cast<TokenId>(std::ranges::max_element(scores) - scores.begin());
        if (margins[i] > (named.exact ? 0.01 : 0.5)) {
          EXPECT_EQ(best, answer[i]) << "answer token " << i << " with a margin of " << margins[i];
        } else {
          near_ties += best != answer[i];
        }
      }
    }
    std::printf("%-12s mean |Δ log p| %.2e over %d; %d near ties decided otherwise\n", named.name.c_str(),
                difference / compared, compared, near_ties);
    EXPECT_LE(difference / compared, named.exact ? 1e-3 : 0.05);
  }
}

class DefaultModelPerplexity : public DefaultModel {
 protected:
  // Compares the running value after `windows` windows with the recorded one.
  void expect_perplexity(Device& device, const std::string& name, const RunOptions& options, std::int32_t windows,
                         double tolerance) {
    const json recorded = json::parse(read_text(test_data("smollm2/perplexity.json")));
    const double exact = recorded["running"][std::to_string(windows)].get<double>();
    const auto vocabulary = tokenizer();
    const auto tokens = perplexity_tokens(*vocabulary, read_text(test_data("wikitext/wikitext-2-test-head.txt")));
    MemoryLog log;
    LoadOptions load{.executor = {.context = 512, .batch_rows = 512, .activations = options.activations}};
    const auto model = LoadedModel::load(path_, std::shared_ptr<Device>(&device, [](Device*) {}), load, log);
    const Perplexity measured = measure_perplexity(tokens, {.windows = windows, .bos = window_bos(*vocabulary)},
                                                   model_scorer(model, options.row_class));
    ASSERT_EQ(std::ssize(measured.windows), windows);
    const double deviation = measured.value() / exact - 1;
    std::printf("%-12s %2d windows: %.4f, %+.4f %% of %.4f\n", name.c_str(), windows, measured.value(), 100 * deviation,
                exact);
    EXPECT_LE(std::abs(deviation), tolerance);
  }
};

TEST_F(DefaultModelPerplexity, BestLevelOver40Windows) {
  const auto devices = all_devices();
  expect_perplexity(*devices.back().device, devices.back().name, {}, 40, 0.0005);
}

TEST_F(DefaultModelPerplexity, BestLevelWithInt8ActivationsOver10Windows) {
  const auto devices = all_devices();
  expect_perplexity(*devices.back().device, devices.back().name, {.activations = ActivationPrecision::int8}, 10, 0.004);
}

TEST_F(DefaultModelPerplexity, BestLevelWithGeneratedRowsOver10Windows) {
  const auto devices = all_devices();
  expect_perplexity(*devices.back().device, devices.back().name, {.row_class = RowClass::generated}, 10, 0.0002);
}

// The scalar level is many times slower than the best one.
TEST_F(DefaultModelPerplexity, LowerLevelsOverOneOrTwoWindows) {
  const auto devices = all_devices();
  for (std::size_t i = 1; i + 1 < devices.size(); ++i) {
    expect_perplexity(*devices[i].device, devices[i].name, {}, devices[i].name == "cpu-scalar" ? 1 : 2, 0.0005);
  }
}

TEST_F(DefaultModelPerplexity, ReferenceOverOneWindow) {
  const auto devices = all_devices();
  expect_perplexity(*devices.front().device, devices.front().name, {}, 1, 0.0001);
}

}  // namespace
}  // namespace quarrel::test
