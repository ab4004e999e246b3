// What `bench --serve` measured, for programs and for people.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "app/serve_bench.h"

namespace quarrel {

// The load, and what it ran on.
struct ServeBenchSettings {
  LoadSettings load = {};
  std::int32_t sequences = 0;
  std::int64_t cache_tokens = 0;
  std::int32_t chunk = 0;  // 0: the executor's batch
  bool prefix_cache = true;
};

nlohmann::ordered_json settings_json(const ServeBenchSettings& settings);
nlohmann::ordered_json result_json(const ServeResult& result);

// Two lines that say what the load is, and the tables of what came of it.
std::string settings_text(const ServeBenchSettings& settings);
std::string result_text(const ServeResult& result);

}  // namespace quarrel
