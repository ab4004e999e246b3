// Where the settings of `serve` come from: defaults, a file, the environment, flags, each overriding the one before;
// and what is in force in the end, with the place it comes from. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/serve_settings.h"

namespace CLI {
class App;
}

namespace quarrel {

// What the command line said.
struct GivenSettings {
  std::optional<std::string> file = {};  // --config
  std::vector<std::pair<const SettingInfo*, std::vector<std::string>>> flags = {};
  std::string ca_file = {};  // --ca-file: certificates that a server may prove itself by, beside the system's
};

// `--config` and a flag for every row that has one.
void add_setting_options(CLI::App& command, GivenSettings& given);
// `--config` and the flags of those settings that say where a server is: for commands that talk to one.
void add_address_options(CLI::App& command, GivenSettings& given);

// Who said it, in the order in which they count. The usual file speaks of the server that this user has, as the
// defaults do; one that was named may be another's.
enum class SettingOrigin : std::uint8_t { standing, named_file, variable, flag };

struct SettingInForce {
  const SettingInfo* info = nullptr;
  std::string name = {};  // "server.port", "models.\"toy\".keep_alive", "QUARREL_API_KEY"
  std::optional<SettingValue> value = {};
  std::string source = {};  // "default", "FILE, line 3", "QUARREL_PORT", "--port"; empty: it is not set
  SettingOrigin origin = SettingOrigin::standing;
};

struct SettingsInForce {
  std::string file = {};  // that was read; empty: there is none
  std::vector<SettingInForce> list = {};
  ServeSettings settings = {};

  SettingOrigin origin(std::string_view name) const;  // of a setting that there is
};

using EnvironmentLookup = std::function<std::optional<std::string>(std::string_view name)>;

// Throws Error: usage for a wrong value and for whatever else is wrong with the file, not_found for a file that was
// named and is not there.
SettingsInForce settings_in_force(const GivenSettings& given, const EnvironmentLookup& environment);

// Where the file is if nobody names one: in XDG_CONFIG_HOME or ~/.config; empty where there is no home.
std::string default_settings_file(const EnvironmentLookup& environment);

}  // namespace quarrel
