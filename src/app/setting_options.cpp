// The settings' flags on the command line.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include <CLI/CLI.hpp>

#include "app/settings_in_force.h"

namespace quarrel {
namespace {

std::string group_of(const SettingInfo& info) {
  if (info.key.starts_with("limits.")) return "Limits";
  if (info.key.starts_with("engine.")) return "Model";
  return "Server";
}

void add_file_option(CLI::App& command, GivenSettings& given) {
  command
      .add_option("--config", given.file,
                  "Settings file; default: QUARREL_CONFIG, or quarrel/config.toml in XDG_CONFIG_HOME or ~/.config")
      ->type_name("FILE")
      ->group("Server");
}

void add_flag_of(CLI::App& command, GivenSettings& given, const SettingInfo& info) {
  const auto take = [&given, &info](const std::vector<std::string>& texts) { given.flags.emplace_back(&info, texts); };
  CLI::Option* option = nullptr;
  if (info.kind == SettingKind::flag) {
    option = command.add_flag_callback(info.flags, [take] { take({"true"}); }, info.help);
  } else {
    option = command.add_option_function<std::vector<std::string>>(info.flags, take, info.help);
    option->allow_extra_args(false)->type_name(info.value_name);
    if (info.kind != SettingKind::texts) option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    if (!info.choices.empty()) option->check(CLI::IsMember(info.choices));
    if (!info.fallback.empty()) option->default_str(info.fallback);
  }
  option->group(group_of(info));
}

}  // namespace

void add_setting_options(CLI::App& command, GivenSettings& given) {
  add_file_option(command, given);
  for (const auto& row : serve_settings()) {
    if (!row.info.flags.empty()) add_flag_of(command, given, row.info);
  }
}

void add_address_options(CLI::App& command, GivenSettings& given) {
  constexpr std::array<std::string_view, 4> kAddress = {"server.host", "server.port", "server.unix_socket",
                                                        "server.api_key_file"};
  add_file_option(command, given);
  command
      .add_option("--ca-file", given.ca_file,
                  "Where the server speaks TLS: trust the certificates in this file too, beside the system's")
      ->type_name("FILE")
      ->group("Server");
  for (const auto& row : serve_settings()) {
    if (std::ranges::find(kAddress, row.info.key) != kAddress.end()) add_flag_of(command, given, row.info);
  }
}

}  // namespace quarrel
