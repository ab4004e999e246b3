// The engine's own record of a request: its sink, and how each of its branches chooses tokens. The sink and the numbers
// never change; only the engine's thread touches the rest, `why` under its lock.
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
  // Prompt and answer where penalties need them, only the answer where a mask does, else nothing.
  std::vector<TokenId> text = {};
  std::unique_ptr<TokenMask> mask = {};
  std::string error = {};  // why it failed
};

struct EngineJob {
  std::shared_ptr<EventSink> sink = {};
  std::int32_t unfinished = 0;  // branches
  bool keeps_text = false;
  std::int32_t prompt_length = 0;    // tokens
  std::vector<TokenId> prompt = {};  // where penalties need it: a branch that starts copies it to its `text`
  std::int32_t top = 0;
  bool prompt_logits = false;
  Pooling pooling = Pooling::none;
  std::span<float> vector_into = {};
  std::string why = {};  // the reason given by whoever ended it
  std::vector<EngineBranch> branches = {};
};

}  // namespace quarrel
