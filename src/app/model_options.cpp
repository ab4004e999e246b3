#include "app/model_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>

#include <CLI/CLI.hpp>

#include "app/progress_bar.h"
#include "app/terminal.h"
#include "app/value_checks.h"
#include "base/clock.h"
#include "base/cpu_topology.h"
#include "base/error.h"
#include "base/printable.h"

namespace quarrel {
namespace {

constexpr int kMostContext = 1 << 26;  // the scheduler's own limit

// Threads that share a processor only wait for each other.
void check_threads(int threads, Log& log) {
  const CpuTopology topology = read_cpu_topology();
  const int processors = topology.most_threads();
  if (threads > topology.thread_limit()) {
    fail(ErrorKind::usage, "--threads: {} threads are too many: this process may use {}, so the maximum is {}", threads,
         processors == 1 ? "1 processor" : fmt::format("{} processors", processors), topology.thread_limit());
  }
  if (threads > processors) {
    log.warn("{} threads on {}: more threads than processors make it slower", threads,
             processors == 1 ? "1 processor" : fmt::format("{} processors", processors));
  }
}

// A bar for loads that one would wait for, on a terminal only.
std::function<void(std::uint64_t, std::uint64_t)> load_progress() {
  if (!moves_cursor(Stream::error)) return {};
  constexpr double kPatience = 0.5;  // seconds
  return [start = Clock::now(), bar = std::shared_ptr<ProgressBar>()](std::uint64_t done, std::uint64_t total) mutable {
    if (bar == nullptr && done < total && seconds_since(start) > kPatience) bar = std::make_shared<ProgressBar>();
    if (bar == nullptr) return;
    bar->show("loading", done, total);
    if (done >= total) bar.reset();
  };
}

}  // namespace

const std::vector<ModelOptionRow>& model_option_rows() {
  using Options = ModelOptions;
  static const std::vector<ModelOptionRow> rows = {
      {"--backend",
       "NAME",
       "Where the model runs; auto: on a GPU if one can be used, and the model fits there, else on the CPU; "
       "cuda needs its module beside the program",
       built_in_backends(),
       &Options::backend,
       {"cuda"}},
      {"--device",
       "NAME[:N]",
       "In place of --backend, with a number where there are several, such as cuda:1",
       {},
       &Options::device},
      {"-t,--threads", "N", "Threads to use; 0: one per core that the process may use", {}, &Options::threads},
      {"--pin", "", "Keep each thread on a core of its own: for a machine that does nothing else", {}, &Options::pin},
      {"-c,--ctx", "N", "Tokens of context, such as 4096 or 32k; default: the model's own", {}, &Options::context},
      {"--kv", "TYPE", "Type of the KV cache: f16 or f32; default: the backend's choice", {"f16", "f32"}, &Options::kv},
      {"--activations",
       "TYPE",
       "Form of activations for quantised weights: int8x2 (hi/lo int8 split, nearly exact), int8 (coarser in prompts), "
       "auto (the split in prompts only for groups with outliers), f16 (on a GPU), f32 (elsewhere)",
       {"auto", "int8x2", "int8", "f16", "f32"},
       &Options::activations},
      {"--deterministic",
       "",
       "An answer's bits do not depend on what else is computed: slower on a GPU, always so elsewhere",
       {},
       &Options::deterministic},
      {"--no-repack",
       "",
       "Compute from the mapped file itself: loads at once and shares its memory between processes, but slower",
       {},
       &Options::no_repack},
      {"--memory-budget",
       "SIZE",
       "Memory for weights, cache and workspace together, such as 800M or 8G; experts that do not fit are read as they "
       "are needed",
       {},
       &Options::memory_budget},
      {"--expert-memory",
       "SIZE",
       "Memory for experts alone: those used least recently make room; default: all stay",
       {},
       &Options::expert_memory},
  };
  return rows;
}

void add_model_options(CLI::App& command, ModelOptions& options) {
  for (const ModelOptionRow& row : model_option_rows()) {
    CLI::Option* option = nullptr;
    if (const auto* flag = std::get_if<bool ModelOptions::*>(&row.member)) {
      option = command.add_flag(row.flags, options.*(*flag), row.help);
    } else if (const auto* number = std::get_if<int ModelOptions::*>(&row.member)) {
      option = command.add_option(row.flags, options.*(*number), row.help)->check(whole_number(0));
    } else {
      option = command.add_option(row.flags, options.*std::get<std::string ModelOptions::*>(row.member), row.help);
      if (row.choices.empty()) option->check(not_empty());
    }
    if (!row.choices.empty()) option->check(one_of(row.choices, row.understood));
    if (*row.type != '\0') option->type_name(row.type)->capture_default_str();
    option->group("Model");
  }
  command.get_option("--device")->excludes("--backend");
}

std::unique_ptr<Device> open_device(const ModelOptions& options, Log& log) {
  check_threads(options.threads, log);
  DeviceOptions device{.backend = options.backend};
  if (!options.device.empty()) device = parse_device(options.device);
  device.threads = options.threads;
  device.pin = options.pin;
  device.on_fallback = [&log](const std::string& reason) { log.warn("{}", reason); };
  return make_device(device);
}

DeviceOptions parse_device(const std::string& text) {
  const std::size_t colon = text.find(':');
  DeviceOptions options{.backend = text.substr(0, colon)};
  if (colon == std::string::npos) return options;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, options.ordinal);
  if (error != std::errc{} || stop != end || options.ordinal < 0 || options.backend != "cuda") {
    fail(ErrorKind::usage, "--device takes cpu, cuda or a GPU's number as cuda:1, but '{}' is none of them",
         printable(text));
  }
  return options;
}

