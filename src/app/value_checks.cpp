#include "app/value_checks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/printable.h"

namespace quarrel {
namespace {

template <typename Number>
std::optional<Number> parsed(const std::string& text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && stop == end ? std::optional(value) : std::nullopt;
}

// `holds` says whether a text is `wanted`.
template <typename Holds>
CLI::Validator check_that(Holds holds, std::string wanted, std::string description = {}) {
  const auto refusal = [holds = std::move(holds), wanted = std::move(wanted)](const std::string& text) {
    return holds(text) ? std::string() : fmt::format("'{}' is not {}", printable(text), wanted);
  };
  return CLI::Validator(refusal, std::move(description));
}

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  const auto holds = [least, most](const std::string& text) {
    const auto value = parsed<std::int64_t>(text);
    return value && *value >= least && *value <= most;
  };
  const bool bounded = most < kNoLargest;
  return check_that(holds, bounded ? fmt::format("a whole number from {} to {}", least, most)
                                   : fmt::format("a whole number, {} or more", least));
}

CLI::Validator any_whole_number() {
  return check_that([](const std::string& text) { return parsed<std::int32_t>(text).has_value(); }, "a whole number");
}

CLI::Validator any_number() {
  return check_that([](const std::string& text) { return parsed<double>(text).has_value(); }, "a number");
}

CLI::Validator number(double least, double most) {
  const auto holds = [least, most](const std::string& text) {
    const auto value = parsed<double>(text);
    return value && *value >= least && *value <= most;
  };
  return check_that(holds, fmt::format("a number from {} to {}", least, most));
}

CLI::Validator any_seed() {
  return check_that([](const std::string& text) { return parsed<std::uint64_t>(text).has_value(); },
                    "a seed (a whole number from 0)");
}

CLI::Validator one_of(std::vector<std::string> words, std::vector<std::string> understood) {
  const std::string list = fmt::format("{}", fmt::join(words, ", "));
  // In braces: where command_reference.cpp looks for them.
  const std::string description = fmt::format("{{{}}}", fmt::join(words, ","));
  const auto holds = [words = std::move(words), understood = std::move(understood)](const std::string& text) {
    return std::ranges::find(words, text) != words.end() || std::ranges::find(understood, text) != understood.end();
  };
  return check_that(holds, fmt::format("one of {}", list), description);
}

CLI::Validator not_empty() {
  const auto refusal = [](const std::string& text) {
    return std::string(text.empty() ? "the value is empty: give one, or leave it out" : "");
  };
  return CLI::Validator(refusal, "");
}

CLI::Validator not_standard_output() {
  const auto refusal = [](const std::string& text) {
    return std::string(text == "-" ? "it cannot go to standard output, which has a summary: name a file" : "");
  };
  return CLI::Validator(refusal, "");
}

}  // namespace quarrel
