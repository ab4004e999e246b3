// quarrel tokenize: standard input to token ids, and back.

#include <fmt/ranges.h>

#include <memory>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/input.h"
#include "app/terminal.h"
#include "app/token_list.h"
#include "app/workbench.h"
#include "base/error.h"
#include "text/tokenizer.h"

namespace quarrel {
namespace {

struct TokenizeOptions {
  std::string model;
  bool special = false;
  bool parse_special = false;
  bool decode = false;
};

// Nothing but brackets and blanks: the ids of an empty text.
bool is_empty_list(std::string_view text) { return text.find_first_not_of(" \t\r\n[]") == std::string_view::npos; }

int tokenize(const TokenizeOptions& options, Log& log) {
  const GgufFile file = open_model_file(options.model);
  const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::load(file, log);
  const std::string input = read_standard_input();
  if (options.decode) {
    if (is_empty_list(input)) return 0;
    const std::vector<TokenId> ids = parse_token_list(input);
    check_token_ids(ids, static_cast<std::int32_t>(tokenizer->size()));
    write_output(tokenizer->decode(ids, options.special));
    return 0;
  }
  const std::vector<TokenId> ids =
      tokenizer->encode(input, {.add_special = options.special, .parse_special = options.parse_special});
  write_output(fmt::format("[{}]\n", fmt::join(ids, ", ")));
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("tokenize", "Turn text from standard input into token ids, or back");
  auto options = std::make_shared<TokenizeOptions>();
  command->add_option("MODEL", options->model, "A GGUF file (a vocabulary is enough) or the name of a model")
      ->required();
  command->add_flag("--special", options->special,
                    "Add the tokens that begin and end a text; with --decode, show control tokens");
  command->add_flag("--parse-special", options->parse_special, "Read the text of control tokens as those tokens");
  command->add_flag("--decode", options->decode,
                    "Read ids (a JSON array, or separated by blanks) and print their text");
  command->footer(
      "Prints a JSON array of ids; with --decode the text and nothing else.\n\nExample:\n"
      "  echo -n 'Hello world' | quarrel tokenize model.gguf\n"
      "  echo '[9707, 1917]' | quarrel tokenize model.gguf --decode");
  command->callback(
      [options, &context] { context.run = [options, &context] { return tokenize(*options, context.log); }; });
}

}  // namespace quarrel
