#include "app/chat_parameters.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>

#include <CLI/CLI.hpp>

#include "app/input.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"

namespace quarrel {
namespace {

struct Row {
  const char* name;
  const char* flags;  // on the command line; null: none
  const char* type;   // of the flag's value
  const char* help;
  void (*set)(ChatParameters& parameters, std::string_view value);
  std::string (*show)(const ChatParameters& parameters);
  bool several = false;                   // the flag may be repeated, each adding to those before
  std::array<const char*, 2> words = {};  // that the value may be; null: any
};

[[noreturn]] void refuse(std::string_view value, std::string_view wanted) {
  fail(ErrorKind::bad_input, "'{}' is not {}", printable(value), wanted);
}

template <typename Number>
Number parse_number(std::string_view text, std::string_view wanted) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) refuse(text, wanted);
  return value;
}

template <float SamplingParams::* Member>
void set_float(ChatParameters& parameters, std::string_view value) {
  parameters.sampling.*Member = parse_number<float>(value, "a number");
}
template <float SamplingParams::* Member>
std::string show_float(const ChatParameters& parameters) {
  return fmt::format("{}", parameters.sampling.*Member);
}
template <std::int32_t SamplingParams::* Member>
void set_integer(ChatParameters& parameters, std::string_view value) {
  parameters.sampling.*Member = parse_number<std::int32_t>(value, "a whole number");
}
template <std::int32_t SamplingParams::* Member>
std::string show_integer(const ChatParameters& parameters) {
  return fmt::format("{}", parameters.sampling.*Member);
}

bool parse_switch(std::string_view value) {
  if (value.empty() || value == "on" || value == "true" || value == "1") return true;
  if (value == "off" || value == "false" || value == "0") return false;
  refuse(value, "on or off");
}

void set_mirostat(ChatParameters& parameters, std::string_view value) {
  if (value == "1") fail(ErrorKind::bad_input, "mirostat 1 is not supported; 0 is off and 2 is on");
  parameters.sampling.mirostat = value == "2" || (!value.empty() && parse_switch(value));
}

void set_seed(ChatParameters& parameters, std::string_view value) {
  if (value.empty() || value == "-1" || value == "random") {
    parameters.seed.reset();
  } else {
    parameters.seed =
        parse_number<std::uint64_t>(value, "a seed (a whole number from 0; -1 or random: a new one each time)");
  }
}

void set_max_tokens(ChatParameters& parameters, std::string_view value) {
  constexpr std::string_view kWanted = "a number of tokens (1 or more, or -1 for no limit)";
  const auto count = parse_number<std::int32_t>(value, kWanted);
  if (count < 1 && count != -1) refuse(value, kWanted);
  parameters.max_tokens = count;
}

void set_overflow(ChatParameters& parameters, std::string_view value) {
  if (value != "drop" && value != "stop") refuse(value, "drop or stop");
  parameters.overflow = value == "drop" ? ContextOverflow::drop : ContextOverflow::stop;
}

// On one line of a terminal a line feed can only be written as \n.
std::string unescape(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    const bool escape = text[i] == '\\' && (next == 'n' || next == 't' || next == '\\');
    result += !escape ? text[i] : next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
    if (escape) ++i;
  }
  return result;
}

void set_stop(ChatParameters& parameters, std::string_view value) {
  constexpr std::size_t kMostStops = 64;
  if (value.empty()) {
    parameters.stop.clear();
  } else if (parameters.stop.size() >= kMostStops) {
    fail(ErrorKind::bad_input, "there can be at most {} stop strings", kMostStops);
  } else {
    parameters.stop.push_back(unescape(value));
  }
}

void set_logit_bias(ChatParameters& parameters, std::string_view value) {
  constexpr std::string_view kWanted = "a token and its bias, as 1234=-5";
  auto& biases = parameters.sampling.logit_bias;
  if (value.empty()) {
    biases.clear();
    return;
  }
  const std::size_t equals = value.find('=');
  if (equals == std::string_view::npos) refuse(value, kWanted);
  const auto id = parse_number<TokenId>(value.substr(0, equals), kWanted);
  const auto bias = parse_number<float>(value.substr(equals + 1), kWanted);
  if (id < 0) refuse(value, kWanted);
  std::erase_if(biases, [&](const auto& entry) { return entry.first == id; });
  biases.emplace_back(id, bias);
}

