// The subcommands: one file each, `cmd_NAME.cpp`, and one function that declares its options and says what it does.
// A command reads its arguments, calls the libraries, prints; it throws Error, which main maps to an exit code.
#pragma once

#include <functional>

#include "base/log.h"

namespace CLI {
class App;
}

namespace quarrel {

// What main gives every command. `run` is set by the command that was chosen and called after parsing; it returns the
// exit code.
struct CommandContext {
  Log& log;
  std::function<int()> run;
};

void add_run(CLI::App& app, CommandContext& context);
void add_serve(CLI::App& app, CommandContext& context);
void add_config(CLI::App& app, CommandContext& context);
void add_key(CLI::App& app, CommandContext& context);
void add_ps(CLI::App& app, CommandContext& context);
void add_stop(CLI::App& app, CommandContext& context);
void add_list(CLI::App& app, CommandContext& context);
void add_pull(CLI::App& app, CommandContext& context);
void add_remove(CLI::App& app, CommandContext& context);
void add_copy(CLI::App& app, CommandContext& context);
void add_inspect(CLI::App& app, CommandContext& context);
void add_tokenize(CLI::App& app, CommandContext& context);
void add_template(CLI::App& app, CommandContext& context);
void add_logits(CLI::App& app, CommandContext& context);
void add_generate(CLI::App& app, CommandContext& context);
void add_embed(CLI::App& app, CommandContext& context);
void add_search(CLI::App& app, CommandContext& context);
void add_datasets(CLI::App& app, CommandContext& context);
void add_perplexity(CLI::App& app, CommandContext& context);
void add_bench(CLI::App& app, CommandContext& context);
void add_estimate(CLI::App& app, CommandContext& context);
void add_convert(CLI::App& app, CommandContext& context);
void add_quantize(CLI::App& app, CommandContext& context);
void add_regress(CLI::App& app, CommandContext& context);
void add_completion(CLI::App& app, CommandContext& context);
void add_help(CLI::App& app, CommandContext& context);

}  // namespace quarrel
