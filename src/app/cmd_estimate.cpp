// `quarrel estimate`: what a model will take of the memory, before anything is loaded.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/input.h"
#include "app/model_options.h"
#include "app/progress_bar.h"
#include "app/text_table.h"
#include "app/value_checks.h"
#include "app/workbench.h"
#include "base/counted.h"
#include "base/error.h"
#include "engine/placement.h"
#include "session/loaded_model.h"

namespace quarrel {
namespace {

struct EstimateCommand {
  std::string model;
  ModelOptions options;
  int sequences = 1;
  bool json = false;
};

nlohmann::ordered_json to_json(const MemoryPlan& plan, const Device& device) {
  return {{"backend", device.name()},
          {"context", plan.context},
          {"trained_context", plan.trained_context},
          {"sequences", plan.sequences},
          {"batch_rows", plan.limits.rows},
          {"kv_type", name_of(plan.kv_type)},
          {"bytes",
           {{"shared_weights", plan.shared_weights},
            {"expert_weights", plan.expert_weights},
            {"experts_held", plan.experts_held()},
            {"prepared", plan.prepared},
            {"mirrors", plan.mirrors},
            {"released", plan.released},
            {"kv", plan.kv},
            {"state", plan.state},
            {"expert_workspace", plan.expert_workspace},
            {"workspace", plan.workspace},
            {"anonymous", plan.anonymous()},
            {"total", plan.total()}}},
          {"expert_cache", plan.expert_cache.has_value()},
          {"available", device.memory_available()}};
}

std::string to_text(const MemoryPlan& plan, const Device& device) {
  using Side = TextTable::Side;
  TextTable table({{"PART"}, {"MEMORY", Side::right}, {"NOTE"}});
  const auto add = [&](const char* part, std::uint64_t bytes, std::string note) {
    if (bytes > 0) table.add_row({part, human_bytes(bytes), std::move(note)});
  };
  if (plan.released > 0) {
    add("weights", plan.prepared - plan.mirrors, "repacked for this machine");
    add("mirrors", plan.mirrors, "copies in 16 bits for large batches");
    add("tables", plan.mapped(), "mapped from the file: the system may drop and reread them");
  } else {
    add("weights", plan.shared_weights, "mapped from the file: the system may drop and reread them");
  }
  if (plan.expert_cache) {
    add("experts", *plan.expert_cache, fmt::format("a cache for {} of experts", human_bytes(plan.expert_weights)));
  } else if (plan.released == 0) {
    add("experts", plan.expert_weights, "mapped");
  }
  if (plan.released == 0) add("prepared", plan.prepared, "decoded vectors");
  add("KV cache", plan.kv,
      fmt::format("{} tokens for {}, {}", plan.context, counted(plan.sequences, "sequence"), name_of(plan.kv_type)));
  add("state", plan.state, fmt::format("{} slots", plan.state_slots));
  add("expert buffers", plan.expert_workspace, "routing and the experts' results");
  add("workspace", plan.workspace, fmt::format("{} rows per step", plan.limits.rows));
  table.add_row(
      {"total", human_bytes(plan.total()), fmt::format("{} of it not mapped", human_bytes(plan.anonymous()))});
  std::string text = table.text();
  text += fmt::format("\n{}: {} free\n", device.description(), human_bytes(device.memory_available()));
  if (plan.context < plan.trained_context) {
    text += fmt::format("The model was trained for {} tokens.\n", plan.trained_context);
  }
  return text;
}

int run_estimate(const EstimateCommand& command, Log& log) {
  const GgufFile file = open_model_file(command.model);
  ExecutorOptions options = executor_options(command.options);
  options.sequences = command.sequences;
  if (const auto warning = context_warning(file, options.context)) log.warn("{}", *warning);
  const Placement placed = place_model(file, open_device(command.options, log), settled(file, options));
  if (!placed.moved.empty()) log.warn("{}", placed.moved);
  warn_of_unused(options, placed.memory, log);
  write_output(command.json ? dump_json(to_json(placed.memory, *placed.device)) + "\n"
                            : to_text(placed.memory, *placed.device));
  return 0;
}

}  // namespace

void add_estimate(CLI::App& app, CommandContext& context) {
  auto command = std::make_shared<EstimateCommand>();
  CLI::App* sub = app.add_subcommand("estimate", "Estimate how much memory a model needs, without loading it");
  sub->add_option("MODEL", command->model, "A GGUF file or the name of a model")->required();
  sub->add_option("--parallel", command->sequences, "Sequences at once")
      ->check(whole_number(1, 4096))
      ->type_name("N")
      ->capture_default_str();
  sub->add_flag("--json", command->json, "One JSON object, in bytes");
  add_model_options(*sub, command->options);
  sub->footer(
      "Examples:\n  quarrel estimate default --ctx 8192 --parallel 4\n"
      "  quarrel estimate mixtral --memory-budget 16G");
  sub->callback(
      [command, &context] { context.run = [command, &context] { return run_estimate(*command, context.log); }; });
}

}  // namespace quarrel
