// Files that a server reads while it runs or begins. `key_file`: what is read and written again reads the same.
// `settings_file`: what is taken are rows that exist, on lines that the text has.
#include <algorithm>

#include "app/serve_settings.h"
#include "app/settings_file.h"
#include "base/error.h"
#include "fuzz/targets.h"
#include "server/key_record.h"

namespace quarrel::fuzz {

void key_file(Input input) {
  std::vector<KeyRecord> keys;
  try {
    keys = read_keys(as_text(input));
  } catch (const Error&) {
    return;
  }
  const std::string written = write_keys(keys);
  require(write_keys(read_keys(written)) == written, "keys that were read can be written and read again");
}

void settings_file(Input input) {
  static const SettingRows rows = [] {
    SettingRows known;
    for (const auto& each : serve_settings()) known.rows.push_back(&each.info);
    for (const auto& each : model_settings()) known.model_rows.push_back(&each.info);
    return known;
  }();
  const std::string_view text = as_text(input);
  std::vector<FileSetting> settings;
  try {
    settings = parse_settings_file(text, "fuzzed.toml", rows);
  } catch (const Error&) {
    return;
  }
  const auto lines = 1 + std::ranges::count(text, '\n');
  for (const FileSetting& each : settings) {
    const auto& among = each.model.empty() ? rows.rows : rows.model_rows;
    require(std::ranges::find(among, each.info) != among.end(), "what is taken is a row");
    require(each.line >= 1 && each.line <= lines, "its line is one of the file's");
  }
}

}  // namespace quarrel::fuzz
