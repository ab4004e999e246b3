// What the tests of the embeddable library share: a toy that can chat, loaded through the public header.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string_view>

#include "quarrel/quarrel.h"
#include "support/gate.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {

// Sequences are few and the context short, so that a test can fill both.
inline api::LoadOptions small_load() { return {.threads = 2, .sequences = 2}; }

inline constexpr const char* kPrompt = "Hello world, what is";

// Answers go on whatever the toy says.
inline api::GenerateOptions unending(std::int32_t max_tokens) {
  return {.max_tokens = max_tokens, .seed = 1, .stop_tokens = std::vector<api::Token>{}};
}

class ApiTest : public testing::Test {
 protected:
  const TempDir folder_;
  const std::string file_ = write_toy_chat(folder_.path(), {.context = 1024}).string();
  const api::Model model_ = api::Model::load(file_, small_load());
};

// An answer whose mask holds the model up at the gate.
inline api::GenerateOptions held_at(const Gate& gate, api::GenerateOptions options) {
  options.mask = [gate](std::size_t, std::span<const api::Token> tokens, std::span<std::uint64_t> allowed) {
    if (tokens.empty()) gate.pass();
    std::ranges::fill(allowed, ~std::uint64_t{0});
  };
  return options;
}

inline void expect_api_error(api::ErrorKind kind, std::string_view words, const std::function<void()>& act) {
  try {
    act();
    ADD_FAILURE() << "no error with: " << words;
  } catch (const api::Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string_view(error.what()).find(words), std::string_view::npos) << error.what();
  }
}

}  // namespace quarrel::test