std::string show_stop(const ChatParameters& parameters) {
  std::vector<std::string> shown;
  shown.reserve(parameters.stop.size());
  for (const std::string& text : parameters.stop) shown.push_back(nlohmann::json(text).dump());
  return fmt::format("{}", fmt::join(shown, " "));
}

std::string show_logit_bias(const ChatParameters& parameters) {
  std::vector<std::string> shown;
  shown.reserve(parameters.sampling.logit_bias.size());
  for (const auto& [id, bias] : parameters.sampling.logit_bias) shown.push_back(fmt::format("{}={}", id, bias));
  return fmt::format("{}", fmt::join(shown, " "));
}

std::string show_seed(const ChatParameters& parameters) {
  return parameters.seed ? fmt::format("{}", *parameters.seed) : "random";
}

using P = SamplingParams;
using Parameters = ChatParameters;

constexpr std::array kRows{
    Row{"temperature", "--temperature,--temp", "X", "how freely it chooses; 0 always takes the most likely token",
        set_float<&P::temperature>, show_float<&P::temperature>},
    Row{"top_k", "--top-k", "N", "choose among this many most likely tokens; 0: all", set_integer<&P::top_k>,
        show_integer<&P::top_k>},
    Row{"top_p", "--top-p", "X", "choose among the tokens that together reach this probability; 1: all",
        set_float<&P::top_p>, show_float<&P::top_p>},
    Row{"min_p", "--min-p", "X", "choose among tokens with at least this share of the best one's probability; 0: all",
        set_float<&P::min_p>, show_float<&P::min_p>},
    Row{"typical_p", "--typical-p", "X", "locally typical sampling; 1: off", set_float<&P::typical_p>,
        show_float<&P::typical_p>},
    Row{"repeat_penalty", "--repeat-penalty", "X", "makes recent tokens less likely; 1: off",
        set_float<&P::repeat_penalty>, show_float<&P::repeat_penalty>},
    Row{"presence_penalty", "--presence-penalty", "X", "subtracted once from the score of a token that was seen",
        set_float<&P::presence_penalty>, show_float<&P::presence_penalty>},
    Row{"frequency_penalty", "--frequency-penalty", "X", "subtracted from a token's score for each time it was seen",
        set_float<&P::frequency_penalty>, show_float<&P::frequency_penalty>},
    Row{"repeat_last_n", "--repeat-last-n", "N", "how many last tokens count as seen; -1: all",
        set_integer<&P::penalty_window>, show_integer<&P::penalty_window>},
    Row{"mirostat",
        "--mirostat",
        "0|2",
        "mirostat 2 in place of top-k, top-p, min-p and typical-p",
        set_mirostat,
        [](const Parameters& p) { return std::string(p.sampling.mirostat ? "2" : "0"); },
        false,
        {"0", "2"}},
    Row{"mirostat_tau", "--mirostat-tau", "X", "the surprise mirostat aims at, in bits", set_float<&P::mirostat_tau>,
        show_float<&P::mirostat_tau>},
    Row{"mirostat_eta", "--mirostat-eta", "X", "how fast mirostat learns", set_float<&P::mirostat_eta>,
        show_float<&P::mirostat_eta>},
    Row{"logit_bias", "--logit-bias", "ID=X", "added to a token's score", set_logit_bias, show_logit_bias, true},
    Row{"seed", "--seed", "N",
        "seed of the random numbers: the same seed gives the same answer; -1: a new one each time", set_seed,
        show_seed},
    Row{"num_predict", "-n,--max-tokens", "N", "most tokens of an answer; -1: no limit", set_max_tokens,
        [](const Parameters& p) { return fmt::format("{}", p.max_tokens); }},
    Row{"stop", "--stop", "TEXT", "ends the answer where it would appear", set_stop, show_stop, true},
    Row{"system", "--system", "TEXT", "the system prompt",
        [](Parameters& p, std::string_view value) { p.system = value; }, [](const Parameters& p) { return p.system; }},
    Row{"overflow",
        nullptr,
        "",
        "a full context: drop the oldest turns, or stop",
        set_overflow,
        [](const Parameters& p) { return std::string(p.overflow == ContextOverflow::drop ? "drop" : "stop"); },
        false,
        {"drop", "stop"}},
    Row{"verbose",
        nullptr,
        "",
        "timings after each answer: on or off",
        [](Parameters& p, std::string_view value) { p.verbose = parse_switch(value); },
        [](const Parameters& p) { return std::string(p.verbose ? "on" : "off"); },
        false,
        {"on", "off"}},
};

