// What can be set about a program that runs for long, as data: a row a setting with its name in the file, its
// environment variable, its flag, what its value may be, and what it means. Help, documentation and reading are made
// from the rows. Plain values, one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace quarrel {

enum class SettingKind : std::uint8_t {
  text,
  texts,    // a list; in an environment variable divided by commas
  choice,   // one of `choices`
  flag,     // true or false
  integer,  // 4096, or as a text "32k", "1M" in units of 1024
  number,
  bytes,  // "800M", "8G", 1000000
};

class SettingValue {
 public:
  using Any = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>>;
  SettingValue() = default;
  explicit SettingValue(Any value) : value_(std::move(value)) {}

  // Of the kind that the row has.
  bool flag() const { return std::get<bool>(value_); }
  std::int64_t integer() const { return std::get<std::int64_t>(value_); }
  double number() const { return std::get<double>(value_); }
  const std::string& text() const { return std::get<std::string>(value_); }
  const std::vector<std::string>& texts() const { return std::get<std::vector<std::string>>(value_); }
  // A number of seconds; below zero all are alike.
  std::chrono::milliseconds seconds() const;

  const Any& any() const noexcept { return value_; }
  // As a TOML file has it.
  std::string toml() const;

 private:
  Any value_;
};

struct SettingInfo {
  std::string key = {};    // in the file, with its table: "server.port"; empty: not in a file
  std::string flags = {};  // "--port", "-t,--threads"; empty: none
  // Environment variables, the first that is set counts. Empty: QUARREL_ and the flag's name in capitals.
  std::vector<std::string> variables = {};
  SettingKind kind = SettingKind::text;
  double least = 0.0, most = 0.0;  // of integers, numbers and bytes
  std::vector<std::string> choices = {};
  std::vector<std::string> understood = {};  // choices that are not offered: what takes them says why not
  std::string value_name = {};               // in the help: "N", "SECONDS"
  std::string fallback = {};                 // the default as a text; empty: it is not set
  // What is in force where it is not set, if that depends on who runs the program; empty: nothing is. It is shown and
  // never written into a settings file: where it was meant, it may be missing.
  std::string (*usual)() = nullptr;
  bool secret = false;  // never shown
  std::string help = {};
};

// A row, and what it does to what is being set.
template <typename Target>
struct Setting {
  SettingInfo info;
  std::function<void(Target& target, const SettingValue& value)> apply;
};

// "--threads" of "-t,--threads"; empty if there is none.
std::string long_flag(const SettingInfo& info);
// Those of the row, or the one that its flag has by rule.
std::vector<std::string> variables_of(const SettingInfo& info);
// "a whole number from 0 to 65535": what a value must be.
std::string wanted_value(const SettingInfo& info);
// How the user knows it: its key, else its first variable.
std::string setting_name(const SettingInfo& info);

// A value from text, as flags and environment variables have it; none if it is not one, or out of bounds.
std::optional<SettingValue> read_setting(const SettingInfo& info, std::string_view text);
// A value that came typed, for the same bounds.
std::optional<SettingValue> check_setting(const SettingInfo& info, SettingValue::Any value);

}  // namespace quarrel
