// The program: declares the subcommands, runs the one that was chosen, and turns every failure into one sentence on
// standard error and an exit code (command_reference.cpp lists them).

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <new>
#include <system_error>

#include <CLI/CLI.hpp>

#include "app/command_reference.h"
#include "app/commands.h"
#include "app/help_format.h"
#include "app/parse_mistake.h"
#include "app/style.h"
#include "app/terminal.h"
#include "app/text_table.h"
#include "backend/create.h"
#include "base/error.h"
#include "base/printable.h"
#include "quarrel_version.h"

namespace {

using namespace quarrel;

constexpr int kFailure = 1;
constexpr int kUsage = 2;

std::string version_text() {
  return fmt::format("quarrel {} ({}, {}; SIMD: {})", QUARREL_VERSION, QUARREL_COMMIT, QUARREL_BUILD_TYPE,
                     available_isa_levels());
}

void say(std::string_view sentence) {
  write_error(fmt::format("{} {}\n", Palette(Stream::error).paint(Style::error, "error:"), sentence));
}

void add_commands(CLI::App& app, CommandContext& context) {
  add_run(app, context);
  add_serve(app, context);
  add_ps(app, context);
  add_stop(app, context);
  add_config(app, context);
  add_key(app, context);
  add_list(app, context);
  add_pull(app, context);
  add_copy(app, context);
  add_remove(app, context);
  add_inspect(app, context);
  add_estimate(app, context);
  add_tokenize(app, context);
  add_template(app, context);
  add_logits(app, context);
  add_generate(app, context);
  add_embed(app, context);
  add_search(app, context);
  add_datasets(app, context);
  add_perplexity(app, context);
  add_bench(app, context);
  add_convert(app, context);
  add_quantize(app, context);
  add_regress(app, context);
  add_completion(app, context);
  add_help(app, context);
}

// What stands below the list of commands.
std::string footer(std::size_t width) {
  std::string text = "Exit codes:\n";
  for (const NamedText& code : exit_codes()) text += field_line(code.name, code.text, 6, width);
  text += "\nExamples:\n  quarrel run default \"Why is the sky blue?\"\n  quarrel inspect model.gguf\n";
  return text + "\n`quarrel help COMMAND` shows more.";
}

// What the parser throws: a call for help or the version, or a mistake.
int finish_parsing(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() != 0) {
    say(parse_mistake(app, error));
    return kUsage;
  }
  // Not by the parser, which would not notice that it cannot be written.
  const bool version = dynamic_cast<const CLI::CallForVersion*>(&error) != nullptr;
  write_output(version ? version_text() + "\n" : app.help());
  return 0;
}

int parse_and_run(int argc, char** argv) {
  const std::unique_ptr<Log> log = make_stderr_log(LogLevel::warning);
  CommandContext context{.log = *log, .run = {}};
  CLI::App app("Runs language models from GGUF files.", "quarrel");
  app.set_version_flag("--version", version_text, "Print version, commit, build and the SIMD levels of this machine");
  app.set_help_flag("-h,--help", "Print this help");
  app.require_subcommand(0, 1);
  const std::size_t width = help_width();
  app.formatter(std::make_shared<HelpFormat>(width));  // the commands take it over
  app.footer(footer(width));
  add_commands(app, context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return finish_parsing(app, error);
  }
  if (!context.run) {
    write_output(app.help());
    return 0;
  }
  const int code = context.run();
  write_output({});  // what still waits in the buffer must come out, or the failure be told
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  keep_standard_streams();
  // A reader that goes away is told by the write, not by a signal.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return parse_and_run(argc, argv);
  } catch (const Error& error) {
    say(error.what());
    return exit_code(error.kind());
  } catch (const std::bad_alloc&) {
    say("out of memory");
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::broken_pipe) say(error.what());
  } catch (const std::exception& error) {
    say(fmt::format("unexpected: {}", printable(error.what(), 400)));
  }
  return kFailure;
}
