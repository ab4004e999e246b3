// `quarrel generate`: token ids in, token ids out, with no text between; several replies at once on demand.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/batch_generate.h"
#include "app/chat_session.h"
#include "app/commands.h"
#include "app/input.h"
#include "app/model_options.h"
#include "app/token_list.h"
#include "app/workbench.h"

namespace quarrel {
namespace {

constexpr std::int32_t kMaxSequences = 256;

struct GenerateCommand {
  std::string model;
  ModelOptions options;
  std::string tokens;
  std::int32_t count = 16;
  std::int32_t sequences = 1;
  SamplingParams sampling;
  bool ignore_eos = false;
  bool json = false;
};

double per_second(std::int64_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

nlohmann::ordered_json to_json(const BatchResult& result, std::size_t prompt_tokens, const Observations& seen) {
  auto sequences = nlohmann::ordered_json::array();
  std::int64_t decoded = 0;
  for (const BatchReply& reply : result.replies) {
    sequences.push_back(
        {{"tokens", reply.tokens}, {"logprobs", reply.logprobs}, {"finish", reason_name(reply.reason)}});
    decoded += std::ssize(reply.tokens) - 1;  // the first comes out of the prompt
  }
  const auto fed = static_cast<std::int64_t>(prompt_tokens * result.replies.size());
  nlohmann::ordered_json value{{"sequences", sequences},
                               {"prompt_tokens", prompt_tokens},
                               {"timings",
                                {{"prompt_seconds", result.prompt_seconds},
                                 {"prompt_tokens_per_s", per_second(fed, result.prompt_seconds)},
                                 {"generate_seconds", result.generate_seconds},
                                 {"generate_steps", result.generated_steps},
                                 {"generate_tokens_per_s", per_second(decoded, result.generate_seconds)}}}};
  if (seen.expert_cache_bytes > 0) {
    value["expert_cache"] = {{"bytes", seen.expert_cache_bytes},
                             {"hits", seen.expert_hits},
                             {"misses", seen.expert_misses},
                             {"hit_rate", seen.expert_hit_rate()},
                             {"bytes_read", seen.expert_bytes_read}};
  }
  return value;
}

int run_generate(const GenerateCommand& command, Log& log, const Interrupts& interrupts) {
  const std::vector<TokenId> prompt = read_token_list(command.tokens);
  check(command.sampling);
  const auto device = open_device(command.options);
  ExecutorOptions settings = executor_options(command.options);
  settings.sequences = command.sequences;
  Executor executor(open_model_file(command.model), *device, settings);
  require_logits(executor.spec());
  check_token_ids(prompt, executor.spec().vocabulary);
  check_fits_context(std::ssize(prompt), executor.context());

  std::vector<TokenId> stops;
  if (!command.ignore_eos) {
    const auto tokenizer = load_tokenizer_if_any(executor.file(), log);
    if (tokenizer) stops = tokenizer->special().end_of_generation;
  }
  const BatchResult result = generate_together(executor, prompt,
                                               {.sampling = command.sampling,
                                                .sequences = command.sequences,
                                                .max_tokens = command.count,
                                                .stop_tokens = stops,
                                                .between_steps = [&] { check_interrupt(interrupts); }});
  if (command.json) {
    write_output(dump_json(to_json(result, prompt.size(), executor.observe()), false) + "\n");
  } else {
    for (const BatchReply& reply : result.replies) write_output(fmt::format("{}\n", fmt::join(reply.tokens, " ")));
  }
  return 0;
}

void add_sampling_options(CLI::App& command, SamplingParams& params) {
  const auto add = [&](const char* name, auto& value, const char* description) {
    command.add_option(name, value, description)->capture_default_str()->group("Sampling");
  };
  add("--seed", params.seed, "Of the random numbers; sequence i uses this plus i");
  add("--temperature", params.temperature, "0 always takes the most likely token");
  add("--top-k", params.top_k, "Draw from this many most likely tokens; 0: all");
  add("--top-p", params.top_p, "Draw from the fewest tokens that have this probability together");
  add("--min-p", params.min_p, "Draw from tokens with this share of the best one's probability");
  add("--typical-p", params.typical_p, "Draw from the tokens of typical surprise");
  add("--repeat-penalty", params.repeat_penalty, "Divides the logits of tokens that were seen");
  add("--presence-penalty", params.presence_penalty, "Taken off once for a token that was seen");
  add("--frequency-penalty", params.frequency_penalty, "Taken off for each time it was seen");
  add("--penalty-window", params.penalty_window, "How many last tokens count as seen; -1: all");
  add("--mirostat-tau", params.mirostat_tau, "The surprise that mirostat aims at, in bits");
  add("--mirostat-eta", params.mirostat_eta, "How fast mirostat learns");
  command.add_flag("--mirostat", params.mirostat, "Mirostat 2 instead of the filters")->group("Sampling");
}

}  // namespace

void add_generate(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<GenerateCommand>();
  CLI::App* command = app.add_subcommand("generate", "Continue a token sequence: ids in, ids out");
  command->add_option("MODEL", options->model, "A GGUF file or the name of a model")->required();
  command->add_option("--tokens", options->tokens, "The prompt's token ids: 1,2,3 or @FILE")
      ->required()
      ->type_name("IDS");
  command->add_option("-n", options->count, "How many tokens to generate at most")
      ->check(CLI::Range(1, 1 << 24))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--seqs", options->sequences, "How many sequences to decode together")
      ->check(CLI::Range(1, kMaxSequences))
      ->type_name("B")
      ->capture_default_str();
  command->add_flag("--ignore-eos", options->ignore_eos, "Go on after the vocabulary's end tokens");
  command->add_flag("--json", options->json, "Tokens, log-probabilities and timings as JSON");
  add_sampling_options(*command, options->sampling);
  add_model_options(*command, options->options);
  command->footer(
      "Examples:\n  quarrel generate model.gguf --tokens 1,2,3 -n 8\n"
      "  quarrel generate model.gguf --tokens @prompt.json -n 64 --seqs 4 --temperature 0.8 --json");
  command->callback([options, &context] {
    context.run = [options, &context] {
      return run_interruptible(
          [&](const Interrupts& interrupts) { return run_generate(*options, context.log, interrupts); });
    };
  });
}

}  // namespace quarrel
