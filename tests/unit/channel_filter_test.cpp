// Channels of an answer: which tokens are the answer itself.
#include "text/channel_filter.h"

#include <gtest/gtest.h>

#include "unit/tokenizer_support.h"

namespace quarrel {
namespace {

// A token a byte, and the marks of gpt-oss as control tokens.
std::unique_ptr<Tokenizer> channel_tokenizer(bool with_marks = true) {
  return load_made([with_marks](GgufWriter& writer) {
    std::vector<std::string> tokens;
    std::vector<std::int32_t> kinds;
    const std::string hex = "0123456789ABCDEF";
    for (std::size_t b = 0; b < 256; ++b) {
      tokens.push_back(std::string("<0x") + hex[b >> 4] + hex[b & 15] + ">");
      kinds.push_back(6);
    }
    for (const char* mark :
         {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"}) {
      tokens.push_back(mark);
      kinds.push_back(with_marks ? 3 : 1);
    }
    const std::vector<float> scores(tokens.size(), 0.0F);
    writer.put_string("tokenizer.ggml.model", "llama");
    writer.put_strings("tokenizer.ggml.tokens", tokens);
    writer.put_i32s("tokenizer.ggml.token_type", kinds);
    writer.put_f32s("tokenizer.ggml.scores", scores);
  });
}

class Channels : public testing::Test {
 protected:
  // Marks as they are spelled, all else byte by byte.
  std::vector<TokenId> ids(std::string_view text) const {
    std::vector<TokenId> result;
    while (!text.empty()) {
      const std::size_t close = text.starts_with("<|") ? text.find("|>") : std::string_view::npos;
      if (close == std::string_view::npos) {
        result.push_back(static_cast<std::uint8_t>(text.front()));
        text.remove_prefix(1);
      } else {
        result.push_back(*tokenizer_->find(text.substr(0, close + 2)));
        text.remove_prefix(close + 2);
      }
    }
    return result;
  }

  std::string answer(std::string_view prompt, std::string_view generated) const {
    std::optional<ChannelFilter> filter = ChannelFilter::after(*tokenizer_, ids(prompt));
    if (!filter) return "no filter";
    std::string text;
    for (const TokenId id : ids(generated)) {
      if (filter->take(id)) text += tokenizer_->piece(id, false, true);
    }
    return text;
  }

  std::unique_ptr<Tokenizer> tokenizer_ = channel_tokenizer();
  const std::string_view asked_ = "<|start|>user<|message|>Hi<|end|><|start|>assistant";
};

TEST_F(Channels, TheFinalOneAloneIsTheAnswer) {
  EXPECT_EQ(answer(asked_,
                   "<|channel|>analysis<|message|>Let me think, final<|end|>"
                   "<|start|>assistant<|channel|>final<|message|>Hello!<|return|>"),
            "Hello!");
  EXPECT_EQ(answer(asked_, "<|channel|>final<|message|>Hello!<|return|>"), "Hello!");
  EXPECT_EQ(answer(asked_, "<|channel|>final <|constrain|>json<|message|>{}<|return|>"), "{}");
}

TEST_F(Channels, OthersAreNot) {
  EXPECT_EQ(answer(asked_, "<|channel|>commentary to=functions.clock<|message|>{}<|call|>"), "");
  EXPECT_EQ(answer(asked_, "<|channel|>finally<|message|>a<|end|>"), "");
  EXPECT_EQ(answer(asked_, "<|channel|>analysis<|message|>cut short"), "");
  EXPECT_EQ(answer(asked_, "<|channel|>" + std::string(1000, 'x') + "<|message|>a"), "");
  EXPECT_EQ(answer(asked_, "no header at all"), "");
}

TEST_F(Channels, SeveralMessagesOfOneChannelAreJoined) {
  EXPECT_EQ(answer(asked_,
                   "<|channel|>final<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>"
                   "<|start|>assistant<|channel|>final<|message|>c<|return|>"),
            "ac");
}

TEST_F(Channels, AMessageWithoutAChannelIsForEverybody) {
  EXPECT_EQ(answer(asked_, "<|message|>Hello<|end|>"), "Hello");
}

TEST_F(Channels, TheAnswerGoesOnWhereThePromptEnds) {
  EXPECT_EQ(answer("<|start|>assistant<|channel|>final<|message|>Once", " more<|return|>"), " more");
  EXPECT_EQ(answer("<|start|>assistant<|channel|>ana", "lysis<|message|>a<|end|>"), "");
  EXPECT_EQ(answer("<|start|>assistant<|channel|>fi", "nal<|message|>a<|end|>"), "a");
  EXPECT_EQ(answer("<|start|>user<|message|>Hi<|end|>", "<|start|>assistant<|channel|>final<|message|>a<|return|>"),
            "a");
}

TEST_F(Channels, ATextWithoutMessagesIsLeftAlone) {
  EXPECT_EQ(answer("Once upon a time", "x"), "no filter");
  tokenizer_ = channel_tokenizer(false);
  EXPECT_EQ(answer(asked_, "x"), "no filter") << "marks that are no control tokens are text";
}

}  // namespace
}  // namespace quarrel
