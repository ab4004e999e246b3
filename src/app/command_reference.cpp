#include "app/command_reference.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include <CLI/CLI.hpp>

#include "app/completion.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "convert/target_type.h"
#include "store/pull.h"

namespace quarrel {
namespace {

// "NAME:{cpu,reference}" to the two words.
std::vector<std::string> choices_of(const std::string& type) {
  const std::size_t open = type.find('{');
  const std::size_t close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  std::vector<std::string> words;
  for (const std::string& word : CLI::detail::split(type.substr(open + 1, close - open - 1), ',')) {
    words.push_back(CLI::detail::trim_copy(word));
  }
  return words;
}

ArgumentKind kind_of(std::string_view value) {
  if (value == "MODEL" || value == "SOURCE") return ArgumentKind::model;
  if (value.ends_with("FILE") || value == "PATH" || value == "SUITE") return ArgumentKind::file;
  if (value == "FOLDER") return ArgumentKind::folder;
  return ArgumentKind::text;
}

std::vector<std::string> names_of(const std::set<CLI::Option*>& options) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options) names.push_back(option->get_name());
  std::ranges::sort(names);  // the set has them by address
  return names;
}

}  // namespace

ArgumentReference read_argument(const CLI::Option& option) {
  const bool positional = option.get_positional();
  ArgumentReference result;
  const std::string type = option.get_type_name();
  if (positional) {
    result.names = {option.get_name(true)};
    result.value = result.names.front();
  } else {
    for (const std::string& name : option.get_snames()) result.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) result.names.push_back("--" + name);
    if (option.get_type_size_max() > 0) result.value = type.substr(0, type.find(":{"));
  }
  result.description = option.get_description();
  result.fallback = option.get_default_str();
  result.choices = choices_of(type);
  result.kind = result.choices.empty() ? kind_of(result.value) : ArgumentKind::choice;
  result.required = option.get_required();
  result.repeats = option.get_expected_max() > 1;
  result.needs = names_of(option.get_needs());
  result.excludes = names_of(option.get_excludes());
  return result;
}

namespace {

void read_options(const CLI::App& app, std::vector<ArgumentReference>& positionals,
                  std::vector<ArgumentReference>& options) {
  for (const CLI::Option* option : app.get_options()) {
    (option->get_positional() ? positionals : options).push_back(read_argument(*option));
  }
}

void offer(ArgumentReference& argument, std::vector<std::string> choices) {
  argument.kind = ArgumentKind::choice;
  argument.choices = std::move(choices);
}

std::vector<std::string> command_words(const ProgramReference& program) {
  std::vector<std::string> names;
  for (const CommandReference& command : program.commands) {
    const std::vector<std::string> spelled = spellings(command);
    names.insert(names.end(), spelled.begin(), spelled.end());
  }
  return names;
}

// Arguments whose words are known, though any word may be given.
void add_known_words(ProgramReference& program) {
  std::vector<std::string> types;
  for (const TargetType& type : target_types()) types.emplace_back(type.name);
  std::vector<std::string> pulled;
  for (const Pullable& row : pullables()) pulled.emplace_back(row.name);
  for (CommandReference& command : program.commands) {
    for (std::vector<ArgumentReference>* arguments : {&command.positionals, &command.options}) {
      for (ArgumentReference& argument : *arguments) {
        if (argument.value == "TYPE" && argument.choices.empty()) offer(argument, types);
      }
    }
    if (command.positionals.empty()) continue;
    ArgumentReference& first = command.positionals.front();
    if (command.name == "rm") first.kind = ArgumentKind::model;
    if (command.name == "pull") offer(first, pulled);
    if (command.name == "help") offer(first, command_words(program));
  }
}

}  // namespace

ProgramReference read_reference(const CLI::App& app, std::string version) {
  ProgramReference program{.name = app.get_name(),
                           .version = std::move(version),
                           .description = app.get_description(),
                           .options = {},
                           .commands = {}};
  std::vector<ArgumentReference> none;
  read_options(app, none, program.options);
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    CommandReference reference{.name = command->get_name(),
                               .aliases = command->get_aliases(),
                               .description = command->get_description(),
                               .positionals = {},
                               .options = {},
                               .footer = command->get_footer()};
    read_options(*command, reference.positionals, reference.options);
    program.commands.push_back(std::move(reference));
  }
  add_known_words(program);
  return program;
}

std::string unknown_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    names.push_back(command->get_name());
    for (const std::string& alias : command->get_aliases()) names.push_back(alias);
  }
  std::string sentence = fmt::format("there is no command '{}'", printable(word));
  const std::vector<std::string> near = nearest(word, names);
  if (!near.empty()) sentence += fmt::format("; did you mean {}?", fmt::join(near, ", "));
  if (word.find(' ') != std::string::npos || word.ends_with('?')) sentence += "; " + way_to_ask(word);
  return sentence;
}

std::string way_to_ask(const std::string& question) {
  return fmt::format("to ask it, name the model first: quarrel run default {}", shell_quoted(printable(question)));
}

}  // namespace quarrel
