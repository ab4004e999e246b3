// The load of `bench --serve`, decided before anything runs: when each request comes, how long its prompt and its
// answer are, and which tokens it holds. All of it follows from the settings and their seed, on every machine alike.
// Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/token.h"

namespace quarrel {

inline constexpr std::int32_t kMostLoadTokens = 1 << 22;  // of a prompt or an answer
inline constexpr std::int32_t kMostLoadRequests = 1 << 20;
inline constexpr std::int32_t kMostLoadClients = 1024;
inline constexpr double kLeastRate = 1e-3;  // requests a second
inline constexpr double kMostRate = 1e6;

// Lengths between two bounds, both included, each as likely as any other.
struct TokenRange {
  std::int32_t least = 0;
  std::int32_t most = 0;
};
// "128" or "64:256"; throws Error(usage) for anything else, and for numbers outside [1, kMostLoadTokens].
TokenRange parse_token_range(std::string_view text, std::string_view option);

struct LoadSettings {
  std::int32_t clients = 8;   // each sends its next request when its last has ended
  double rate = 0.0;          // above 0: requests come by themselves instead, so many a second on average
  std::int32_t requests = 0;  // 0: four a client, 64 at a rate
  TokenRange prompt = {.least = 128, .most = 128};
  TokenRange output = {.least = 64, .most = 64};
  std::int32_t shared_prefix = 0;  // first tokens that all prompts have in common
  std::int32_t long_prompt = 0;    // above 0: one more request with so many tokens, all its own, amid the others
  std::uint64_t seed = 1;

  bool open_loop() const noexcept { return rate > 0.0; }
};
// The settings with their defaults filled in; throws Error(usage) for those that make no sense.
LoadSettings resolved(LoadSettings settings);

struct PlannedRequest {
  double arrival = 0.0;  // seconds from the start; 0 for those of clients
  std::int32_t prompt = 0;
  std::int32_t output = 0;
};

struct LoadPlan {
  std::vector<PlannedRequest> requests = {};  // by arrival; the long one last, if there is one
  std::size_t ordinary = 0;                   // how many of them are not the long one
  std::size_t long_after = 0;                 // the long one comes when so many have ended
};
// Of resolved settings.
LoadPlan plan_load(const LoadSettings& settings);

// Prompt and answer together that the load may have at most, and those of the ordinary requests alone.
std::int64_t longest_text(const LoadSettings& settings) noexcept;
std::int64_t longest_ordinary_text(const LoadSettings& settings) noexcept;

// The tokens of the request with this number: random ids below the vocabulary, the first as all others have them.
std::vector<TokenId> load_prompt(const LoadSettings& settings, const LoadPlan& plan, std::size_t request,
                                 std::int32_t vocabulary);

}  // namespace quarrel
