#include "app/setting.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

#include "app/model_options.h"
#include "base/error.h"

namespace quarrel {
namespace {

constexpr std::size_t kMostText = 4096;
constexpr std::size_t kMostTexts = 1000;

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

bool usable_text(std::string_view text) {
  return text.size() <= kMostText && std::ranges::none_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

std::optional<double> parse_double(std::string_view text) {
  double value = 0.0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

// With units of 1024 where there are any.
std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{}) return std::nullopt;
  const std::string_view unit(stop, end);
  if (unit.empty()) return value;
  const std::int64_t factor = unit == "k" || unit == "K" ? 1024 : unit == "m" || unit == "M" ? 1024 * 1024 : 0;
  constexpr std::int64_t kMost = std::int64_t{1} << 42;
  if (factor == 0 || value > kMost || value < -kMost) return std::nullopt;
  return value * factor;
}

std::optional<SettingValue> parse_size(const SettingInfo& info, std::string_view text) {
  try {
    return check_setting(info, static_cast<std::int64_t>(parse_bytes(std::string(text), "")));
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<std::string> divided(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    if (!part.empty()) parts.emplace_back(part);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

bool parse_flag(std::string_view text, bool& value) {
  value = text == "1" || text == "true" || text == "on" || text == "yes";
  return value || text == "0" || text == "false" || text == "off" || text == "no";
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::chrono::milliseconds SettingValue::seconds() const {
  const double value = number();
  return std::chrono::milliseconds(value < 0.0 ? -1 : static_cast<std::int64_t>(std::ceil(value * 1000.0)));
}

std::string SettingValue::toml() const {
  if (const auto* truth = std::get_if<bool>(&value_)) return *truth ? "true" : "false";
  if (const auto* whole = std::get_if<std::int64_t>(&value_)) return fmt::format("{}", *whole);
  if (const auto* real = std::get_if<double>(&value_)) return fmt::format("{}", *real);
  if (const auto* text = std::get_if<std::string>(&value_)) return quoted(*text);
  std::vector<std::string> parts;
  for (const std::string& each : texts()) parts.push_back(quoted(each));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

std::string long_flag(const SettingInfo& info) {
  const std::size_t begin = info.flags.find("--");
  return begin == std::string::npos ? "" : info.flags.substr(begin, info.flags.find(',', begin) - begin);
}

std::vector<std::string> variables_of(const SettingInfo& info) {
  if (!info.variables.empty() || info.flags.empty()) return info.variables;
  std::string name = "QUARREL_" + long_flag(info).substr(2);
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
  return {name};
}

std::string setting_name(const SettingInfo& info) { return info.key.empty() ? variables_of(info).front() : info.key; }

std::string wanted_value(const SettingInfo& info) {
  switch (info.kind) {
    case SettingKind::text: return fmt::format("a text of at most {} bytes without control characters", kMostText);
    case SettingKind::texts: return "a list of texts";
    case SettingKind::choice: return fmt::format("one of {}", fmt::join(info.choices, ", "));
    case SettingKind::flag: return "true or false";
    case SettingKind::integer: return fmt::format("a whole number from {} to {}", info.least, info.most);
    case SettingKind::number: return fmt::format("a number from {} to {}", info.least, info.most);
    case SettingKind::bytes: return "a size such as 800M or 8G";
  }
  return "something else";
}

std::optional<SettingValue> read_setting(const SettingInfo& info, std::string_view text) {
  switch (info.kind) {
    case SettingKind::text:
    case SettingKind::choice: return check_setting(info, std::string(text));
    case SettingKind::texts: return check_setting(info, divided(text));
    case SettingKind::flag: {
      bool value = false;
      if (!parse_flag(text, value)) return std::nullopt;
      return SettingValue(value);
    }
    case SettingKind::integer: {
      const std::optional<std::int64_t> value = parse_integer(text);
      return value ? check_setting(info, *value) : std::nullopt;
    }
    case SettingKind::number: {
      const std::optional<double> value = parse_double(text);
      return value ? check_setting(info, *value) : std::nullopt;
    }
    case SettingKind::bytes: return parse_size(info, text);
  }
  return std::nullopt;
}

std::optional<SettingValue> check_setting(const SettingInfo& info, SettingValue::Any value) {
  const auto bounded = [&](double number) { return number >= info.least && number <= info.most; };
  bool usable = false;
  switch (info.kind) {
    case SettingKind::text:
      usable = std::holds_alternative<std::string>(value) && usable_text(std::get<std::string>(value));
      break;
    case SettingKind::choice:
      usable = std::holds_alternative<std::string>(value) && (contains(info.choices, std::get<std::string>(value)) ||
                                                              contains(info.understood, std::get<std::string>(value)));
      break;
    case SettingKind::texts: {
      const auto* list = std::get_if<std::vector<std::string>>(&value);
      usable = list != nullptr && list->size() <= kMostTexts && std::ranges::all_of(*list, usable_text);
      break;
    }
    case SettingKind::flag: usable = std::holds_alternative<bool>(value); break;
    case SettingKind::number:
      if (const auto* whole = std::get_if<std::int64_t>(&value)) value = static_cast<double>(*whole);
      usable = std::holds_alternative<double>(value) && bounded(std::get<double>(value));
      break;
    case SettingKind::integer:
    case SettingKind::bytes:
      if (const auto* text = std::get_if<std::string>(&value)) return read_setting(info, *text);
      usable =
          std::holds_alternative<std::int64_t>(value) && bounded(static_cast<double>(std::get<std::int64_t>(value)));
      break;
  }
  if (!usable) return std::nullopt;
  return SettingValue(std::move(value));
}

}  // namespace quarrel
