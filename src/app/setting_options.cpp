// The settings' flags on the command line.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include <CLI/CLI.hpp>

#include "app/settings_in_force.h"
#include "app/value_checks.h"

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

// What the settings of a server mean to a command that looks for one.
struct AddressOption {
  std::string_view key;
  const char* help;
};
constexpr std::array<AddressOption, 4> kAddressOptions = {{
    {"server.host", "Where the server is: an address or a name, or all of it as https://models.example:8443"},
    {"server.port", "The port that it listens on"},
    {"server.unix_socket",
     "The socket that it listens on, which is tried first; default: quarrel/server.sock in XDG_RUNTIME_DIR, unless a "
     "host or a port is named; none: only the port is tried"},
    {"server.api_key_file", "A file with the key that is sent; takes precedence over QUARREL_API_KEY"},
}};

void add_flag_of(CLI::App& command, GivenSettings& given, const SettingInfo& info, const std::string& help) {
  const auto take = [&given, &info](const std::vector<std::string>& texts) { given.flags.emplace_back(&info, texts); };
  CLI::Option* option = nullptr;
  if (info.kind == SettingKind::flag) {
    option = command.add_flag_callback(info.flags, [take] { take({"true"}); }, help);
  } else {
    option = command.add_option_function<std::vector<std::string>>(info.flags, take, help);
    option->allow_extra_args(false)->type_name(info.value_name);
    if (info.kind != SettingKind::texts) option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    if (!info.choices.empty()) option->check(one_of(info.choices, info.understood));
    if (!info.fallback.empty()) option->default_str(info.fallback);
  }
  option->group(group_of(info));
}

}  // namespace

void add_setting_options(CLI::App& command, GivenSettings& given) {
  add_file_option(command, given);
  for (const auto& row : serve_settings()) {
    if (!row.info.flags.empty()) add_flag_of(command, given, row.info, row.info.help);
  }
  command.get_option("--device")->excludes("--backend");
}

void add_address_options(CLI::App& command, GivenSettings& given) {
  add_file_option(command, given);
  command
      .add_option("--ca-file", given.ca_file,
                  "Where the server speaks TLS: trust the certificates in this file too, beside the system's")
      ->type_name("FILE")
      ->group("Server");
  for (const auto& row : serve_settings()) {
    const auto* found = std::ranges::find(kAddressOptions, row.info.key, &AddressOption::key);
    if (found != kAddressOptions.end()) add_flag_of(command, given, row.info, found->help);
  }
}

}  // namespace quarrel
