// How an answer is made: sampling, length, stop strings, the system prompt. One table of names serves the flags of
// `run` and `/set` in a chat. Plain values, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/sampling.h"
#include "session/recommended_sampling.h"

namespace CLI {
class App;
}

namespace quarrel {

// What a chat does when its conversation outgrows the context.
enum class ContextOverflow {
  drop,  // the oldest turns are not sent any more
  stop,  // messages are refused
};

inline SamplingParams recent_penalties(SamplingParams params) {
  params.penalty_scope = PenaltyScope::recent;
  return params;
}

struct ChatParameters {
  // Given penalties have the meaning that they have for Ollama and llama.cpp, whose names these are.
  SamplingParams sampling = recent_penalties(default_sampling());
  std::optional<std::uint64_t> seed;  // none: another one for each answer
  std::int32_t max_tokens = -1;       // -1: until the model ends or the context is full
  std::vector<std::string> stop;
  std::string system;
  ContextOverflow overflow = ContextOverflow::drop;
  bool verbose = false;
};

struct ParameterInfo {
  std::string name;
  std::string value;
  std::string help;
  std::vector<std::string> words;  // that its value may be; empty: any
};

// Every parameter with its value, in the order of the table.
std::vector<ParameterInfo> list_parameters(const ChatParameters& parameters);

// Sets one by its name. An empty value clears `stop`, `logit_bias`, `seed` and `system`. Throws Error(bad_input) for an
// unknown name (with the nearest) or a value that is no number or out of range; nothing is changed then.
void set_parameter(ChatParameters& parameters, std::string_view name, std::string_view value);

// Takes over what a model's makers recommend; the context is the caller's business.
void apply_recommended(ChatParameters& parameters, const RecommendedSampling& recommended);

// Flags in the order they were given, to be set after the model's own parameters.
using GivenParameters = std::vector<std::pair<std::string, std::string>>;
void add_parameter_options(CLI::App& command, GivenParameters& given);
// Throws Error(usage) for flags that cannot be set. An empty value clears a list, which is what somebody in a chat may
// want; on the command line it is a mistake.
void check_flags(const GivenParameters& given);
// Throws Error(usage).
void apply_given(ChatParameters& parameters, const GivenParameters& given);

}  // namespace quarrel
