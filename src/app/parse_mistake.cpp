#include "app/parse_mistake.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "app/command_reference.h"
#include "base/nearest.h"
#include "base/printable.h"

namespace quarrel {
namespace {

// A word that no command and no option took.
struct LeftOver {
  const CLI::App* command;
  std::string word;

  bool is_option() const { return word.size() > 1 && word.front() == '-'; }
  std::string option() const { return word.substr(0, word.find('=')); }
};

const CLI::App* chosen_command(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? nullptr : chosen.front();
}

std::optional<LeftOver> left_over(const CLI::App& app) {
  for (const CLI::App* command : {&app, chosen_command(app)}) {
    if (command == nullptr) continue;
    const std::vector<std::string> words = command->remaining();
    if (!words.empty()) return LeftOver{command, words.front()};
  }
  return std::nullopt;
}

std::string_view without_dashes(std::string_view name) {
  return name.substr(std::min(name.find_first_not_of('-'), name.size()));
}

std::string near_options(const CLI::App& command, const std::string& wanted) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  std::vector<std::string> near = nearest(without_dashes(wanted), names);
  for (std::string& name : near) name.insert(0, "--");
  return near.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, ", "));
}

std::string unknown_option(const CLI::App& app, const LeftOver& left) {
  const std::string name = left.option();
  const CLI::App* chosen = chosen_command(app);
  if (left.command == &app && chosen != nullptr && chosen->get_option_no_throw(name) != nullptr) {
    return fmt::format("{0} is an option of {1}: write it after {1}, as quarrel {1} {0}", printable(name),
                       chosen->get_name());
  }
  return fmt::format("there is no option '{}'{}", printable(name), near_options(*left.command, name));
}

// The parser's sentences about an option begin with its name.
std::string name_in(std::string_view sentence) { return std::string(sentence.substr(0, sentence.find(':'))); }

std::string wrong_number_of_values(const CLI::App& command, const std::string& name) {
  const CLI::Option* option = command.get_option_no_throw(name);
  if (option == nullptr) return fmt::format("{} has too few values, or too many", printable(name));
  const std::size_t given = option->results().size();
  if (given > static_cast<std::size_t>(option->get_items_expected_max())) {
    return fmt::format("{} was given {} times; it may be given only once", name, given);
  }
  return fmt::format("{0} needs a value: {0} {1}", name, read_argument(*option).value);
}

// "Could not convert: --names = x": only flags come here, since what other options take is checked before.
std::string wrong_value(std::string_view sentence) {
  constexpr std::string_view kStart = "Could not convert: ";
  const std::size_t equals = sentence.find(" = ");
  if (!sentence.starts_with(kStart) || equals == std::string_view::npos) return printable(sentence, 400);
  return fmt::format("{} cannot be '{}'", printable(sentence.substr(kStart.size(), equals - kStart.size())),
                     printable(sentence.substr(equals + 3)));
}

std::string replaced(std::string text, std::string_view part, std::string_view by, std::string_view end) {
  const std::size_t at = text.find(part);
  if (at != std::string::npos) text.replace(at, part.size(), by).append(end);
  return text;
}

std::string sentence_of(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* chosen = chosen_command(app);
  const CLI::App& command = chosen == nullptr ? app : *chosen;
  const std::string said = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return wrong_number_of_values(command, name_in(said));
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) return wrong_value(said);
  if (dynamic_cast<const CLI::RequiresError*>(&error) != nullptr) return replaced(said, " requires ", " needs ", "");
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) {
    return replaced(said, " excludes ", " and ", " exclude each other");
  }
  return printable(said, 400);
}

}  // namespace

std::string parse_mistake(const CLI::App& app, const CLI::ParseError& error) {
  const std::optional<LeftOver> left = left_over(app);
  const CLI::App* chosen = chosen_command(app);
  std::string sentence;
  // Who mistypes a required option leaves it over: that says more than that it is missing.
  const bool missing = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const bool extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (left && left->is_option() && (missing || extra)) {
    sentence = unknown_option(app, *left);
    chosen = left->command == &app ? nullptr : chosen;
  } else if (left && chosen == nullptr) {
    return unknown_command(app, left->word);
  } else if (left && extra) {
    sentence = fmt::format("unexpected argument '{}'", printable(left->word));
  } else {
    sentence = sentence_of(app, error);
  }
  return fmt::format("{} (see quarrel {}--help)", sentence, chosen == nullptr ? "" : chosen->get_name() + " ");
}

}  // namespace quarrel
