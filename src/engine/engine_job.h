// The engine's own record of a request: who hears of it, and how each of its branches chooses tokens. The sink and the
// numbers never change; the rest is touched by the engine's thread alone, `why` under its lock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/request.h"

namespace quarrel {

struct EngineBranch {
  SamplingParams sampling = {};
  std::uint64_t drawn = 0;   // tokens of the answer
  float mirostat_mu = 0.0f;  // after the last of them
  // Prompt and answer where penalties ask for it, the answer alone where only a mask does, else nothing.
  std::vector<TokenId> text = {};
  std::unique_ptr<TokenMask> mask = {};
  std::string error = {};  // why it failed
};

struct EngineJob {
  std::shared_ptr<EventSink> sink = {};
  std::int32_t unfinished = 0;  // branches
  bool keeps_text = false;
  std::int32_t prompt_length = 0;    // tokens
  std::vector<TokenId> prompt = {};  // where penalties ask for it: a branch that begins copies it to its `text`
  std::int32_t top = 0;
  bool prompt_logits = false;
  Pooling pooling = Pooling::none;
  std::span<float> vector_into = {};
  std::string why = {};  // somebody ended it, and said why
  std::vector<EngineBranch> branches = {};
};

}  // namespace quarrel
