// quarrel help and quarrel completion: what the program knows about itself.

#include <fmt/format.h>

#include <memory>

#include <CLI/CLI.hpp>

#include "app/command_reference.h"
#include "app/commands.h"
#include "app/completion.h"
#include "app/man_page.h"
#include "app/terminal.h"
#include "app/value_checks.h"
#include "base/error.h"
#include "quarrel_version.h"

namespace quarrel {
namespace {

struct HelpOptions {
  std::string command;
  bool man = false;
};

int show_help(const CLI::App& app, const HelpOptions& options) {
  if (options.man) {
    if (!options.command.empty()) fail(ErrorKind::usage, "--man is the manual page of all commands: name none");
    write_output(man_page(read_reference(app, QUARREL_VERSION)));
    return 0;
  }
  if (options.command.empty()) {
    // Not app.help(), which would show the help of the command that was given: this one.
    write_output(app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal));
    return 0;
  }
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (!command->check_name(options.command)) continue;
    write_output(command->help(app.get_name()));
    return 0;
  }
  fail(ErrorKind::usage, "{}", unknown_command(app, options.command));
}

int write_completion(const CLI::App& app, const std::string& shell) {
  const ProgramReference program = read_reference(app, QUARREL_VERSION);
  write_output(shell == "bash"  ? bash_completion(program)
               : shell == "zsh" ? zsh_completion(program)
                                : fish_completion(program));
  return 0;
}

}  // namespace

void add_help(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("help", "Show the help of a command, or of the program");
  auto options = std::make_shared<HelpOptions>();
  command->add_option("COMMAND", options->command, "Which command");
  command->add_flag("--man", options->man, "The manual page of all commands, in roff");
  command->footer("Examples:\n  quarrel help run\n  quarrel help --man > quarrel.1");
  command->callback([options, &app, &context] { context.run = [options, &app] { return show_help(app, *options); }; });
}

void add_completion(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("completion", "Print a script that makes a shell complete this program");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "Which shell")->check(one_of({"bash", "zsh", "fish"}))->required();
  command->footer(
      "Commands, options, files and the names of models are completed.\n\nExamples:\n"
      "  quarrel completion bash > ~/.local/share/bash-completion/completions/quarrel\n"
      "  quarrel completion zsh > ~/.zfunc/_quarrel      # a folder in $fpath\n"
      "  quarrel completion fish > ~/.config/fish/completions/quarrel.fish");
  command->callback([shell, &app, &context] { context.run = [shell, &app] { return write_completion(app, *shell); }; });
}

}  // namespace quarrel
