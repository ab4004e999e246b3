#include "app/serve_load.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "backend/sampling.h"
#include "base/error.h"
#include "base/printable.h"

namespace quarrel {
namespace {

// Random numbers of different uses never meet: the use, the request and the place are the number of the draw.
enum class Use : std::uint64_t { arrival, prompt_length, output_length, shared_token, own_token };

double draw(const LoadSettings& settings, Use use, std::size_t request, std::size_t place = 0) noexcept {
  static_assert(kMostLoadTokens <= 1 << 24 && kMostLoadRequests < 1 << 24);
  return uniform(settings.seed, static_cast<std::uint64_t>(use) << 56 | std::uint64_t{request} << 24 | place);
}

std::int32_t draw_length(const LoadSettings& settings, Use use, std::size_t request, const TokenRange& range) noexcept {
  const double width = static_cast<double>(range.most) - range.least + 1.0;
  return std::min(range.most, range.least + static_cast<std::int32_t>(draw(settings, use, request) * width));
}

std::optional<std::int32_t> parse_length(std::string_view text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (value < 1 || value > kMostLoadTokens) return std::nullopt;
  return value;
}

}  // namespace

TokenRange parse_token_range(std::string_view text, std::string_view option) {
  const std::size_t colon = text.find(':');
  const auto least = parse_length(text.substr(0, colon));
  const auto most = colon == std::string_view::npos ? least : parse_length(text.substr(colon + 1));
  if (!least || !most) {
    fail(ErrorKind::usage, "{} takes a number or MIN:MAX, from 1 to {}, and '{}' is neither", option, kMostLoadTokens,
         printable(text));
  }
  if (*least > *most) {
    fail(ErrorKind::usage, "{} takes the smaller number first, as {}:{}", option, *most, *least);
  }
  return {.least = *least, .most = *most};
}

LoadSettings resolved(LoadSettings settings) {
  constexpr std::int32_t kRequestsAClient = 4;
  constexpr std::int32_t kRequestsAtARate = 64;
  // Written so that what is not a number is refused too.
  if (settings.rate != 0.0 && !(settings.rate >= kLeastRate && settings.rate <= kMostRate)) {
    fail(ErrorKind::usage, "--rate takes requests per second, from {} to {}", kLeastRate, kMostRate);
  }
  if (settings.requests == 0) {
    settings.requests = settings.open_loop() ? kRequestsAtARate : kRequestsAClient * settings.clients;
  }
  if (!settings.open_loop() && settings.requests < settings.clients) {
    fail(ErrorKind::usage, "{} requests leave some of {} clients with nothing to do (--requests, --clients)",
         settings.requests, settings.clients);
  }
  if (settings.shared_prefix > settings.prompt.least) {
    fail(ErrorKind::usage, "a prompt of {} tokens cannot begin with {} shared ones (--prompt-tokens, --shared-prefix)",
         settings.prompt.least, settings.shared_prefix);
  }
  return settings;
}

LoadPlan plan_load(const LoadSettings& settings) {
  LoadPlan plan;
  plan.ordinary = static_cast<std::size_t>(settings.requests);
  plan.requests.reserve(plan.ordinary + 1);
  double arrival = 0.0;
  for (std::size_t i = 0; i < plan.ordinary; ++i) {
    // What comes at random has waits between that fall off exponentially.
    if (settings.open_loop()) arrival -= std::log(1.0 - draw(settings, Use::arrival, i)) / settings.rate;
    plan.requests.push_back({.arrival = arrival,
                             .prompt = draw_length(settings, Use::prompt_length, i, settings.prompt),
                             .output = draw_length(settings, Use::output_length, i, settings.output)});
  }
  if (settings.long_prompt > 0) {
    plan.long_after = plan.ordinary / 4;
    plan.requests.push_back({.prompt = settings.long_prompt, .output = settings.output.most});
  }
  return plan;
}

std::int64_t longest_ordinary_text(const LoadSettings& settings) noexcept {
  return std::int64_t{settings.prompt.most} + settings.output.most;
}

std::int64_t longest_text(const LoadSettings& settings) noexcept {
  return std::int64_t{std::max(settings.prompt.most, settings.long_prompt)} + settings.output.most;
}

std::vector<TokenId> load_prompt(const LoadSettings& settings, const LoadPlan& plan, std::size_t request,
                                 std::int32_t vocabulary) {
  const auto count = static_cast<std::size_t>(plan.requests.at(request).prompt);
  const auto shared = request < plan.ordinary ? static_cast<std::size_t>(settings.shared_prefix) : 0;
  std::vector<TokenId> tokens;
  tokens.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double random =
        i < shared ? draw(settings, Use::shared_token, 0, i) : draw(settings, Use::own_token, request, i);
    tokens.push_back(static_cast<TokenId>(random * vocabulary));
  }
  return tokens;
}

}  // namespace quarrel
