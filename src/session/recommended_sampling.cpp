#include "session/recommended_sampling.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"
#include "base/printable.h"
#include "session/known_sampling.h"

namespace quarrel {
namespace {

using Json = nlohmann::ordered_json;
using Recommended = RecommendedSampling;

// A field by the names that a file and a store have for it; null: none.
struct Row {
  const char* file_key;
  const char* store_name;
  void (*set)(Recommended& recommended, double value);
  std::optional<std::string> (*show)(const Recommended& recommended);
};

template <std::optional<float> Recommended::* Member>
void set_float(Recommended& recommended, double value) {
  recommended.*Member = static_cast<float>(value);
}

template <auto Member>
std::optional<std::string> show(const Recommended& recommended) {
  if (!(recommended.*Member)) return std::nullopt;
  return fmt::format("{}", *(recommended.*Member));
}

std::int32_t whole_number(double value) {
  const bool fits = value == std::floor(value) && std::abs(value) <= std::numeric_limits<std::int32_t>::max();
  if (!fits) fail(ErrorKind::bad_input, "{} is not a whole number", value);
  return static_cast<std::int32_t>(value);
}

template <std::optional<std::int32_t> Recommended::* Member>
void set_integer(Recommended& recommended, double value) {
  recommended.*Member = whole_number(value);
}

void set_mirostat(Recommended& recommended, double value) {
  const std::int32_t version = whole_number(value);
  if (version != 0 && version != 2) fail(ErrorKind::bad_input, "mirostat is 0 (off) or 2 (on), not {}", version);
  recommended.mirostat = version == 2;
}

std::optional<std::string> show_mirostat(const Recommended& recommended) {
  if (!recommended.mirostat) return std::nullopt;
  return *recommended.mirostat ? "2" : "0";
}

void set_top_k(Recommended& recommended, double value) {
  recommended.top_k = std::max(whole_number(value), 0);  // below 0: all tokens, which is 0 here
}

void set_seed(Recommended& recommended, double value) {
  const bool is_exact = value == std::floor(value) && std::abs(value) <= 0x1p53;
  if (!is_exact) fail(ErrorKind::bad_input, "{} is not a whole number of at most 2^53", value);
  if (value >= 0) recommended.seed = static_cast<std::uint64_t>(value);  // below 0: another one each time
}

void set_max_tokens(Recommended& recommended, double value) {
  recommended.max_tokens = std::max(whole_number(value), -1);  // -2: as many as the context leaves, which is -1 here
}

void set_context(Recommended& recommended, double value) {
  const std::int32_t tokens = whole_number(value);
  if (tokens < 1) fail(ErrorKind::bad_input, "{} is not a number of tokens", tokens);
  recommended.context = tokens;
}

constexpr std::array kRows{
    Row{"general.sampling.temp", "temperature", set_float<&Recommended::temperature>, show<&Recommended::temperature>},
    Row{"general.sampling.top_k", "top_k", set_top_k, show<&Recommended::top_k>},
    Row{"general.sampling.top_p", "top_p", set_float<&Recommended::top_p>, show<&Recommended::top_p>},
    Row{"general.sampling.min_p", "min_p", set_float<&Recommended::min_p>, show<&Recommended::min_p>},
    Row{nullptr, "typical_p", set_float<&Recommended::typical_p>, show<&Recommended::typical_p>},
    Row{"general.sampling.penalty_repeat", "repeat_penalty", set_float<&Recommended::repeat_penalty>,
        show<&Recommended::repeat_penalty>},
    Row{"general.sampling.penalty_last_n", "repeat_last_n", set_integer<&Recommended::penalty_window>,
        show<&Recommended::penalty_window>},
    Row{nullptr, "presence_penalty", set_float<&Recommended::presence_penalty>, show<&Recommended::presence_penalty>},
    Row{nullptr, "frequency_penalty", set_float<&Recommended::frequency_penalty>,
        show<&Recommended::frequency_penalty>},
    Row{"general.sampling.mirostat", "mirostat", set_mirostat, show_mirostat},
    Row{"general.sampling.mirostat_tau", "mirostat_tau", set_float<&Recommended::mirostat_tau>,
        show<&Recommended::mirostat_tau>},
    Row{"general.sampling.mirostat_eta", "mirostat_eta", set_float<&Recommended::mirostat_eta>,
        show<&Recommended::mirostat_eta>},
    Row{nullptr, "seed", set_seed, show<&Recommended::seed>},
    Row{nullptr, "num_predict", set_max_tokens, show<&Recommended::max_tokens>},
    Row{nullptr, "num_ctx", set_context, show<&Recommended::context>},
    Row{nullptr, "num_keep", set_integer<&Recommended::keep>, show<&Recommended::keep>},
};

// Only what sampling accepts is taken over.
void set_checked(const Row& row, Recommended& recommended, double value) {
  Recommended changed = recommended;
  row.set(changed, value);
  check(changed.over({}));
  recommended = std::move(changed);
}

double number_of(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 2.0 : 0.0;  // of a switch
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    double number = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc{} && end == text.data() + text.size()) return number;
  }
  fail(ErrorKind::bad_input, "it is not a number");
}

