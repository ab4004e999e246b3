// quarrel rm: removes models of Quarrel's own store.

#include <fmt/format.h>

#include <memory>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/progress_bar.h"
#include "app/terminal.h"
#include "app/value_checks.h"
#include "base/printable.h"
#include "store/store.h"

namespace quarrel {
namespace {

std::string fate_of_weights(const RemovedModel& removed) {
  if (removed.bytes > 0) return fmt::format(" ({})", human_bytes(removed.bytes));
  return removed.was_lost ? ", whose file was gone" : "; its weights stay, since they have another name";
}

int remove_models(const std::vector<std::string>& names) {
  const ModelStore store(StorePaths::from_environment());
  for (const std::string& name : names) {
    const RemovedModel removed = store.remove(name);
    write_output(fmt::format("removed {}{}\n", printable(removed.name), fate_of_weights(removed)));
  }
  return 0;
}

}  // namespace

void add_remove(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("rm", "Remove models from Quarrel's store");
  auto names = std::make_shared<std::vector<std::string>>();
  command->add_option("NAME", *names, "Models of Quarrel's store, as `quarrel list` shows them")
      ->required()
      ->check(not_empty());
  command->footer(
      "Files elsewhere and the models of Ollama's store are left alone.\n\n"
      "Example:\n  quarrel rm minilm");
  command->callback([names, &context] { context.run = [names] { return remove_models(*names); }; });
}

}  // namespace quarrel
