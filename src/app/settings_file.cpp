#include "app/settings_file.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "app/toml_text.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"

namespace quarrel {
namespace {

constexpr std::string_view kModels = "models";

class FileReader {
 public:
  FileReader(std::string_view name, const SettingRows& known) : name_(name), known_(known) {}

  std::vector<FileSetting> read(const toml::table& root) {
    for (const auto& [key, node] : root) {
      if (key.str() == kModels) {
        read_models(node);
      } else if (const toml::table* table = node.as_table(); table != nullptr && has_table(key.str())) {
        for (const auto& [inner, value] : *table) {
          add(known_.rows, fmt::format("{}.{}", key.str(), inner.str()), "", value);
        }
      } else {
        add(known_.rows, std::string(key.str()), "", node);
      }
    }
    return std::move(settings_);
  }

 private:
  [[noreturn]] void refuse(const toml::node& node, std::string_view why) const {
    fail(ErrorKind::usage, "{}, line {}: {}", printable(name_, 256), node.source().begin.line, why);
  }

  bool has_table(std::string_view name) const {
    return std::ranges::any_of(known_.rows, [&](const SettingInfo* row) {
      return row->key.size() > name.size() && row->key.starts_with(name) && row->key[name.size()] == '.';
    });
  }

  void read_models(const toml::node& node) {
    if (!node.is_table()) refuse(node, "'models' must hold a table for each model: [models.\"name\"]");
    for (const auto& [model, table] : *node.as_table()) {
      if (model.str().empty()) refuse(table, "a model has a name: [models.\"name\"]");
      if (!table.is_table()) {
        refuse(table, fmt::format("there is a table for each model: [models.\"name\"], but '{}' is none",
                                  printable(model.str())));
      }
      for (const auto& [key, value] : *table.as_table()) {
        add(known_.model_rows, std::string(key.str()), std::string(model.str()), value);
      }
    }
  }

  void add(const std::vector<const SettingInfo*>& rows, const std::string& key, const std::string& model,
           const toml::node& node) {
    const auto row = std::ranges::find(rows, key, &SettingInfo::key);
    if (row == rows.end()) refuse_key(rows, key, node);
    const std::optional<SettingValue> value = value_of(**row, node);
    if (!value) refuse(node, fmt::format("'{}' must be {}", key, wanted_value(**row)));
    settings_.push_back(
        {.info = *row, .model = model, .value = *value, .line = static_cast<int>(node.source().begin.line)});
  }

  // The nearest by its whole name, else the one that another table has under this name.
  [[noreturn]] void refuse_key(const std::vector<const SettingInfo*>& rows, const std::string& key,
                               const toml::node& node) const {
    std::vector<std::string> names;
    for (const SettingInfo* row : rows) {
      if (row->key.empty()) continue;
      names.push_back(node.is_table() ? row->key.substr(0, row->key.find('.')) : row->key);
    }
    std::vector<std::string> near = nearest(key, names, 1);
    const std::string last = key.substr(key.rfind('.') + 1);
    for (const std::string& name : names) {
      if (name.ends_with("." + last)) near = {name};
    }
    refuse(node, fmt::format("there is no setting '{}'{}", printable(key),
                             near.empty() ? "; `quarrel config` lists those that there are"
                                          : fmt::format("; did you mean '{}'?", near.front())));
  }

  static std::optional<SettingValue> value_of(const SettingInfo& info, const toml::node& node) {
    if (const auto truth = node.value_exact<bool>()) return check_setting(info, *truth);
    if (const auto whole = node.value_exact<std::int64_t>()) return check_setting(info, *whole);
    if (const auto real = node.value_exact<double>()) return check_setting(info, *real);
    if (const auto text = node.value_exact<std::string>()) return check_setting(info, *text);
    if (!node.is_array()) return std::nullopt;
    std::vector<std::string> texts;
    for (const toml::node& each : *node.as_array()) {
      const auto text = each.value_exact<std::string>();
      if (!text) return std::nullopt;
      texts.push_back(*text);
    }
    return check_setting(info, std::move(texts));
  }

  std::string_view name_;
  const SettingRows& known_;
  std::vector<FileSetting> settings_;
};

}  // namespace

std::vector<FileSetting> parse_settings_file(std::string_view text, std::string_view name, const SettingRows& known) {
  toml::table root;
  try {
    root = parse_toml(text, name);
  } catch (const Error& error) {
    fail(ErrorKind::usage, "{}", error.what());
  }
  return FileReader(name, known).read(root);
}

}  // namespace quarrel
