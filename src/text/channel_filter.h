// Which tokens of an answer are the answer itself, where a model speaks in channels: gpt-oss and its like write
// `<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…<|return|>`, and only what the
// channel `final` says is meant for the reader. It looks at tokens, never at text, so nothing that a user wrote can
// change channels. One filter an answer; not thread-safe. Used by Generation.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "text/tokenizer.h"

namespace quarrel {

class ChannelFilter {
 public:
  // None: the vocabulary has no channels, or the prompt has no message that the answer could be part of. What the
  // prompt leaves open (a header, a channel's text) is where the answer goes on. The tokenizer must outlive the filter.
  static std::optional<ChannelFilter> after(const Tokenizer& tokenizer, std::span<const TokenId> prompt);

  // Whether the token's text belongs to the answer.
  bool take(TokenId id);

 private:
  // The control tokens that headers are made of; -1: the vocabulary has none.
  struct Marks {
    TokenId start = -1, channel = -1, constrain = -1, message = -1, end = -1, ret = -1, call = -1;
  };
  enum class Place : std::uint8_t {
    between,  // messages
    header,   // the role, or what follows the channel's name
    name,     // of the channel
    text,     // of the message
  };

  ChannelFilter(const Tokenizer& tokenizer, const Marks& marks) : tokenizer_(&tokenizer), marks_(marks) {}
  static std::optional<Marks> find_marks(const Tokenizer& tokenizer);
  bool is_answer() const noexcept;

  const Tokenizer* tokenizer_;
  Marks marks_;
  Place place_ = Place::between;
  std::string channel_;  // with what follows the name, `to=…`
};

}  // namespace quarrel
