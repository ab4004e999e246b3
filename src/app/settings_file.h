// A settings file (TOML) as a list of keys with values and lines. Knows nothing of what the keys mean but which rows
// there are; all of it may be hostile. Stateless.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/setting.h"

namespace quarrel {

struct FileSetting {
  const SettingInfo* info = nullptr;  // one of those that were given
  std::string model = {};             // of a row of [models."name"]: the name
  SettingValue value = {};
  int line = 0;
};

// Which rows a file may have: `rows` by their keys, and `model_rows` in each table [models."name"], where a row's key
// is without the table.
struct SettingRows {
  std::vector<const SettingInfo*> rows = {};
  std::vector<const SettingInfo*> model_rows = {};
};

// `name` is that of the file, for messages. Throws Error(usage), as a wrong flag does, with the line: not TOML, an
// unknown key (with the nearest), a value that is not what it must be.
std::vector<FileSetting> parse_settings_file(std::string_view text, std::string_view name, const SettingRows& known);

}  // namespace quarrel
