// The settings of `quarrel serve`: one table, from which its flags, its help, the settings file, `quarrel config` and
// the documentation's list are made. A new setting is a row here and a row in docs/server.md. Plain values, one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/longbow_flags.h"
#include "app/model_options.h"
#include "app/setting.h"
#include "server/server.h"

namespace quarrel {

// What [models."name"] says; what it does not say is as for every model.
struct ConfiguredModel {
  std::string path = {};  // of a file that is offered under this name; empty: the stores know the name
  std::optional<std::int32_t> context = {}, parallel = {}, cache_tokens = {};
  std::optional<std::chrono::milliseconds> keep_alive = {};
};

// What the rows are applied to. Most of them are fields of `serve` already; the others become some by serve_options().
struct ServeSettings {
  ServeOptions serve = {};
  ModelOptions machine = {};
  std::int32_t parallel = 0, cache_tokens = 0;
  std::string api_key_file = {};
  LongbowFlags longbow = {};
  std::chrono::milliseconds drain = {};
  std::map<std::string, ConfiguredModel> models = {};
};

const std::vector<Setting<ServeSettings>>& serve_settings();
// The rows of [models."name"]; keys without the table, neither flags nor variables.
const std::vector<Setting<ConfiguredModel>>& model_settings();

// Where a server listens and commands look for one if the settings say nothing; empty: nowhere.
std::string default_unix_socket();

// What a server is made with. Throws Error(usage) for a value that means nothing, and what reading the key's file
// throws.
ServeOptions serve_options(const ServeSettings& settings);

}  // namespace quarrel