ExecutorOptions executor_options(const ModelOptions& options) {
  ExecutorOptions result;
  if (!options.context.empty()) result.context = parse_count(options.context, "--ctx");
  if (result.context == 1) {
    fail(ErrorKind::usage, "--ctx: a context of 1 token has no room for an answer; the minimum is 2");
  }
  if (result.context > kMostContext) {
    fail(ErrorKind::usage, "--ctx: a context of {} tokens is too long; the maximum is {}", result.context,
         kMostContext);
  }
  if (!options.kv.empty()) result.kv_type = options.kv == "f16" ? KvType::f16 : KvType::f32;
  result.activations = options.activations == "f32"    ? ActivationPrecision::f32
                       : options.activations == "f16"  ? ActivationPrecision::f16
                       : options.activations == "int8" ? ActivationPrecision::int8
                       : options.activations == "auto" ? ActivationPrecision::outlier_groups
                                                       : ActivationPrecision::int8_split;
  if (result.activations == ActivationPrecision::f16 && options.deterministic) {
    fail(ErrorKind::usage, "--activations f16 and --deterministic exclude each other: the latter needs int8x2");
  }
  result.deterministic = options.deterministic;
  result.repack = !options.no_repack;
  result.on_load = load_progress();
  if (!options.memory_budget.empty()) result.memory_budget = parse_bytes(options.memory_budget, "--memory-budget");
  if (!options.expert_memory.empty()) result.expert_memory = parse_bytes(options.expert_memory, "--expert-memory");
  return result;
}

void warn_of_unused(const ExecutorOptions& options, const MemoryPlan& plan, Log& log) {
  if (options.expert_memory && plan.expert_weights == 0) {
    log.warn("--expert-memory has no effect: the model has no experts");
  }
}

std::string full_context_text(const MemoryPlan& plan, const ModelOptions& options, bool stored) {
  std::string text = fmt::format("the context of {} tokens is full", plan.context);
  if (plan.context >= plan.trained_context) return text;
  if (!options.context.empty()) {
    text += fmt::format(" (--ctx {}", options.context);
  } else if (stored) {
    text += " (the store's num_ctx; --ctx changes it";
  } else if (!options.memory_budget.empty()) {
    text += fmt::format(" (--memory-budget {} has room for no more", options.memory_budget);
  } else {
    text += " (memory has room for no more";
  }
  return text + fmt::format("; the model was trained for {})", plan.trained_context);
}

std::uint64_t parse_bytes(const std::string& text, const char* option) {
  const auto refuse = [&](const char* why) {
    fail(ErrorKind::usage, "{} takes a size such as 800M, 8G or 1.5GiB, but '{}' {}", option, printable(text), why);
  };
  double value = 0.0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (error != std::errc{}) refuse("is not one");
  std::string unit(stop, end);
  std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (const char* tail : {"IB", "B"}) {
    if (unit.ends_with(tail)) {
      unit.resize(unit.size() - std::string_view(tail).size());
      break;
    }
  }
  constexpr std::string_view kUnits = "KMGT";
  double factor = 1.0;
  if (!unit.empty()) {
    const std::size_t power = unit.size() == 1 ? kUnits.find(unit.front()) : std::string_view::npos;
    if (power == std::string_view::npos) refuse("has another unit");
    factor = std::pow(1024.0, static_cast<double>(power + 1));
  }
  const double bytes = value * factor;
  if (!(bytes >= 1.0)) refuse("is less than a byte");
  if (bytes > 1e18) refuse("is too large");
  return static_cast<std::uint64_t>(bytes);
}

int parse_count(const std::string& text, const char* option) {
  const auto refuse = [&](const char* why) {
    fail(ErrorKind::usage, "{} takes a number such as 4096, 32k or 1M, but '{}' {}", option, printable(text), why);
  };
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) refuse("is too large");
  if (error != std::errc{}) refuse("is not one");
  std::int64_t unit = 1;
  if (stop != end) {
    const char letter = *stop;
    unit = letter == 'k' || letter == 'K' ? 1024 : letter == 'm' || letter == 'M' ? 1024 * 1024 : 0;
    if (unit == 0 || stop + 1 != end) refuse("is not one");
  }
  if (value < 1) refuse("is less than 1");
  if (value > std::numeric_limits<int>::max() / unit) refuse("is too large");
  return static_cast<int>(value * unit);
}

}  // namespace quarrel
