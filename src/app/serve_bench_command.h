// `quarrel bench --serve`: its options, and the run. Used on the main thread.
#pragma once

#include <cstdint>
#include <string>

#include "app/embedding_neighbour.h"
#include "app/model_options.h"
#include "app/serve_load.h"
#include "app/terminal.h"
#include "base/log.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quarrel {

struct ServeBenchCommand {
  LoadSettings load = {};
  std::string prompt_tokens = "128";
  std::string output_tokens = "64";
  std::int32_t sequences = 0;     // 0: one a client, 64 at most
  std::int32_t cache_tokens = 0;  // 0: what as many texts of the greatest length take
  std::int32_t chunk = 0;
  bool no_prefix_cache = false;
  std::string beside;  // another model on the same device; empty: none
  NeighbourLoad neighbour = {};
};

// Each of them needs `serve`, the option that asks for this kind of measurement.
void add_serve_options(CLI::App& command, CLI::Option* serve, ServeBenchCommand& options);

// The exit code: kInterruptedExit after Ctrl-C, which ends the measurement but not the report; 1 if a request failed.
int run_serve_bench(const std::string& name, const ModelOptions& options, const ServeBenchCommand& command, bool json,
                    Log& log, const Interrupts& interrupts);

}  // namespace quarrel
