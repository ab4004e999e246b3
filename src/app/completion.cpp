#include "app/completion.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace quarrel {
namespace {

// Unlike bash and zsh, fish reads a backslash inside single quotes.
std::string fish_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

// A word of zsh's _arguments: what its syntax uses stands behind a backslash.
std::string zsh_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string all_names(const std::vector<ArgumentReference>& options) {
  std::vector<std::string> names;
  for (const ArgumentReference& option : options) names.insert(names.end(), option.names.begin(), option.names.end());
  return fmt::format("{}", fmt::join(names, " "));
}

// --- bash

std::string bash_action(const ArgumentReference& argument) {
  switch (argument.kind) {
    case ArgumentKind::choice:
      return fmt::format("_quarrel_words {}", shell_quoted(fmt::format("{}", fmt::join(argument.choices, " "))));
    case ArgumentKind::model: return "_quarrel_models";
    case ArgumentKind::file: return "_quarrel_files -f";
    case ArgumentKind::folder: return "_quarrel_files -d";
    case ArgumentKind::text: return ":";
  }
  return ":";
}

std::string bash_command(const CommandReference& command) {
  std::string values;
  std::string cases;
  for (const ArgumentReference& option : command.options) {
    if (option.value.empty()) continue;
    values += fmt::format(" {}", fmt::join(option.names, " "));
    cases += fmt::format("        {}) {}; return ;;\n", fmt::join(option.names, "|"), bash_action(option));
  }
  std::string positionals;
  for (std::size_t i = 0; i < command.positionals.size(); ++i) {
    const ArgumentReference& argument = command.positionals[i];
    const std::string number = argument.repeats ? "*" : fmt::format("{}", i);
    positionals += fmt::format("        {}) {} ;;\n", number, bash_action(argument));
  }
  std::string text = fmt::format("    {})\n", fmt::join(spellings(command), "|"));
  text += fmt::format("      _quarrel_place {}\n", shell_quoted(values + " "));
  if (!cases.empty()) text += fmt::format("      case $prev in\n{}      esac\n", cases);
  text += fmt::format("      if [[ $cur == -* ]]; then _quarrel_words {}; return; fi\n",
                      shell_quoted(all_names(command.options)));
  if (!positionals.empty()) text += fmt::format("      case $place in\n{}      esac\n", positionals);
  return text + "      ;;\n";
}

constexpr std::string_view kBashStart = R"bash(# bash completion for quarrel, made by `quarrel completion bash`
_quarrel_words() { COMPREPLY=($(compgen -W "$1" -- "$cur")); }
# Offers those lines of standard input that go on from what is typed, so that the shell will read them as they are:
# a name may hold whatever a file's name may. With $1 files, folders end in a slash.
_quarrel_offer() {
  local line text
  while IFS= read -r line; do
    [[ $line == "$typed"* ]] || continue
    case $quote in
      \') [[ $line != *\'* ]] || continue; text=$line ;;
      \") text=${line//\\/\\\\}; text=${text//\"/\\\"}; text=${text//\$/\\\$}; text=${text//\`/\\\`} ;;
      *) printf -v text %q "$line"; text=${text/#\\~\//\~/} ;;
    esac
    if [[ $1 == files && -d ${line/#~\//$HOME/} ]]; then text+=/; compopt -o nospace 2> /dev/null; fi
    # For bash a word begins behind a colon, and only what begins there is replaced.
    if [[ -z $quote && $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then text=${text#"${cur%"${cur##*:}"}"}; fi
    COMPREPLY+=("$text")
  done
}
_quarrel_files() { _quarrel_offer files < <(compgen "$1" -- "$typed"); }
_quarrel_models() {
  _quarrel_offer names < <("${COMP_WORDS[0]}" list --names 2> /dev/null)
  _quarrel_files -f
}
# Sets words: the command line up to the cursor, cut where it has blanks and not at the colons of names.
_quarrel_join() {
  local word last=-1 line=${COMP_LINE:0:COMP_POINT}
  words=()
  for word in "${COMP_WORDS[@]:0:COMP_CWORD + 1}"; do
    if [[ $last -ge 0 && $line != [[:blank:]]* && ($word == :* || ${words[last]} == *:) ]]; then
      words[last]+=$word
    else
      words[++last]=$word
    fi
    line=${line#"${line%%[![:blank:]]*}"}
    line=${line#"$word"}
  done
}
# Sets place: how many arguments stand before this one that belong to no option. $1 lists the options with a value.
_quarrel_place() {
  local i
  place=0
  for ((i = 2; i < ${#words[@]} - 1; ++i)); do
    if [[ $1 == *" ${words[i]} "* ]]; then ((++i)); elif [[ ${words[i]} != -* ]]; then ((++place)); fi
  done
}
_quarrel() {
  local IFS=$' \t\n' words place
  _quarrel_join
  local cur=${words[${#words[@]} - 1]} prev=${words[${#words[@]} - 2]} quote= typed
  case $cur in
    [\'\"]*) quote=${cur:0:1}; typed=${cur:1} ;;
    *) typed=${cur//\\/} ;;
  esac
  COMPREPLY=()
)bash";

// --- zsh

std::string zsh_action(const ArgumentReference& argument) {
  switch (argument.kind) {
    case ArgumentKind::choice: return fmt::format("({})", fmt::join(argument.choices, " "));
    case ArgumentKind::model: return "_quarrel_models";
    case ArgumentKind::file: return "_files";
    case ArgumentKind::folder: return "_files -/";
    case ArgumentKind::text: return " ";
  }
  return " ";
}

std::string zsh_option(const ArgumentReference& option) {
  std::string text;
  for (const std::string& name : option.names) {
    std::string spec;
    if (option.names.size() > 1) spec = fmt::format("({})", fmt::join(option.names, " "));
    spec += fmt::format("{}[{}]", name, zsh_text(option.description));
    if (!option.value.empty()) spec += fmt::format(":{}:{}", zsh_text(option.value), zsh_action(option));
    text += fmt::format(" \\\n            {}", shell_quoted(spec));
  }
  return text;
}

std::string zsh_command(const CommandReference& command) {
  std::string text = fmt::format("        {})\n          _arguments", fmt::join(spellings(command), "|"));
  for (const ArgumentReference& option : command.options) text += zsh_option(option);
  for (std::size_t i = 0; i < command.positionals.size(); ++i) {
    const ArgumentReference& argument = command.positionals[i];
    const std::string place = argument.repeats ? "*" : fmt::format("{}", i + 1);
    text += fmt::format(" \\\n            {}",
                        shell_quoted(fmt::format("{}:{}:{}", place, zsh_text(argument.value), zsh_action(argument))));
  }
  return text + "\n          ;;\n";
}

// --- fish

std::string fish_values(const ArgumentReference& argument) {
  switch (argument.kind) {
    case ArgumentKind::choice:
      return fmt::format(" -x -a {}", fish_quoted(fmt::format("{}", fmt::join(argument.choices, " "))));
    case ArgumentKind::model: return " -r -F -a '(__quarrel_models)'";
    case ArgumentKind::file: return " -r -F";
    case ArgumentKind::folder: return " -x -a '(__fish_complete_directories)'";
    case ArgumentKind::text: return " -x";
  }
  return "";
}

std::string fish_option(const ArgumentReference& option, const std::string& condition) {
  std::string text = fmt::format("complete -c quarrel -n {}", fish_quoted(condition));
  for (const std::string& name : option.names) {
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!option.value.empty()) text += fish_values(option);
  return fmt::format("{} -d {}\n", text, fish_quoted(option.description));
}

// Fish offers an argument's words wherever an argument may stand: it does not count them.
std::string fish_positionals(const CommandReference& command, const std::string& condition) {
  std::string text;
  for (const ArgumentReference& argument : command.positionals) {
    if (argument.kind == ArgumentKind::text) continue;
    std::string values = fish_values(argument);
    values.erase(0, values.find(' ', 1));  // not -r or -x: nothing is required of an argument
    if (argument.kind != ArgumentKind::model && argument.kind != ArgumentKind::file) values = " -f" + values;
    text += fmt::format("complete -c quarrel -n {}{}\n", fish_quoted(condition), values);
  }
  return text;
}

}  // namespace

std::string shell_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string bash_completion(const ProgramReference& program) {
  std::vector<std::string> names;
  for (const CommandReference& command : program.commands) {
    for (const std::string& name : spellings(command)) names.push_back(name);
  }
  std::string text(kBashStart);
  text += fmt::format("  if ((${{#words[@]}} == 2)); then _quarrel_words {}; return; fi\n",
                      shell_quoted(fmt::format("{} {}", fmt::join(names, " "), all_names(program.options))));
  text += "  case ${words[1]} in\n";
  for (const CommandReference& command : program.commands) text += bash_command(command);
  return text + "  esac\n}\ncomplete -F _quarrel quarrel\n";
}

std::string zsh_completion(const ProgramReference& program) {
  std::string text = "#compdef quarrel\n# zsh completion for quarrel, made by `quarrel completion zsh`\n";
  text +=
      "_quarrel_models() {\n  local -a names\n  names=(${(f)\"$(quarrel list --names 2> /dev/null)\"})\n"
      "  _alternative 'models:model:compadd -a names' 'files:file:_files'\n}\n";
  text += "_quarrel() {\n  local state line\n  local -a commands\n  commands=(\n";
  for (const CommandReference& command : program.commands) {
    for (const std::string& name : spellings(command)) {
      text += fmt::format("    {}\n", shell_quoted(fmt::format("{}:{}", name, zsh_text(command.description))));
    }
  }
  text += "  )\n  _arguments -C";
  for (const ArgumentReference& option : program.options) text += zsh_option(option);
  text += " \\\n    '1:command:->command' '*::argument:->argument'\n";
  text += "  case $state in\n    command) _describe command commands ;;\n    argument)\n      case $words[1] in\n";
  for (const CommandReference& command : program.commands) text += zsh_command(command);
  return text +
         "      esac\n      ;;\n  esac\n}\n"
         "if [[ $funcstack[1] == _quarrel ]]; then _quarrel \"$@\"; else compdef _quarrel quarrel; fi\n";
}

std::string fish_completion(const ProgramReference& program) {
  std::string text =
      "# fish completion for quarrel, made by `quarrel completion fish`\n"
      "function __quarrel_models\n    quarrel list --names 2> /dev/null\nend\n"
      "complete -c quarrel -n __fish_use_subcommand -f\n";
  for (const ArgumentReference& option : program.options) text += fish_option(option, "__fish_use_subcommand");
  for (const CommandReference& command : program.commands) {
    text += fmt::format("complete -c quarrel -n __fish_use_subcommand -f -a {} -d {}\n",
                        fish_quoted(fmt::format("{}", fmt::join(spellings(command), " "))),
                        fish_quoted(command.description));
    const std::string condition = fmt::format("__fish_seen_subcommand_from {}", fmt::join(spellings(command), " "));
    for (const ArgumentReference& option : command.options) text += fish_option(option, condition);
    text += fish_positionals(command, condition);
  }
  return text;
}

}  // namespace quarrel