void add_stops(Recommended& recommended, const Json& value) {
  for (const Json& text : value.is_array() ? value : Json::array({value})) {
    if (!text.is_string()) fail(ErrorKind::bad_input, "a stop string is not text");
    if (!text.get_ref<const std::string&>().empty()) recommended.stop.push_back(text.get<std::string>());
  }
}

void read_store(std::string_view text, Recommended& recommended, Log& log) {
  constexpr std::size_t kDeepest = 8;
  const Json values = nests_deeper(text, kDeepest) ? Json() : Json::parse(text, nullptr, false);
  if (!values.is_object()) {
    log.warn("the model's parameters are not a JSON object; they are not used");
    return;
  }
  for (const auto& [name, value] : values.items()) {
    try {
      if (name == "stop") {
        add_stops(recommended, value);
        continue;
      }
      const auto* row =
          std::ranges::find_if(kRows, [&](const Row& known) { return name == std::string_view(known.store_name); });
      if (row == kRows.end()) fail(ErrorKind::bad_input, "there is no parameter of this name");
      set_checked(*row, recommended, number_of(value));
    } catch (const Error& error) {
      log.warn("the model's own parameter '{}' is not used: {}", printable(name), error.what());
    }
  }
}

// Whether it has any.
bool read_file(const GgufFile& file, Recommended& recommended, Log& log) {
  bool any = false;
  for (const Row& row : kRows) {
    if (row.file_key == nullptr || file.find(row.file_key) == nullptr) continue;
    try {
      set_checked(row, recommended, *file.number(row.file_key));
      any = true;
    } catch (const Error& error) {
      log.warn("'{}' of the model's file is not used: {}", row.file_key, error.what());
    }
  }
  return any;
}

void take_family(const KnownSampling& family, Recommended& recommended) {
  recommended.temperature = family.temperature;
  recommended.top_k = family.top_k;
  recommended.top_p = family.top_p;
  recommended.min_p = family.min_p;
}

// A recommendation is one whole: what is known of a family is not mixed with what somebody else says.
bool says_how_to_choose(const Recommended& recommended) {
  return recommended.temperature || recommended.top_k || recommended.top_p || recommended.min_p ||
         recommended.typical_p || recommended.mirostat;
}

}  // namespace

std::vector<std::pair<std::string_view, std::string>> RecommendedSampling::list() const {
  std::vector<std::pair<std::string_view, std::string>> result;
  for (const Row& row : kRows) {
    if (auto value = row.show(*this)) result.emplace_back(row.store_name, std::move(*value));
  }
  return result;
}

std::string RecommendedSampling::summary() const {
  if (origin.empty()) return {};
  std::vector<std::string> parts;
  for (const auto& [name, value] : list()) parts.push_back(fmt::format("{} {}", name, value));
  for (const std::string& text : stop) parts.push_back(fmt::format("stop '{}'", printable(text, 32)));
  return fmt::format("{} ({})", fmt::join(parts, ", "), origin);
}

SamplingParams default_sampling() {
  return {.temperature = 0.7f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .logit_bias = {}};
}

SamplingParams RecommendedSampling::over(SamplingParams defaults) const {
  defaults.temperature = temperature.value_or(defaults.temperature);
  defaults.top_k = top_k.value_or(defaults.top_k);
  defaults.top_p = top_p.value_or(defaults.top_p);
  defaults.min_p = min_p.value_or(defaults.min_p);
  defaults.typical_p = typical_p.value_or(defaults.typical_p);
  defaults.repeat_penalty = repeat_penalty.value_or(defaults.repeat_penalty);
  defaults.presence_penalty = presence_penalty.value_or(defaults.presence_penalty);
  defaults.frequency_penalty = frequency_penalty.value_or(defaults.frequency_penalty);
  defaults.penalty_window = penalty_window.value_or(defaults.penalty_window);
  // Whoever writes these means what llama.cpp does with them.
  if (presence_penalty || frequency_penalty) defaults.penalty_scope = PenaltyScope::recent;
  defaults.mirostat = mirostat.value_or(defaults.mirostat);
  defaults.mirostat_tau = mirostat_tau.value_or(defaults.mirostat_tau);
  defaults.mirostat_eta = mirostat_eta.value_or(defaults.mirostat_eta);
  return defaults;
}

RecommendedSampling read_recommended_sampling(const GgufFile& file, std::string_view store_parameters, Log& log) {
  RecommendedSampling result;
  std::vector<std::string> origins;
  if (!store_parameters.empty()) read_store(store_parameters, result, log);
  if (!result.list().empty() || !result.stop.empty()) origins.emplace_back("from the store");
  if (read_file(file, result, log)) origins.emplace_back("from the file");  // whose own word counts more
  const KnownSampling* family = says_how_to_choose(result) ? nullptr : find_known_sampling(file);
  if (family != nullptr) {
    take_family(*family, result);
    origins.push_back(fmt::format("preset for {}", family->family));
  }
  result.origin = fmt::format("{}", fmt::join(origins, ", "));
  return result;
}

}  // namespace quarrel