// Nothing is changed if it fails. `shown` is the name that the user knows the parameter by.
void set_row(ChatParameters& parameters, const Row& row, std::string_view value, std::string_view shown) {
  ChatParameters changed = parameters;
  row.set(changed, value);
  if (const auto fault = find_fault(changed.sampling)) fail(ErrorKind::bad_input, "{} must be {}", shown, fault->range);
  parameters = std::move(changed);
}

const Row* find_row(std::string_view name) {
  const auto* row = std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return name == r.name; });
  return row == kRows.end() ? nullptr : row;
}

// The first long name on the command line, where it has one.
std::string_view option_name(const Row& row) {
  const std::string_view flags = row.flags == nullptr ? "" : row.flags;
  const std::size_t begin = flags.find("--");
  if (begin == std::string_view::npos) return row.name;
  return flags.substr(begin, flags.find(',', begin) - begin);
}

}  // namespace

std::vector<ParameterInfo> list_parameters(const ChatParameters& parameters) {
  std::vector<ParameterInfo> result;
  result.reserve(std::size(kRows));
  for (const Row& row : kRows) {
    result.push_back({row.name, row.show(parameters), row.help, {}});
    for (const char* word : row.words) {
      if (word != nullptr) result.back().words.emplace_back(word);
    }
  }
  return result;
}

void set_parameter(ChatParameters& parameters, std::string_view name, std::string_view value) {
  const Row* row = find_row(name);
  if (row == nullptr) {
    std::vector<std::string> names;
    names.reserve(std::size(kRows));
    for (const Row& known : kRows) names.emplace_back(known.name);
    const std::vector<std::string> near = nearest(name, names);
    fail(ErrorKind::bad_input, "there is no parameter '{}'{}", printable(name),
         near.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, ", ")));
  }
  set_row(parameters, *row, value, row->name);
}

void apply_recommended(ChatParameters& parameters, const RecommendedSampling& recommended) {
  parameters.sampling = recommended.over(parameters.sampling);
  if (recommended.seed) parameters.seed = recommended.seed;
  parameters.max_tokens = recommended.max_tokens.value_or(parameters.max_tokens);
  parameters.stop.insert(parameters.stop.end(), recommended.stop.begin(), recommended.stop.end());
}

void add_parameter_options(CLI::App& command, GivenParameters& given) {
  const ChatParameters defaults;
  for (const Row& row : kRows) {
    if (row.flags == nullptr) continue;
    const std::string value = row.show(defaults);
    std::string help = row.help;
    help[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(help[0])));
    if (!value.empty()) help += fmt::format(" [{}]", value);
    CLI::Option* option = command.add_option_function<std::vector<std::string>>(
        row.flags,
        [&given, name = row.name](const std::vector<std::string>& values) {
          for (const std::string& text : values) given.emplace_back(name, text);
        },
        help);
    option->allow_extra_args(false)->group("Answer");
    if (!row.several) option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    option->type_name(row.type);
  }
}

void check_flags(const GivenParameters& given) {
  for (const auto& [name, value] : given) {
    const Row& row = *find_row(name);
    if (value.empty() && name != "system") fail(ErrorKind::usage, "{}: the value is empty", option_name(row));
  }
  ChatParameters checked;
  apply_given(checked, given);
}

void apply_given(ChatParameters& parameters, const GivenParameters& given) {
  for (const auto& [name, value] : given) {
    const Row& row = *find_row(name);
    const std::string_view flag = option_name(row);
    try {
      set_row(parameters, row, value, flag);
    } catch (const Error& error) {
      const std::string_view sentence = error.what();
      if (sentence.starts_with(flag)) fail(ErrorKind::usage, "{}", sentence);
      fail(ErrorKind::usage, "{}: {}", flag, sentence);
    }
  }
}

}  // namespace quarrel
