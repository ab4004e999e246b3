#include "app/serve_bench_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/input.h"
#include "app/progress_bar.h"
#include "app/serve_bench.h"
#include "app/serve_report.h"
#include "app/token_list.h"
#include "app/value_checks.h"
#include "app/workbench.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/architectures.h"

namespace quarrel {
namespace {

constexpr std::int32_t kMostSequences = 256;
constexpr std::int32_t kDefaultSequences = 64;

// Whole blocks for each text that runs at once; the long prompt's text comes on top.
std::int64_t default_cache_tokens(const LoadSettings& load, std::int32_t sequences) {
  constexpr std::int32_t kBlockTokens = 16;  // of the host's backends; the executor rounds up to its own
  const auto whole = [](std::int64_t tokens) { return blocks_for(tokens, kBlockTokens) * kBlockTokens; };
  const std::int64_t texts = sequences * whole(longest_ordinary_text(load));
  return load.long_prompt > 0 ? texts + whole(longest_text(load)) : texts;
}

ServeBenchSettings resolve(const ServeBenchCommand& command) {
  ServeBenchSettings settings{.load = command.load,
                              .sequences = command.sequences,
                              .cache_tokens = command.cache_tokens,
                              .chunk = command.chunk,
                              .prefix_cache = !command.no_prefix_cache};
  LoadSettings& load = settings.load;
  load.prompt = parse_token_range(command.prompt_tokens, "--prompt-tokens");
  load.output = parse_token_range(command.output_tokens, "--output-tokens");
  load = resolved(load);
  if (settings.sequences == 0) {
    const std::int32_t clients = load.clients + (load.long_prompt > 0 ? 1 : 0);
    settings.sequences = load.open_loop() ? kDefaultSequences : std::min(clients, kDefaultSequences);
  }
  if (settings.cache_tokens == 0) {
    settings.cache_tokens = default_cache_tokens(load, settings.sequences);
    if (settings.cache_tokens > std::numeric_limits<std::int32_t>::max()) {
      fail(ErrorKind::usage, "{} texts of {} tokens at once are too many: give --sequences or --cache-tokens",
           settings.sequences, longest_ordinary_text(load));
    }
  }
  if (settings.cache_tokens < longest_text(load)) {
    fail(ErrorKind::usage, "a cache of {} tokens does not hold one text of {} (--cache-tokens)", settings.cache_tokens,
         longest_text(load));
  }
  return settings;
}

// Only as much context as the load fills, and not more than the model was trained for unless the user insists.
std::int32_t needed_context(const LoadSettings& load, const ModelSpec& spec, std::int32_t given) {
  check_fits_context(longest_text(load), given > 0 ? given : spec.context_length, ErrorKind::usage);
  return given > 0 ? given : static_cast<std::int32_t>(longest_text(load));
}

std::string to_text(const ServeBenchSettings& settings, const ServeResult& result, const LoadedModel& model) {
  const Executor& executor = model.executor();
  const std::string& name = executor.spec().name;
  return fmt::format("model    {}, {:.1f} million parameters, {}\n",
                     printable(name.empty() ? executor.file().path().string() : name),
                     static_cast<double>(parameter_count(executor.file())) / 1e6,
                     human_bytes(executor.file().file_bytes())) +
         fmt::format("device   {}, {} cache, loaded in {}\n", model.device_description(), name_of(executor.kv_type()),
                     human_duration(model.load_seconds())) +
         settings_text(settings) + result_text(result);
}

std::string neighbour_text(const ServeBenchCommand& command, const std::optional<NeighbourResult>& beside) {
  if (!beside) return "";
  return fmt::format("\nBeside it {} turned {:.1f} texts of {} tokens per second into vectors.\n",
                     printable(command.beside), beside->texts_per_s(), command.neighbour.tokens);
}

nlohmann::ordered_json to_json(const ServeBenchSettings& settings, const ServeResult& result,
                               const std::optional<NeighbourResult>& beside, const LoadedModel& model) {
  const Executor& executor = model.executor();
  nlohmann::ordered_json neighbour;  // null without one
  if (beside) neighbour = {{"texts", beside->texts}, {"texts_per_s", beside->texts_per_s()}};
  return {{"model",
           {{"name", executor.spec().name},
            {"path", executor.file().path().string()},
            {"architecture", executor.spec().architecture},
            {"parameters", parameter_count(executor.file())},
            {"file_bytes", executor.file().file_bytes()}}},
          {"device", {{"description", model.device_description()}, {"kv", name_of(executor.kv_type())}}},
          {"load_seconds", model.load_seconds()},
          {"settings", settings_json(settings)},
          {"serve", result_json(result)},
          {"beside", neighbour}};
}

}  // namespace

void add_serve_options(CLI::App& command, CLI::Option* serve, ServeBenchCommand& options) {
  const char* group = "Serving";
  const auto add = [&](const char* name, auto& value, const char* type, const char* description) {
    return command.add_option(name, value, description)->type_name(type)->needs(serve)->group(group);
  };
  LoadSettings& load = options.load;
  CLI::Option* clients =
      add("--clients", load.clients, "N", "Clients; each sends its next request when the previous one has ended")
          ->check(whole_number(1, kMostLoadClients))
          ->capture_default_str();
  add("--rate", load.rate, "R", "Requests arrive at random times instead, this many per second")
      ->check(number(kLeastRate, kMostRate))
      ->excludes(clients);
  add("--requests", load.requests, "N", "How many in all; default: 4 per client, 64 with --rate")
      ->check(whole_number(1, kMostLoadRequests));
  add("--prompt-tokens", options.prompt_tokens, "MIN[:MAX]", "Tokens of a prompt; lengths between are equally likely")
      ->capture_default_str();
  add("--output-tokens", options.output_tokens, "MIN[:MAX]", "Tokens of an answer")->capture_default_str();
  add("--shared-prefix", load.shared_prefix, "N", "First tokens that all prompts have in common")
      ->check(whole_number(0, kMostLoadTokens))
      ->capture_default_str();
  add("--long-prompt", load.long_prompt, "N", "One more request with a prompt of this length, among the others")
      ->check(whole_number(1, kMostLoadTokens));
  add("--sequences", options.sequences, "N", "Answers computed at once; default: one per client, at most 64")
      ->check(whole_number(1, kMostSequences));
  add("--cache-tokens", options.cache_tokens, "N",
      "Tokens that the cache holds; default: as many texts of the greatest length as --sequences")
      ->check(whole_number(1));
  add("--chunk", options.chunk, "N", "Most rows per step; default: 512")->check(whole_number(1, 1 << 16));
  add("--seed", load.seed, "N", "Seed of lengths, tokens and arrival times")->check(any_seed())->capture_default_str();
  CLI::Option* beside =
      add("--beside", options.beside, "MODEL", "Another model on the same device that embeds texts at the same time");
  add("--beside-texts", options.neighbour.texts, "N", "How many texts it has at once")
      ->check(whole_number(1, 1 << 16))
      ->needs(beside)
      ->capture_default_str();
  add("--beside-tokens", options.neighbour.tokens, "N", "Tokens of each")
      ->check(whole_number(1, 1 << 16))
      ->needs(beside)
      ->capture_default_str();
  command.add_flag("--no-prefix-cache", options.no_prefix_cache, "Compute every prompt from its first token")
      ->needs(serve)
      ->group(group);
}

int run_serve_bench(const std::string& name, const ModelOptions& options, const ServeBenchCommand& command, bool json,
                    Log& log, const Interrupts& interrupts) {
  const ServeBenchSettings settings = resolve(command);
  LoadOptions load{.executor = executor_options(options),
                   .engine = {.queue_limit = std::max(EngineOptions{}.queue_limit, settings.load.clients + 1),
                              .prefix_cache = settings.prefix_cache,
                              .chunk = settings.chunk}};
  GgufFile file = open_model_file(name);
  ExecutorOptions& limits = load.executor;
  limits.context = needed_context(settings.load, read_spec(file), limits.context);
  limits.sequences = settings.sequences;
  limits.cache_tokens = settings.cache_tokens;
  limits.batch_rows = std::max(limits.batch_rows, settings.chunk);
  const std::shared_ptr<Device> device = open_device(options, log);
  const auto model = load_model(std::move(file), device, load, log);
  model->require_generation();
  check_interrupt(interrupts);

  ServeBench bench(model, settings.load);
  std::optional<EmbeddingNeighbour> neighbour;
  if (!command.beside.empty()) {
    neighbour.emplace(load_model(open_model_file(command.beside), device, {.executor = executor_options(options)}, log),
                      command.neighbour);
  }
  std::optional<ProgressBar> bar;
  if (is_terminal(Stream::error)) bar.emplace(ProgressUnit::items);
  const ServeResult result = bench.run([&](std::size_t ended, std::size_t of) {
    if (bar) bar->show("requests", ended, of);
    return !interrupts.requested().load(std::memory_order_relaxed);
  });
  bar.reset();
  std::optional<NeighbourResult> beside;
  if (neighbour) beside = neighbour->stop();

  write_output(json ? dump_json(to_json(settings, result, beside, *model)) + "\n"
                    : to_text(settings, result, *model) + neighbour_text(command, beside));
  if (result.interrupted) {
    write_error("interrupted\n");
    return kInterruptedExit;
  }
  return result.failed > 0 ? 1 : 0;
}

}  // namespace quarrel
