#include "app/man_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace quarrel {
namespace {

// Text that roff shows as it stands: a dash that can be copied, no line that reads as a request.
std::string escaped(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool line_starts = i == 0 || text[i - 1] == '\n';
    if (line_starts && (text[i] == '.' || text[i] == '\'')) result += "\\&";
    if (text[i] == '\\') {
      result += "\\e";
    } else if (text[i] == '-') {
      result += "\\-";
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string bold(std::string_view text) { return fmt::format("\\fB{}\\fR", escaped(text)); }
std::string italic(std::string_view text) { return fmt::format("\\fI{}\\fR", escaped(text)); }

std::string capitals(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

std::string synopsis(const ProgramReference& program, const CommandReference& command) {
  std::string line = bold(program.name + " " + command.name) + " [" + italic("options") + "]";
  for (const ArgumentReference& argument : command.positionals) {
    const std::string name = italic(argument.value) + (argument.repeats ? "..." : "");
    line += argument.required ? " " + name : " [" + name + "]";
  }
  return line;
}

std::string argument_entry(const ArgumentReference& argument, bool positional) {
  std::string head;
  for (const std::string& name : argument.names) {
    head += head.empty() ? "" : ", ";
    head += positional ? italic(name) : bold(name);
  }
  if (!positional && !argument.value.empty()) head += " " + italic(argument.value);
  return fmt::format(".TP\n{}\n{}\n", head, escaped(explained(argument)));
}

std::string command_section(const ProgramReference& program, const CommandReference& command) {
  std::string text = fmt::format(".SS {}\n{}\n.PP\n{}.\n", escaped(command.name), synopsis(program, command),
                                 escaped(command.description));
  if (!command.aliases.empty()) {
    std::string names;
    for (const std::string& alias : command.aliases) names += (names.empty() ? "" : ", ") + bold(alias);
    text += fmt::format("Also called {}.\n", names);
  }
  for (const ArgumentReference& argument : command.positionals) text += argument_entry(argument, true);
  for (const ArgumentReference& argument : command.options) {
    const bool is_help = std::ranges::find(argument.names, "--help") != argument.names.end();
    if (!is_help) text += argument_entry(argument, false);
  }
  if (!command.footer.empty()) text += fmt::format(".PP\n.nf\n{}\n.fi\n", escaped(command.footer));
  return text;
}

std::string named_section(std::string_view title, std::span<const NamedText> entries) {
  std::string text = fmt::format(".SH {}\n", title);
  for (const NamedText& entry : entries) text += fmt::format(".TP\n{}\n{}\n", bold(entry.name), escaped(entry.text));
  return text;
}

}  // namespace

std::string man_page(const ProgramReference& program) {
  std::string summary = program.description;
  if (summary.ends_with('.')) summary.pop_back();
  if (!summary.empty()) summary[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(summary[0])));
  std::string text = fmt::format(".TH {} 1 \"\" \"{} {}\" \"User Commands\"\n", capitals(program.name), program.name,
                                 escaped(program.version));
  text += fmt::format(".SH NAME\n{} \\- {}\n", program.name, escaped(summary));
  text += fmt::format(".SH SYNOPSIS\n{} {} [{}]\n", bold(program.name), italic("command"), italic("options"));
  text += ".SH OPTIONS\n";
  for (const ArgumentReference& option : program.options) text += argument_entry(option, false);
  text += ".SH COMMANDS\n";
  for (const CommandReference& command : program.commands) text += command_section(program, command);
  text += named_section("EXIT STATUS", exit_codes());
  text += named_section("ENVIRONMENT", environment_variables());
  return text;
}

}  // namespace quarrel
