// Options that every command which runs a model shares, declared once: backend, threads, context, KV type, activations.
#pragma once

#include <memory>
#include <string>

#include "backend/create.h"
#include "engine/executor.h"

namespace CLI {
class App;
}

namespace quarrel {

struct ModelOptions {
  std::string backend = "cpu";
  int threads = 0;
  std::string context;                 // "4096", "32k"; empty: the model's own
  std::string kv;                      // "f32", "f16"; empty: the backend's default
  std::string activations = "int8x2";  // "int8x2", "int8" or "f32"
};

void add_model_options(CLI::App& command, ModelOptions& options);

// The device that the options name, its level forced by QUARREL_ISA where that is set.
std::unique_ptr<Device> open_device(const ModelOptions& options);
ExecutorOptions executor_options(const ModelOptions& options);

// "4096", "32k", "1M" to a number; throws Error(usage).
int parse_count(const std::string& text, const char* option);

}  // namespace quarrel
