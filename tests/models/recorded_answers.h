// The answers of the real default model that were recorded in exact arithmetic (tests/data/smollm2), and a device that
// is to follow them: the recorded token is fed at every step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/runner.h"
#include "support/golden.h"

namespace quarrel::test {

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline nlohmann::json recorded_texts() { return nlohmann::json::parse(read_text(test_data("smollm2/greedy.json"))); }

// Logits of a recorded text and its answer: prompt rows for the text, generated rows for the answer, in steps of at
// most `chunk` of them (0: all at once).
class RecordedText {
 public:
  RecordedText(Executor& executor, const nlohmann::json& text, std::int32_t chunk)
      : tokens(text["tokens"].get<std::vector<TokenId>>()),
        answer(text["greedy"].get<std::vector<TokenId>>()),
        vocabulary_(static_cast<std::size_t>(executor.spec().vocabulary)),
        logits_((tokens.size() + answer.size()) * vocabulary_) {
    Sequences texts(executor);
    TestSequence sequence = texts.make();
    const auto prompt_wants = wants(0, tokens.size());
    texts.run_chunked({.sequence = &sequence, .tokens = tokens, .wants = prompt_wants});
    const auto answer_wants = wants(tokens.size(), answer.size());
    texts.run_chunked(
        {.sequence = &sequence, .tokens = answer, .row_class = RowClass::generated, .wants = answer_wants}, chunk);
    texts.truncate(sequence, 0);
  }
  double log_probability(std::size_t row, TokenId id) const {
    const double largest = logit(row, best(row));
    double total = 0;
    for (std::size_t i = 0; i < vocabulary_; ++i) total += std::exp(logit(row, static_cast<TokenId>(i)) - largest);
    return logit(row, id) - largest - std::log(total);
  }
  TokenId best(std::size_t row) const {
    const auto scores = std::span(logits_).subspan(row * vocabulary_, vocabulary_);
    return static_cast<TokenId>(std::ranges::max_element(scores) - scores.begin());
  }

  std::vector<TokenId> tokens, answer;

 private:
  double logit(std::size_t row, TokenId id) const {
    return static_cast<double>(logits_[row * vocabulary_ + static_cast<std::size_t>(id)]);
  }
  std::vector<Want> wants(std::size_t first, std::size_t count) {
    std::vector<Want> list;
    for (std::size_t i = 0; i < count; ++i) {
      list.push_back({.index = static_cast<std::int32_t>(i), .logits = logits_.data() + (first + i) * vocabulary_});
    }
    return list;
  }

  std::size_t vocabulary_;
  std::vector<float> logits_;
};

inline void expect_recorded_answers(const std::filesystem::path& model, const NamedDevice& named,
                                    std::int32_t chunk = 0) {
  SCOPED_TRACE(named.name);
  Executor executor(GgufFile::open(model), *named.device, {.context = 256, .batch_rows = 128});
  double difference = 0;
  int compared = 0;
  int near_ties = 0;
  const auto compare = [&](const RecordedText& text, std::size_t row, TokenId id, double expected) {
    const double error = std::abs(text.log_probability(row, id) - expected);
    EXPECT_LE(error, named.exact ? 1e-3 : 10.0) << "row " << row << ", token " << id;
    difference += error;
    ++compared;
  };
  for (const nlohmann::json& recorded : recorded_texts()) {
    const RecordedText text(executor, recorded, chunk);
    const auto expected = recorded["logprob_of_next"].get<std::vector<double>>();
    for (std::size_t i = 0; i < expected.size(); ++i) compare(text, i, text.tokens[i + 1], expected[i]);
    const std::size_t last = text.tokens.size() - 1;
    for (const nlohmann::json& top : recorded["top10_at_end"]) {
      compare(text, last, top[0].get<TokenId>(), top[1].get<double>());
    }
    const auto margins = recorded["greedy_margin"].get<std::vector<double>>();
    for (std::size_t i = 0; i < text.answer.size(); ++i) {
      const TokenId best = text.best(last + i);
      if (margins[i] > (named.exact ? 0.01 : 0.5)) {
        EXPECT_EQ(best, text.answer[i]) << "answer token " << i << " with a margin of " << margins[i];
      } else {
        near_ties += best != text.answer[i] ? 1 : 0;
      }
    }
  }
  std::printf("%-12s mean |Δ log p| %.2e over %d; %d near ties decided otherwise\n", named.name.c_str(),
              difference / compared, compared, near_ties);
  EXPECT_LE(difference / compared, named.exact ? 1e-3 : 0.05);
}

}  // namespace quarrel::test
