// quarrel config: the settings that `quarrel serve` would have, and where each comes from.

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/input.h"
#include "app/settings_in_force.h"
#include "app/terminal.h"
#include "base/environment.h"

namespace quarrel {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHidden = "(hidden)";

struct ConfigOptions {
  GivenSettings given;
  bool json = false;
};

// What is in force though nobody set it; empty: nothing is.
std::string usual_of(const SettingInForce& entry) {
  return entry.value || entry.info->usual == nullptr ? "" : entry.info->usual();
}

Json value_json(const SettingInForce& entry) {
  if (const std::string usual = usual_of(entry); !usual.empty()) return usual;
  if (!entry.value) return nullptr;
  if (entry.info->secret) return kHidden;
  return std::visit([](const auto& value) { return Json(value); }, entry.value->any());
}

std::string source_of(const SettingInForce& entry) { return usual_of(entry).empty() ? entry.source : "default"; }

std::string config_json(const SettingsInForce& in_force) {
  Json list = Json::array();
  for (const SettingInForce& entry : in_force.list) {
    list.push_back({{"name", entry.name},
                    {"value", value_json(entry)},
                    {"source", source_of(entry).empty() ? Json() : Json(source_of(entry))},
                    {"flag", long_flag(*entry.info)},
                    {"variables", variables_of(*entry.info)},
                    {"help", entry.info->help}});
  }
  return dump_json({{"file", in_force.file.empty() ? Json() : Json(in_force.file)}, {"settings", list}}) + "\n";
}

// A settings file that says the same, with a remark on each line.
std::string config_text(const SettingsInForce& in_force) {
  std::string text, table;
  for (const SettingInForce& entry : in_force.list) {
    if (entry.info->key.empty()) {
      if (entry.value) text += fmt::format("# {} is set and not shown\n", entry.name);
      continue;
    }
    const std::size_t dot = entry.name.rfind('.');
    if (const std::string next = entry.name.substr(0, dot); next != table) {
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", next);
      table = next;
    }
    const std::string key = entry.name.substr(dot + 1);
    const std::string usual = usual_of(entry);
    const std::string line = entry.value     ? fmt::format("{} = {}", key, entry.value->toml())
                             : usual.empty() ? "# " + key
                                             : fmt::format("# {} = {}", key, SettingValue(usual).toml());
    const std::string source = source_of(entry);
    text += fmt::format("{:<35} # {}\n", line, source.empty() ? "not set" : source);
  }
  return text;
}

int show(const ConfigOptions& options) {
  const SettingsInForce in_force = settings_in_force(options.given, environment);
  write_output(options.json ? config_json(in_force) : config_text(in_force));
  if (!options.json && in_force.file.empty()) {
    const std::string usual = default_settings_file(environment);
    if (!usual.empty()) write_error(fmt::format("There is no settings file; {} would be read.\n", usual));
  }
  return 0;
}

}  // namespace

void add_config(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("config", "Show the settings that serve has, and where each comes from");
  auto options = std::make_shared<ConfigOptions>();
  command->add_flag("--json", options->json, "A JSON object with names, values, sources, flags and variables");
  add_setting_options(*command, options->given);
  command->footer(
      "What is printed can be kept as a settings file. Takes the flags of serve, to see what they would\n"
      "change.\n\nExamples:\n  quarrel config\n  quarrel config --json\n"
      "  quarrel config > ~/.config/quarrel/config.toml");
  command->callback([options, &context] { context.run = [options] { return show(*options); }; });
}

}  // namespace quarrel
