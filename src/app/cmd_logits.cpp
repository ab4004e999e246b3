// `quarrel logits`: every logit of a token sequence as raw numbers, for comparing engines and backends.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/input.h"
#include "app/model_options.h"
#include "app/token_list.h"
#include "app/value_checks.h"
#include "app/workbench.h"
#include "base/output_file.h"
#include "session/scoring.h"

namespace quarrel {
namespace {

// Users who ask for larger steps get the memory they ask for, within reason.
constexpr std::int32_t kMaxChunk = 4096;

struct LogitsOptions {
  std::string model;
  ModelOptions options;
  std::string tokens;
  std::string out;
  std::int32_t chunk = 64;
  std::string row_class = "prompt";
  bool json = false;
};

int run_logits(const LogitsOptions& options, Log& log, const Interrupts& interrupts) {
  if (options.json && options.out == "-") {
    fail(ErrorKind::usage, "--json describes the file: with --out - both would be on standard output");
  }
  const std::vector<TokenId> tokens = read_token_list(options.tokens);
  LoadOptions load{.executor = executor_options(options.options), .vocabulary = false};
  load.executor.batch_rows = options.chunk;
  const auto model = load_model(options.model, options.options, load, log);
  model->require_generation();
  check_token_ids(tokens, model->spec().vocabulary, token_list_fault(options.tokens));
  check_fits_context(std::ssize(tokens), model->context());

  OutputFile file(options.out == "-" ? "/dev/stdout" : options.out);
  LogitReader reader(model, tokens, {.row_class = row_class_of(options.row_class)});
  for (auto row = reader.next(); !row.empty(); row = reader.next()) {
    check_interrupt(interrupts);
    file.write(std::as_bytes(row));
  }
  file.commit();
  if (options.json) {
    write_output(dump_json({{"file", options.out},
                            {"rows", tokens.size()},
                            {"vocabulary", model->spec().vocabulary},
                            {"backend", model->device().name()},
                            {"kv", name_of(model->executor().kv_type())},
                            {"class", options.row_class}}) +
                 "\n");
  }
  return 0;
}

}  // namespace

void add_logits(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App* command = app.add_subcommand("logits", "Write all logits of a token sequence to a file");
  command->add_option("MODEL", options->model, "A GGUF file or the name of a model")->required();
  command->add_option("--tokens", options->tokens, "The token ids: 1,2,3 or @FILE")->required()->type_name("IDS");
  command
      ->add_option("--out,-o", options->out,
                   "Where to write them: raw float32 [tokens][vocabulary]; -: standard output")
      ->required()
      ->type_name("FILE");
  command->add_option("--chunk", options->chunk, "Tokens per step; the result does not depend on it")
      ->check(whole_number(1, kMaxChunk))
      ->type_name("N")
      ->capture_default_str();
  add_class_option(*command, options->row_class);
  command->add_flag("--json", options->json, "Report what was written as JSON");
  add_model_options(*command, options->options);
  command->footer("Example:\n  quarrel logits model.gguf --tokens 1,2,3 --out logits.f32 --backend reference");
  command->callback([options, &context] {
    context.run = [options, &context] {
      return run_interruptible(
          [&](const Interrupts& interrupts) { return run_logits(*options, context.log, interrupts); });
    };
  });
}

}  // namespace quarrel
