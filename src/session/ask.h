// The parameters of a generation: a text, ids or a conversation to continue, and how. Plain values; made by the
// program, the library and the server alike, read by Generation. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "backend/sampling.h"
#include "engine/request.h"
#include "text/chat_prompt.h"

namespace quarrel {

struct Ask {
  // A text (the spelling of control tokens becomes those tokens), ids as they are, or a conversation.
  std::variant<std::string, std::vector<TokenId>, ChatInput> prompt = {};

  SamplingParams sampling = {};                          // its seed is ignored:
  std::optional<std::uint64_t> seed = {};                // none: another one for each request
  std::int32_t max_tokens = -1;                          // of an answer; -1: until it ends or the context is full
  std::vector<std::string> stop = {};                    // each ends an answer and is not part of it
  std::optional<std::vector<TokenId>> stop_tokens = {};  // none: those that end an answer in the model's vocabulary
  bool show_special = false;                             // control tokens appear in the text as they are spelled

  std::int32_t answers = 1;    // to the one prompt
  std::int32_t best_of = 0;    // this many are computed, and the best are returned; 0: only `answers`
  std::int32_t top = 0;        // how many of the most likely tokens are reported for each
  bool tell_reading = false;   // how many are ahead in the queue, and how much of the prompt is read
  bool prompt_scores = false;  // the log-probability of each token of the prompt but the first

  Overflow overflow = Overflow::stop;
  std::int32_t keep = 0;  // first tokens of the prompt that a shift leaves
  Priority priority = Priority::normal;
  std::uint64_t key = 0;   // whose request it is
  std::uint64_t salt = 0;  // prompts of different salts share no cached blocks
  bool use_cache = true;
  std::int32_t pinned = 0;                  // how many tokens of the prompt should stay cached
  std::chrono::microseconds timeout = {};   // waiting included; 0: none
  std::chrono::microseconds patience = {};  // how long it may wait for its start, and for each token; 0: no limit
  std::function<std::unique_ptr<TokenMask>(std::int32_t answer)> mask = {};  // none: every token may come
};

class LoadedModel;

// How many answers are computed.
std::int32_t branch_count(const Ask& ask) noexcept;

// The prompt's tokens. Throws Error: unsupported for what the model cannot read, bad_input as encode_chat does.
std::vector<TokenId> encode_prompt(const LoadedModel& model, const Ask& ask);
// The text that a conversation becomes, and its tokens.
EncodedChat render_chat(const LoadedModel& model, const ChatInput& input);

// The engine's request for it. Throws Error: unsupported for what the model cannot do, bad_input for an invalid option;
// what the engine itself refuses is left to it.
EngineRequest request_for(const Ask& ask, const LoadedModel& model);

}  // namespace quarrel
