#include "app/help_format.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "app/command_reference.h"
#include "app/terminal.h"
#include "app/text_table.h"

namespace quarrel {
namespace {

constexpr std::size_t kWidthOfFiles = 100;
constexpr std::size_t kLeastWidth = 40;
constexpr std::size_t kIndent = 30;        // where meanings begin
constexpr std::size_t kNarrow = 70;        // below it they
constexpr std::size_t kNarrowIndent = 10;  // begin here

}  // namespace

std::size_t help_width() {
  if (!is_terminal(Stream::output)) return kWidthOfFiles;
  return std::max(static_cast<std::size_t>(terminal_columns(Stream::output)), kLeastWidth);
}

std::string HelpFormat::entry(std::string_view name, std::string_view meaning) const {
  return field_line(name, meaning, width_ < kNarrow ? kNarrowIndent : kIndent, width_);
}

std::string HelpFormat::make_option(const CLI::Option* option, bool positional) const {
  const ArgumentReference argument = read_argument(*option);
  std::string name = fmt::format("{}", fmt::join(argument.names, ","));
  if (!positional && !argument.value.empty()) name += " " + argument.value;
  if (argument.repeats) name += " ...";
  const bool must = !positional && argument.required;
  return entry(name, explained(argument) + (must ? "; required" : ""));
}

std::string HelpFormat::make_subcommand(const CLI::App* command) const {
  return entry(command->get_display_name(true), command->get_description());
}

std::string HelpFormat::make_footer(const CLI::App* app) const {
  std::istringstream lines(app->get_footer());
  std::string text;
  std::string paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) text += wrap_words({}, paragraph, 0, width_);
    paragraph.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == ' ') {
      end_paragraph();
      text += line + "\n";
    } else {
      paragraph += (paragraph.empty() ? "" : " ") + line;
    }
  }
  end_paragraph();
  return text;
}

std::string HelpFormat::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
  // Between two groups of options the parser leaves two lines.
  for (std::size_t at = text.find("\n\n\n"); at != std::string::npos; at = text.find("\n\n\n")) text.erase(at, 1);
  return text;
}

}  // namespace quarrel
