// `quarrel bench`: tokens a second, and which share of what the machine could do that is. With `--serve` the engine
// under the load of many clients instead (serve_bench_command.h).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/input.h"
#include "app/machine_speed.h"
#include "app/model_options.h"
#include "app/observation_text.h"
#include "app/op_profile.h"
#include "app/progress_bar.h"
#include "app/serve_bench_command.h"
#include "app/speed_bench.h"
#include "app/text_table.h"
#include "app/token_list.h"
#include "app/value_checks.h"
#include "app/workbench.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/thread_pool.h"
#include "engine/placement.h"
#include "model/architectures.h"

namespace quarrel {
namespace {

constexpr std::int32_t kShortContext = 1024;
constexpr std::int64_t kSpareTokens = 64;  // a sequence

struct BenchCommand {
  std::string model;
  ModelOptions options;
  SpeedSettings settings;
  ServeBenchCommand serving;
  bool serve = false;
  bool profile = false;
  bool json = false;
  std::vector<std::string> compare;
};

// What --compare takes.
constexpr const char* kOnTheCpu = "cpu";
constexpr const char* kDeterministic = "deterministic";

// The same measured in another way.
struct Comparison {
  std::string way;
  std::string device;
  std::optional<Speed> prefill, decode;
};

struct BenchReport {
  std::string device;
  std::string activations;
  double load_seconds = 0.0;
  std::optional<DeviceSpeed> gpu;  // what a GPU can do; none on the host
  MachineSpeed machine;
  std::optional<Speed> without_graphs;  // decode, where a GPU was profiled
  std::vector<Comparison> comparisons;
  ModelCost cost;
  std::optional<Speed> prefill, decode;
};

double flops_per_s(const Speed& prefill, const ModelCost& cost) {
  return prefill.tokens_per_s.mean() * cost.flops_per_token();
}

// These are asked for parts that were measured.
PrefillSpeed prefill_speed(const BenchReport& report) {
  return {.tokens_per_s = report.prefill->tokens_per_s.mean(), .macs_per_token = report.cost.macs_per_token};
}

DecodeSpeed decode_speed(const BenchReport& report, std::int32_t batch) {
  const double step_bytes = report.cost.bytes_per_step();
  return {.bytes_per_s = report.decode->tokens_per_s.mean() / batch * step_bytes, .step_bytes = step_bytes};
}

OpProfile prefill_profile(const BenchReport& report) {
  return profile_of(report.prefill->profile, report.machine, report.cost.macs_per_token.fastest_floats());
}

OpProfile decode_profile(const BenchReport& report) { return profile_of(report.decode->profile, report.machine); }

// Only as much context as the benchmark fills, and not more than the model was trained for unless the user insists.
std::int32_t needed_context(const BenchCommand& command, const GgufFile& file, std::int32_t given) {
  const SpeedSettings& settings = command.settings;
  const std::int64_t needed = bench_context(settings);
  const std::int32_t trained = read_spec(file).context_length;
  check_fits_context(needed, given > 0 ? given : trained, ErrorKind::usage);
  // A place for the first token after the prompt, too.
  return given > 0 ? given : static_cast<std::int32_t>(std::min<std::int64_t>(needed + 1, trained));
}

// ---- JSON ----

nlohmann::ordered_json machine_json(const MachineSpeed& machine) {
  nlohmann::ordered_json value{{"threads", machine.threads},
                               {"read_bytes_per_s", machine.read.bytes_per_s},
                               {"read_buffer_bytes", machine.read.buffer_bytes},
                               {"read_method", machine.read.method},
                               {"f32_fma_flops_per_s", 2.0 * machine.f32.macs_per_s},
                               {"f32_fma_instructions", machine.f32.instructions}};
  const auto add = [&](const char* name, const std::optional<ArithmeticSpeed>& speed) {
    value[name] = nullptr;
    if (speed) value[name] = {{"macs_per_s", speed->macs_per_s}, {"instructions", speed->instructions}};
  };
  add("integer", machine.integer);
  add("int8_tiles", machine.int8_tiles);
  add("bf16_tiles", machine.bf16_tiles);
  return value;
}

nlohmann::ordered_json gpu_json(const DeviceSpeed& speed) {
  return {{"copy_bytes_per_s", speed.copy_bytes_per_s},
          {"gemm_f16_flops_per_s", speed.gemm_flops_per_s},
          {"peak_bytes_per_s", speed.peak_bytes_per_s}};
}

// What only a GPU's decode has.
void put_gpu_figures(nlohmann::ordered_json& decode, const BenchReport& report) {
  if (!report.gpu) return;
  auto computed = nlohmann::ordered_json::array();
  for (const ScaledSpeed& other : scaled_to_others(report.decode->tokens_per_s.mean(), *report.gpu)) {
    computed.push_back(
        {{"device", other.device}, {"bytes_per_s", other.bytes_per_s}, {"tokens_per_s", other.tokens_per_s}});
  }
  decode["computed_for"] = computed;
  if (report.without_graphs) decode["tokens_per_s_without_graphs"] = report.without_graphs->tokens_per_s.mean();
}

// `profile` null: none was asked for.
nlohmann::ordered_json speed_json(const Speed& speed, std::int64_t tokens, const OpProfile* profile,
                                  const MachineSpeed& machine) {
  nlohmann::ordered_json value{{"tokens", tokens},
                               {"tokens_per_s", speed.tokens_per_s.mean()},
                               {"tokens_per_s_deviation", speed.tokens_per_s.deviation()},
                               {"seconds", speed.seconds}};
  if (profile != nullptr) {
    value["profile"] = profile_json(*profile, machine);
    value["parts"] = parts_json(*profile);
    put_share(value, "share_of_limit", profile->all.of_limit(), excess_reason(*profile, profile->all, machine));
  }
  if (speed.watch.has_seen()) value["state"] = speed.watch.json();
  return value;
}

nlohmann::ordered_json comparison_json(const Comparison& comparison) {
  nlohmann::ordered_json value{{"way", comparison.way}, {"device", comparison.device}};
  if (comparison.prefill) value["prefill_tokens_per_s"] = comparison.prefill->tokens_per_s.mean();
  if (comparison.decode) value["decode_tokens_per_s"] = comparison.decode->tokens_per_s.mean();
  return value;
}

nlohmann::ordered_json to_json(const BenchReport& report, const BenchCommand& command, const Executor& executor) {
  const SpeedSettings& settings = command.settings;
  nlohmann::ordered_json value{{"model",
                                {{"name", executor.spec().name},
                                 {"path", executor.file().path().string()},
                                 {"architecture", executor.spec().architecture},
                                 {"parameters", parameter_count(executor.file())},
                                 {"file_bytes", executor.file().file_bytes()}}},
                               {"device", {{"backend", executor.backend().name()}, {"description", report.device}}},
                               {"settings",
                                {{"prompt", settings.prompt},
                                 {"generated", settings.generated},
                                 {"depth", settings.depth},
                                 {"batch", settings.batch},
                                 {"repeat", settings.repeat},
                                 {"kv", name_of(executor.kv_type())},
                                 {"activations", report.activations}}},
                               {"load_seconds", report.load_seconds},
                               {"machine", nullptr},
                               {"prefill", nullptr},
                               {"decode", nullptr}};
  value["machine"] = report.gpu ? gpu_json(*report.gpu) : machine_json(report.machine);
  if (report.prefill) {
    const OpProfile profile = prefill_profile(report);
    auto& prefill = value["prefill"] =
        speed_json(*report.prefill, settings.prompt, command.profile ? &profile : nullptr, report.machine);
    prefill["flops_per_token"] = report.cost.flops_per_token();
    prefill["flops_per_s"] = flops_per_s(*report.prefill, report.cost);
    put_prefill_shares(prefill, prefill_speed(report), report.machine);
  }
  if (report.decode) {
    const OpProfile profile = decode_profile(report);
    const DecodeSpeed speed = decode_speed(report, settings.batch);
    auto& decode = value["decode"] = speed_json(*report.decode, std::int64_t{settings.generated} * settings.batch,
                                                command.profile ? &profile : nullptr, report.machine);
    decode["weight_bytes_per_step"] = report.cost.weight_bytes_per_step;
    decode["cache_bytes_per_step"] = report.cost.cache_bytes_per_step;
    decode["bytes_per_s"] = speed.bytes_per_s;
    put_decode_share(decode, speed, report.machine);
    put_gpu_figures(decode, report);
  }
  for (const Comparison& comparison : report.comparisons) value["comparisons"].push_back(comparison_json(comparison));
  return value;
}

// ---- A table for people ----

std::string speed_text(const BenchReport& report, const SpeedSettings& settings) {
  using Side = TextTable::Side;
  TextTable table({{"", Side::left}, {"tokens/s", Side::right}, {"±", Side::right}, {"of the machine", Side::left}});
  const auto add = [&](std::string name, const Speed& speed, std::string machine) {
    table.add_row({std::move(name), fmt::format("{:.2f}", speed.tokens_per_s.mean()),
                   fmt::format("{:.2f}", speed.tokens_per_s.deviation()), std::move(machine)});
  };
  std::string excess;  // shares above 100 % and why
  const auto add_share = [&](std::string& machine, const ShareText& text) {
    machine += ", " + text.share;
    excess += text.excess;
  };
  if (report.prefill) {
    std::string machine = fmt::format("{:.1f} GFLOP/s", flops_per_s(*report.prefill, report.cost) / 1e9);
    add_share(machine, prefill_share(prefill_speed(report), report.machine));
    add(fmt::format("prefill of {}", settings.prompt), *report.prefill, machine);
  }
  if (report.decode) {
    const DecodeSpeed speed = decode_speed(report, settings.batch);
    std::string machine = fmt::format("{:.1f} GB/s", speed.bytes_per_s / 1e9);
    add_share(machine, decode_share(speed, report.machine));
    add(fmt::format("decode of {} for {} at depth {}", settings.generated, settings.batch, settings.depth),
        *report.decode, machine);
  }
  const auto compare = [&](const char* what, const std::string& way, const std::optional<Speed>& other,
                           const std::optional<Speed>& speed) {
    if (!other) return;
    const double share = quotient(other->tokens_per_s.mean(), speed->tokens_per_s.mean());
    add(fmt::format("  {} {}", what, way == kOnTheCpu ? "on the CPU" : "with --deterministic"), *other,
        share < 1 ? fmt::format("{:.4f} times that", share) : fmt::format("{:.1f} times that", share));
  };
  for (const Comparison& comparison : report.comparisons) {
    compare("prefill", comparison.way, comparison.prefill, report.prefill);
    compare("decode", comparison.way, comparison.decode, report.decode);
  }
  return table.text() + excess;
}

std::string machine_text(const MachineSpeed& machine) {
  std::string text =
      fmt::format("machine  reads {:.1f} GB/s ({}), F32 FMA peak {:.1f} GFLOP/s ({}, {} thread{})\n",
                  machine.read.bytes_per_s / 1e9, machine.read.method, 2.0 * machine.f32.macs_per_s / 1e9,
                  machine.f32.instructions, machine.threads, machine.threads == 1 ? "" : "s");
  std::string more;
  for (const auto* speed : {&machine.integer, &machine.int8_tiles, &machine.bf16_tiles}) {
    if (!speed->has_value()) continue;
    more += fmt::format("{}{} {:.1f} GMAC/s", more.empty() ? "" : ", ", speed->value().instructions,
                        speed->value().macs_per_s / 1e9);
  }
  if (!more.empty()) text += fmt::format("         8-bit and tile peaks: {}\n", more);
  return text;
}

std::string gpu_text(const DeviceSpeed& speed) {
  return fmt::format("limits   copies {:.0f} GB/s, cuBLASLt multiplies F16 at {:.0f} TFLOP/s\n",
                     speed.copy_bytes_per_s / 1e9, speed.gemm_flops_per_s / 1e12);
}

std::string gpu_figures_text(const BenchReport& report, const SpeedSettings& settings) {
  std::string text = "\n";
  const auto add_state = [&](const char* name, const std::optional<Speed>& speed) {
    if (speed && speed->watch.has_seen()) text += fmt::format("{:<9}{}\n", name, speed->watch.text());
  };
  add_state("prefill", report.prefill);
  add_state("decode", report.decode);
  if (!report.decode) return text;
  const double tokens_per_s = report.decode->tokens_per_s.mean();
  std::string others;
  for (const ScaledSpeed& other : scaled_to_others(tokens_per_s, *report.gpu)) {
    others += fmt::format("{}{:.0f} tokens/s on an {} ({:.0f} GB/s)", others.empty() ? "" : ", ", other.tokens_per_s,
                          other.device, other.bytes_per_s / 1e9);
  }
  text += fmt::format("computed decode scaled by memory bandwidth: {}\n", others);
  if (report.without_graphs) {
    const double batch = settings.batch;
    const double with = 1e6 * quotient(batch, tokens_per_s);
    const double without = 1e6 * quotient(batch, report.without_graphs->tokens_per_s.mean());
    text += fmt::format("launch   a step of decode takes {:.0f} us with graphs and {:.0f} without: {:.0f} less\n", with,
                        without, without - with);
  }
  return text;
}

std::string to_text(const BenchReport& report, const BenchCommand& command, const Executor& executor,
                    const Observations& seen) {
  const std::string name = executor.spec().name.empty() ? command.model : executor.spec().name;
  std::string text = fmt::format("model    {}, {:.1f} million parameters, {}\n", printable(name),
                                 static_cast<double>(parameter_count(executor.file())) / 1e6,
                                 human_bytes(executor.file().file_bytes()));
  text += fmt::format("device   {}, {} cache, {} activations, loaded in {}\n", report.device,
                      name_of(executor.kv_type()), report.activations, human_duration(report.load_seconds));
  text += report.gpu ? gpu_text(*report.gpu) : machine_text(report.machine);
  if (const std::string cache = expert_cache_text(seen); !cache.empty()) {
    text += fmt::format("experts  {}\n", cache);
  }
  text += fmt::format("mean of {} after a warm-up\n\n", command.settings.repeat) + speed_text(report, command.settings);
  if (report.gpu) text += gpu_figures_text(report, command.settings);
  const auto add_profile = [&](const char* title, const OpProfile& profile) {
    text += "\n" + profile_text(title, profile);
    text += excess_text(profile, report.machine);
  };
  if (command.profile && report.prefill) add_profile("prefill", prefill_profile(report));
  if (command.profile && report.decode) add_profile("decode", decode_profile(report));
  return text;
}

// Of a model of its own, which has gone when this returns.
Speed decode_without_graphs(const BenchCommand& command, const std::shared_ptr<Device>& device, LoadOptions load,
                            Log& log, const Interrupts& interrupts) {
  load.executor.graphs = false;
  const auto model = load_model(open_model_file(command.model), device, load, log);
  return SpeedBench(model, command.settings, [&] { check_interrupt(interrupts); }).decode(false);
}

// The same once: what is compared differs by more than one repetition from the next.
Comparison compared(const BenchCommand& command, const std::string& way, std::shared_ptr<Device> device,
                    LoadOptions load, Log& log, const Interrupts& interrupts) {
  if (way == kOnTheCpu) {
    ModelOptions options = command.options;
    options.backend = "cpu";
    options.device.clear();
    device = open_device(options, log);
  } else {
    load.executor.deterministic = true;
  }
  const auto model = load_model(open_model_file(command.model), std::move(device), load, log);
  SpeedSettings settings = command.settings;
  settings.repeat = 1;
  SpeedBench bench(model, settings, [&] { check_interrupt(interrupts); });
  Comparison comparison{.way = way, .device = model->device_description(), .prefill = {}, .decode = {}};
  if (settings.prompt > 0) comparison.prefill = bench.prefill(false);
  if (settings.generated > 0) comparison.decode = bench.decode(false);
  return comparison;
}

// What is wrong with a way to compare a model on that device; empty: nothing.
std::string wrong_with(const std::string& way, const Device& device, const ExecutorOptions& options) {
  if (way == kOnTheCpu) return device.name() == "cpu" ? "the model runs there already" : "";
  if (options.deterministic) return "it is so already (--deterministic)";
  if (!device.has_own_memory()) return fmt::format("it is so already, as always on the {}", device.name());
  return options.activations == ActivationPrecision::f16 ? "it excludes --activations f16" : "";
}

// Ways that come to nothing are told and left out, so that the rest is measured all the same.
std::vector<Comparison> compare(const BenchCommand& command, const std::shared_ptr<Device>& device,
                                const LoadOptions& load, Log& log, const Interrupts& interrupts) {
  std::vector<Comparison> comparisons;
  for (const std::string& way : command.compare) {
    if (const std::string wrong = wrong_with(way, *device, load.executor); !wrong.empty()) {
      // Where "auto" runs a model is not its user's mistake.
      if (command.options.backend != "auto") fail(ErrorKind::usage, "--compare {}: {}", way, wrong);
      log.warn("--compare {} has no effect: {}", way, wrong);
      continue;
    }
    try {
      comparisons.push_back(compared(command, way, device, load, log, interrupts));
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::cancelled) throw;
      log.warn("--compare {} came to nothing: {}", way, error.what());
    }
  }
  return comparisons;
}

int run_bench(const BenchCommand& command, Log& log, const Interrupts& interrupts) {
  if (command.settings.prompt == 0 && command.settings.generated == 0) {
    fail(ErrorKind::usage, "there is nothing to measure: give -p or -n a number above 0");
  }
  LoadOptions load{.executor = executor_options(command.options), .vocabulary = false};
  load.executor.sequences = command.settings.batch;
  GgufFile file = open_model_file(command.model);
  if (const ModelSpec spec = read_spec(file); !spec.has_head && command.settings.generated > 0) {
    fail(ErrorKind::unsupported, "this model ({}) embeds texts and generates none: measure it with -n 0",
         printable(spec.architecture));
  }
  load.executor.context = needed_context(command, file, load.executor.context);
  // More than short sequences need: of a cache that is just large enough for them the scheduler keeps a part back.
  if (command.settings.batch > 1 && load.executor.context <= kShortContext) {
    load.executor.cache_tokens = std::int64_t{command.settings.batch} * (load.executor.context + kSpareTokens);
  }
  BenchReport report;
  const Placement placed = place_model(file, open_device(command.options, log), settled(file, load.executor));
  if (!placed.moved.empty()) log.warn("{}", placed.moved);
  load.has_device = true;
  report.comparisons = compare(command, placed.device, load, log, interrupts);
  report.gpu = placed.device->measure_speed();
  if (report.gpu && command.profile && command.settings.generated > 0) {
    report.without_graphs = decode_without_graphs(command, placed.device, load, log, interrupts);
  }
  const auto model = load_model(std::move(file), placed.device, load, log);
  const Executor& executor = model->executor();
  const Device& device = model->device();
  report.load_seconds = model->load_seconds();
  report.device = model->device_description();
  report.activations = device.activations_used(executor.plan().activations);
  report.cost = model_cost(executor, command.settings);
  check_interrupt(interrupts);
  if (report.gpu) {
    report.machine = machine_of(*report.gpu);
  } else {
    const int threads = command.options.threads > 0 ? command.options.threads : usable_threads();
    report.machine = measure_machine(threads, device.memory_available());
  }
  SpeedBench bench(model, command.settings, [&] { check_interrupt(interrupts); });
  if (command.settings.prompt > 0) report.prefill = bench.prefill(command.profile);
  if (command.settings.generated > 0) report.decode = bench.decode(command.profile);
  const Observations seen = model->engine().observe();
  write_output(command.json ? dump_json(to_json(report, command, executor)) + "\n"
                            : to_text(report, command, executor, seen));
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<BenchCommand>();
  CLI::App* command = app.add_subcommand("bench", "Measure how fast a model runs");
  command->add_option("MODEL", options->model, "A GGUF file or the name of a model")->required();
  CLI::Option* serve =
      command->add_flag("--serve", options->serve, "Measure many requests at once instead, as a server gets them");
  const auto add = [&](const char* name, std::int32_t& value, int least, int most, const char* description) {
    command->add_option(name, value, description)
        ->check(whole_number(least, most))
        ->type_name("N")
        ->excludes(serve)
        ->capture_default_str();
  };
  add("-p,--prompt", options->settings.prompt, 0, 1 << 24, "Tokens of the prompt; 0: do not measure it");
  add("-n,--generate", options->settings.generated, 0, 1 << 24, "Tokens to generate; 0: do not measure it");
  add("--depth", options->settings.depth, 0, 1 << 24, "Tokens in the cache before those that are generated");
  add("--batch", options->settings.batch, 1, 256, "Sequences to generate together");
  add("--repeat", options->settings.repeat, 1, 1000, "How often to measure, after a warm-up");
  command
      ->add_flag("--profile", options->profile,
                 "Show how long each kind of operation took and how near it came to the machine's limit; on a GPU also "
                 "what replaying captured steps gains")
      ->excludes(serve);
  command
      ->add_option("--compare", options->compare,
                   "Measure the same on the CPU too, or on a GPU with --deterministic: once, after a warm-up")
      ->check(one_of({kOnTheCpu, kDeterministic}))
      ->allow_extra_args(false)
      ->type_name("WAY")
      ->excludes(serve);
  command->add_flag("--json", options->json, "Everything as JSON");
  add_serve_options(*command, serve, options->serving);
  add_model_options(*command, options->options);
  command->footer(
      "On a GPU it measures what a kernel copies and what cuBLASLt multiplies first, and shows load, clocks, power and "
      "memory beside the speed.\n\n"
      "Examples:\n  quarrel bench default\n  quarrel bench model.gguf -p 0 -n 64 --batch 8 --depth 1024 --profile\n"
      "  quarrel bench default --serve --clients 32 --prompt-tokens 64:256 --shared-prefix 32\n"
      "  quarrel bench default --serve --rate 2.5 --requests 100 --json");
  command->callback([options, &context] {
    context.run = [options, &context] {
      return run_interruptible([&](const Interrupts& interrupts) {
        return options->serve ? run_serve_bench(options->model, options->options, options->serving, options->json,
                                                context.log, interrupts)
                              : run_bench(*options, context.log, interrupts);
      });
    };
  });
}

}  // namespace quarrel
