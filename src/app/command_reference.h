// The commands and their options as plain values: read from the declarations that `--help` shows, and turned into
// completion scripts and the manual page, so that there is one table for all of them. One thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quarrel {

// What completes an argument.
enum class ArgumentKind { text, choice, model, file, folder };

struct ArgumentReference {
  std::vector<std::string> names;  // "-t", "--threads"; of a positional the one it has in the usage line, "MODEL"
  std::string value;               // how the help calls its value; empty for a flag
  std::string description;
  std::string fallback;  // its default as the help shows it
  ArgumentKind kind = ArgumentKind::text;
  std::vector<std::string> choices;
  bool required = false;
  bool repeats = false;
  std::vector<std::string> needs = {};  // options that must be given too
  std::vector<std::string> excludes = {};
};

struct CommandReference {
  std::string name;
  std::vector<std::string> aliases;
  std::string description;
  std::vector<ArgumentReference> positionals;
  std::vector<ArgumentReference> options;
  std::string footer;
};

// Its name, then its other names.
std::vector<std::string> spellings(const CommandReference& command);

struct ProgramReference {
  std::string name;
  std::string version;
  std::string description;
  std::vector<ArgumentReference> options;
  std::vector<CommandReference> commands;
};

ProgramReference read_reference(const CLI::App& app, std::string version);
ArgumentReference read_argument(const CLI::Option& option);

// What the help and the manual page say of it: its description, the words it may be unless that has them, its default,
// and which other options it goes with.
std::string explained(const ArgumentReference& argument);

// What the whole program documents once: shown by the help and the manual page.
struct NamedText {
  std::string_view name;
  std::string_view text;
};
std::span<const NamedText> exit_codes() noexcept;
std::span<const NamedText> environment_variables() noexcept;

// "there is no command 'inspekt'; did you mean inspect?" A question is told where questions go.
std::string unknown_command(const CLI::App& app, const std::string& word);

// What to say to somebody who has asked a question where it cannot be asked.
std::string way_to_ask(const std::string& question);

}  // namespace quarrel
