// `quarrel generate`: token ids in, token ids out, with no text between; several replies at once on demand.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/input.h"
#include "app/model_options.h"
#include "app/token_list.h"
#include "app/value_checks.h"
#include "app/workbench.h"
#include "base/error.h"
#include "session/generation_stream.h"

namespace quarrel {
namespace {

constexpr std::int32_t kMaxSequences = 256;

struct GenerateCommand {
  std::string model;
  ModelOptions options;
  std::string tokens;
  std::int32_t count = 16;
  std::int32_t sequences = 1;
  SamplingParams sampling{.penalty_scope = PenaltyScope::recent, .logit_bias = {}};
  bool ignore_eos = false;
  bool json = false;
};

double per_second(std::int64_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

nlohmann::ordered_json to_json(const GenerationResult& result, const Observations& seen) {
  auto sequences = nlohmann::ordered_json::array();
  std::int64_t decoded = 0;
  std::int64_t steps = 0;
  for (const Answer& answer : result.answers) {
    sequences.push_back(
        {{"tokens", answer.tokens}, {"logprobs", answer.logprobs}, {"finish", reason_name(answer.reason)}});
    if (!answer.error.empty()) sequences.back()["error"] = answer.error;
    const std::int64_t later = std::max<std::int64_t>(0, std::ssize(answer.tokens) - 1);  // the first is the prompt's
    decoded += later;
    steps = std::max(steps, later);
  }
  const Usage& usage = result.usage;
  const auto fed = static_cast<std::int64_t>(usage.prompt_tokens - usage.cached_tokens);
  nlohmann::ordered_json value{{"sequences", sequences},
                               {"prompt_tokens", usage.prompt_tokens},
                               {"timings",
                                {{"prompt_seconds", usage.prompt_seconds},
                                 {"prompt_tokens_per_s", per_second(fed, usage.prompt_seconds)},
                                 {"generate_seconds", usage.generate_seconds},
                                 {"generate_steps", steps},
                                 {"generate_tokens_per_s", per_second(decoded, usage.generate_seconds)}}}};
  if (seen.expert_cache_bytes > 0) {
    value["expert_cache"] = {{"bytes", seen.expert_cache_bytes},
                             {"hits", seen.expert_hits},
                             {"misses", seen.expert_misses},
                             {"hit_rate", seen.expert_hit_rate()},
                             {"bytes_read", seen.expert_bytes_read}};
  }
  return value;
}

// By the names that the options have.
void check_sampling(const SamplingParams& params) {
  const auto fault = find_fault(params);
  if (!fault) return;
  std::string option = std::string_view(fault->parameter) == "penalty_window" ? "repeat_last_n" : fault->parameter;
  std::ranges::replace(option, '_', '-');
  fail(ErrorKind::usage, "--{} must be {}", option, fault->range);
}

int run_generate(const GenerateCommand& command, Log& log, const Interrupts& interrupts) {
  const std::vector<TokenId> prompt = read_token_list(command.tokens);
  check_sampling(command.sampling);
  // Only to know which tokens end an answer is its vocabulary read.
  LoadOptions load{.executor = executor_options(command.options), .vocabulary = !command.ignore_eos};
  load.executor.sequences = command.sequences;
  const auto model = load_model(command.model, command.options, load, log);
  model->require_generation();
  check_token_ids(prompt, model->spec().vocabulary, token_list_fault(command.tokens));
  check_fits_context(std::ssize(prompt), model->context());

  Ask ask{.prompt = prompt,
          .sampling = command.sampling,
          .seed = command.sampling.seed,
          .max_tokens = command.count,
          .answers = command.sequences};
  if (command.ignore_eos) ask.stop_tokens.emplace();
  const GenerationResult result = generate(model, ask, {.cancelled = [&] { return interrupts.requested().load(); }});
  check_interrupt(interrupts);
  // Those that went well are shown; if none did, the first says why.
  const auto failed = std::ranges::count(result.answers, FinishReason::failed, &Answer::reason);
  if (failed == std::ssize(result.answers)) result.answers.front().require_success();
  if (command.json) {
    write_output(dump_json(to_json(result, model->engine().observe()), false) + "\n");
  } else {
    for (const Answer& answer : result.answers) write_output(fmt::format("{}\n", fmt::join(answer.tokens, " ")));
  }
  if (std::ranges::count(result.answers, FinishReason::context, &Answer::reason) > 0) {
    log.warn("the output was cut: {}", full_context_text(model->executor().plan(), command.options, false));
  }
  return failed > 0 ? 1 : 0;
}

void add_sampling_options(CLI::App& command, SamplingParams& params) {
  const auto add = [&](const char* name, auto& value, const char* description) {
    return command.add_option(name, value, description)->capture_default_str()->group("Sampling");
  };
  add("--seed", params.seed, "Seed of the random numbers; each sequence derives its own from it")
      ->check(any_seed())
      ->type_name("N");
  const auto add_number = [&](const char* name, float& value, const char* description) {
    add(name, value, description)->check(any_number())->type_name("X");
  };
  const auto add_count = [&](const char* name, std::int32_t& value, const char* description) {
    add(name, value, description)->check(any_whole_number())->type_name("N");
  };
  add_number("--temperature", params.temperature, "0 always takes the most likely token");
  add_count("--top-k", params.top_k, "Draw from this many most likely tokens; 0: all");
  add_number("--top-p", params.top_p, "Draw from the fewest tokens that together reach this probability; 1: all");
  add_number("--min-p", params.min_p,
             "Draw from tokens with at least this share of the best one's probability; 0: all");
  add_number("--typical-p", params.typical_p, "Locally typical sampling; 1: off");
  add_number("--repeat-penalty", params.repeat_penalty, "Divides the logits of tokens that were seen; 1: off");
  add_number("--presence-penalty", params.presence_penalty, "Subtracted once from the logit of a token that was seen");
  add_number("--frequency-penalty", params.frequency_penalty,
             "Subtracted from a token's logit for each time it was seen");
  add_count("--repeat-last-n", params.penalty_window, "How many last tokens count as seen; -1: all");
  add_number("--mirostat-tau", params.mirostat_tau, "The surprise that mirostat aims at, in bits");
  add_number("--mirostat-eta", params.mirostat_eta, "How fast mirostat learns");
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
  command->add_option("-n,--max-tokens", options->count, "How many tokens to generate at most")
      ->check(whole_number(1, 1 << 24))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--seqs", options->sequences, "How many sequences to decode together")
      ->check(whole_number(1, kMaxSequences))
      ->type_name("B")
      ->capture_default_str();
  command->add_flag("--ignore-eos", options->ignore_eos, "Continue after the vocabulary's end tokens");
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
