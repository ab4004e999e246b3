// A regression suite: which models to check, with which prompts, and how far they may go astray. docs/regress.md
// describes the file. Read by `regress`; plain values afterwards. Stateless: any thread may call.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/coherence.h"
#include "base/token.h"

namespace quarrel {

struct SuitePrompt {
  std::string name;
  std::string text;
  std::string system;  // empty: none
  bool raw = false;    // continue the text as it is instead of answering it
  std::int32_t max_tokens = 64;
  double temperature = 0.0;  // 0 always takes the most likely token
  double repeat_penalty = 1.0;
  std::uint64_t seed = 0;
  std::vector<std::string> must_contain;  // letter case aside
};

// Options of the command line that a check may replace; empty: as they are.
struct CheckOptions {
  std::string backend;
  std::string kv;
  std::string activations;
  std::string row_class = "prompt";
};

// Where a check's tokens come from: one of the four.
struct SuiteTokens {
  std::vector<TokenId> ids;
  std::filesystem::path file;
  std::string text;
  std::int32_t random = 0;  // so many, the same in every run
};

struct LogitCheck {
  CheckOptions options;
  SuiteTokens tokens;
  std::filesystem::path golden;  // raw float32 [tokens][vocabulary]; empty: what the reference backend computes
  double max_nmse = 0.0;
};

struct PerplexityCheck {
  CheckOptions options;
  std::filesystem::path text;
  std::int32_t window = 512;
  std::int32_t windows = 0;
  double max = 0.0;
  double min = 1.0;
};

struct SuiteModel {
  std::string name;                  // of a store, or a path
  bool optional = false;             // skipped where there is no such model
  std::vector<std::size_t> prompts;  // indices into Suite::prompts
  std::vector<LogitCheck> logits;
  std::vector<PerplexityCheck> perplexity;
};

struct Suite {
  CoherenceLimits coherence;
  std::vector<SuitePrompt> prompts;
  std::vector<SuiteModel> models;
  std::optional<SuiteModel> generic;  // for models that are named elsewhere
};

// `folder` is what relative paths begin at, `name` the file's name for messages. Throws Error(bad_input) with the line:
// for what is no TOML, for a key that is unknown (with the nearest known one) or of the wrong kind, for a value out of
// range and for one that is missing.
Suite parse_suite(std::string_view text, const std::filesystem::path& folder, std::string_view name);
Suite load_suite(const std::filesystem::path& path);

}  // namespace quarrel
