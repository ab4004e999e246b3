// quarrel cp: gives a model a further name in Quarrel's own store.

#include <fmt/format.h>

#include <memory>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/terminal.h"
#include "app/value_checks.h"
#include "store/store.h"

namespace quarrel {
namespace {

int copy_model(const std::string& model, const std::string& name, Log& log) {
  const LinkedModel linked = ModelStore(StorePaths::from_environment()).add_name(model, name);
  if (linked.template_left) {
    log.warn("the template that Ollama keeps for this model is not copied: it is not written in Jinja");
  }
  write_output(linked.path.string() + "\n");
  return 0;
}

}  // namespace

void add_copy(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("cp", "Give a model an additional name in Quarrel's store and print its path");
  auto model = std::make_shared<std::string>();
  auto name = std::make_shared<std::string>();
  command->add_option("MODEL", *model, "A GGUF file or the name of a model")->required()->check(not_empty());
  command->add_option("NAME", *name, "Its additional name")->required()->check(not_empty());
  command->footer(
      "The weights are linked, not copied. Within the store either name can be removed and the other stays; a file\n"
      "elsewhere, such as one of Ollama's, must stay where it is.\n\n"
      "Examples:\n  quarrel cp default my-model\n  quarrel cp ./mistral.gguf mistral");
  command->callback(
      [model, name, &context] { context.run = [=, &context] { return copy_model(*model, *name, context.log); }; });
}

}  // namespace quarrel
