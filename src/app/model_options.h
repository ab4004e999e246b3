// Options that every command which runs a model shares, declared once: backend and device, threads, context, KV type,
// activations, memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "backend/create.h"
#include "base/log.h"
#include "engine/executor.h"

namespace CLI {
class App;
}

namespace quarrel {

struct ModelOptions {
  std::string backend = "cpu";
  std::string device;  // "cpu", "cuda", "cuda:1"; empty: the backend's first
  int threads = 0;
  bool pin = false;
  std::string context;               // "4096", "32k"; empty: the model's own
  std::string kv;                    // "f32", "f16"; empty: the backend's default
  std::string activations = "auto";  // "auto", "int8x2", "int8" or "f32"
  bool deterministic = false;
  bool no_repack = false;
  std::string memory_budget;  // "8G"; empty: what the machine has
  std::string expert_memory;  // "4G"; empty: all experts, or what the budget leaves
};

// One of them as the command line, and the settings of `serve`, have it.
struct ModelOptionRow {
  const char* flags;
  const char* type;  // how the help calls its value; empty for a flag
  std::string help;
  std::vector<std::string> choices;  // empty: any value
  std::variant<std::string ModelOptions::*, int ModelOptions::*, bool ModelOptions::*> member;
  std::vector<std::string> understood = {};  // not offered: what takes them says why not
};
const std::vector<ModelOptionRow>& model_option_rows();
void add_model_options(CLI::App& command, ModelOptions& options);

// The device that the options name; `log` hears why it is another one than was hoped for, and of more threads than
// processors. Throws Error(usage) for more than any use.
std::unique_ptr<Device> open_device(const ModelOptions& options, Log& log);
// "cuda:1" to a backend and which of its devices; throws Error(usage).
DeviceOptions parse_device(const std::string& text);
ExecutorOptions executor_options(const ModelOptions& options);
// Tells `log` of what was asked for and has no effect on this model.
void warn_of_unused(const ExecutorOptions& options, const MemoryPlan& plan, Log& log);

// A sentence: that the context is full, what made it shorter than the model's own if something did, and what to do.
// `stored`: the store has a length, which holds unless the options name another.
std::string full_context_text(const MemoryPlan& plan, const ModelOptions& options, bool stored);

// "4096", "32k", "1M" to a number; throws Error(usage).
int parse_count(const std::string& text, const char* option);
// "800M", "8G", "1.5GiB", "1000000" to bytes, units of 1024; throws Error(usage).
std::uint64_t parse_bytes(const std::string& text, const char* option);

}  // namespace quarrel
