#include "app/settings_in_force.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "app/input.h"
#include "app/settings_file.h"
#include "base/error.h"
#include "base/printable.h"

namespace quarrel {
namespace {

constexpr std::size_t kMostFileBytes = 1u << 20;

SettingRows known_rows() {
  SettingRows known;
  for (const auto& row : serve_settings()) known.rows.push_back(&row.info);
  for (const auto& row : model_settings()) known.model_rows.push_back(&row.info);
  return known;
}

template <typename Target>
void apply(const std::vector<Setting<Target>>& rows, const SettingInfo* info, Target& target,
           const SettingValue& value) {
  std::ranges::find(rows, info, [](const Setting<Target>& row) { return &row.info; })->apply(target, value);
}

// A key of a TOML table: quoted where it must be.
std::string toml_key(const std::string& name) {
  const bool bare = !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  });
  return bare ? name : SettingValue(name).toml();
}

SettingValue read_text(const SettingInfo& info, std::string_view text, const std::string& source) {
  const std::optional<SettingValue> value = read_setting(info, text);
  if (!value) {
    fail(ErrorKind::usage, "{} must be {}{}", source, wanted_value(info),
         info.secret ? "" : fmt::format(", but it is '{}'", printable(text)));
  }
  return *value;
}

class Resolver {
 public:
  Resolver(const GivenSettings& given, const EnvironmentLookup& environment)
      : given_(given), environment_(environment) {
    for (const auto& row : serve_settings()) {
      SettingInForce entry{.info = &row.info, .name = setting_name(row.info)};
      if (!row.info.fallback.empty()) {
        entry.value = read_text(row.info, row.info.fallback, entry.name);
        entry.source = "default";
      }
      result_.list.push_back(std::move(entry));
    }
  }

  SettingsInForce resolve() {
    read_file();
    read_environment();
    read_flags();
    drop_device_before_backend();
    for (const SettingInForce& entry : result_.list) {
      if (entry.value) apply(serve_settings(), entry.info, result_.settings, *entry.value);
    }
    result_.list.insert(result_.list.end(), models_.begin(), models_.end());
    return std::move(result_);
  }

 private:
  void set(const SettingInfo* info, SettingValue value, std::string source, SettingOrigin origin) {
    const auto entry = std::ranges::find(result_.list, info, &SettingInForce::info);
    entry->value = std::move(value);
    entry->source = std::move(source);
    entry->origin = origin;
  }

  std::optional<std::string> named_file() const { return given_.file ? given_.file : environment_("QUARREL_CONFIG"); }

  // Empty: none is to be read.
  std::string usual_file() const {
    const std::string usual = default_settings_file(environment_);
    std::error_code error;
    return std::filesystem::exists(usual, error) ? usual : "";
  }

  void read_file() {
    const std::optional<std::string> named = named_file();
    const SettingOrigin origin = named ? SettingOrigin::named_file : SettingOrigin::standing;
    const std::string name = named ? *named : usual_file();
    if (name.empty()) return;
    for (FileSetting& each : parse_settings_file(read_input(name, kMostFileBytes), name, known_rows())) {
      std::string source = fmt::format("{}, line {}", name, each.line);
      if (each.model.empty()) {
        set(each.info, std::move(each.value), std::move(source), origin);
      } else {
        apply(model_settings(), each.info, result_.settings.models[each.model], each.value);
        models_.push_back({.info = each.info,
                           .name = fmt::format("models.{}.{}", toml_key(each.model), each.info->key),
                           .value = std::move(each.value),
                           .source = std::move(source)});
      }
    }
    result_.file = name;
  }

  // A variable that is set to nothing is as good as none.
  void read_environment() {
    for (const auto& row : serve_settings()) {
      for (const std::string& name : variables_of(row.info)) {
        const std::optional<std::string> text = environment_(name);
        if (!text || text->empty()) continue;
        set(&row.info, read_text(row.info, *text, name), name, SettingOrigin::variable);
        break;
      }
    }
  }

  void read_flags() {
    for (const auto& [info, texts] : given_.flags) {
      const std::string name = long_flag(*info);
      if (info->kind != SettingKind::texts) {
        set(info, read_text(*info, texts.back(), name), name, SettingOrigin::flag);
        continue;
      }
      const std::optional<SettingValue> value = check_setting(*info, texts);
      if (!value) fail(ErrorKind::usage, "{} must be {}", name, wanted_value(*info));
      set(info, *value, name, SettingOrigin::flag);
    }
  }

  // A device stands in place of a backend, but not of one that was named where it counts more.
  void drop_device_before_backend() {
    const auto device = std::ranges::find(result_.list, "engine.device", &SettingInForce::name);
    if (result_.origin("engine.backend") <= device->origin) return;
    device->value.reset();
    device->source.clear();
  }

  const GivenSettings& given_;
  const EnvironmentLookup& environment_;
  SettingsInForce result_;
  std::vector<SettingInForce> models_;
};

}  // namespace

std::string default_settings_file(const EnvironmentLookup& environment) {
  const std::string folder = environment("XDG_CONFIG_HOME").value_or("");
  // A relative path is to be ignored, as the standard has it.
  if (folder.starts_with('/')) return folder + "/quarrel/config.toml";
  const std::string home = environment("HOME").value_or("");
  return home.empty() ? "" : home + "/.config/quarrel/config.toml";
}

SettingOrigin SettingsInForce::origin(std::string_view name) const {
  return std::ranges::find(list, name, &SettingInForce::name)->origin;
}

SettingsInForce settings_in_force(const GivenSettings& given, const EnvironmentLookup& environment) {
  return Resolver(given, environment).resolve();
}

}  // namespace quarrel
