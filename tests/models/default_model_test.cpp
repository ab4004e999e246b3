// The real default model against exact arithmetic: token by token on recorded texts, and as perplexity. Skipped, with
// the reason printed, where the model has not been pulled.
#include "support/default_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include "app/perplexity.h"
#include "models/recorded_answers.h"
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

TEST_F(DefaultModel, TokenizesTheRecordedTexts) {
  const auto vocabulary = tokenizer();
  for (const json& text : recorded_texts()) {
    EXPECT_EQ(vocabulary->encode(text["text"].get<std::string>(), {.parse_special = true}),
              text["tokens"].get<std::vector<TokenId>>());
    std::vector<TokenId> answer = text["greedy"].get<std::vector<TokenId>>();
    EXPECT_EQ(vocabulary->decode(answer, true), text["greedy_text"].get<std::string>());
  }
}

TEST_F(DefaultModel, FollowsTheRecordedAnswers) {
  for (const NamedDevice& named : all_devices()) expect_recorded_answers(path_, named);
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
