// How `--help` is laid out: names to the left, what they mean to the right, broken between words at the width of the
// terminal. Made by main. One thread.
#pragma once

#include <cstddef>

#include <CLI/CLI.hpp>

namespace quarrel {

// Columns for a text on standard output: the terminal's, or what is well read in a file.
std::size_t help_width();

class HelpFormat final : public CLI::Formatter {
 public:
  explicit HelpFormat(std::size_t width) : width_(width) {}

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
  std::string make_option(const CLI::Option* option, bool positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  // Lines that begin with a blank are shown as they are; the others are paragraphs.
  std::string make_footer(const CLI::App* app) const override;

 private:
  std::string entry(std::string_view name, std::string_view meaning) const;

  std::size_t width_;
};

}  // namespace quarrel
