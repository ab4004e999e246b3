// quarrel template: renders a chat template, so that one can see what a model is given.

#include <array>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/input.h"
#include "app/terminal.h"
#include "app/workbench.h"
#include "base/error.h"
#include "base/printable.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quarrel {
namespace {

struct TemplateOptions {
  std::string source;
  std::string input;
  std::optional<std::string> bos;
  std::optional<std::string> eos;
  std::string now;
};

struct Source {
  std::string text;
  std::string bos = "<s>";
  std::string eos = "</s>";
};

bool is_template_file(std::string_view name) {
  constexpr std::array<std::string_view, 3> kEndings{".jinja", ".jinja2", ".j2"};
  return std::any_of(kEndings.begin(), kEndings.end(), [&](std::string_view end) { return name.ends_with(end); });
}

Source open_source(const std::string& name, Log& log) {
  if (is_template_file(name)) return {.text = read_input(name, TemplateLimits{}.source_bytes)};
  const GgufFile file = open_model_file(name);
  const auto own = file.string("tokenizer.chat_template");
  if (!own) fail(ErrorKind::not_found, "'{}' has no chat template", printable(name));
  Source source{.text = std::string(*own)};
  if (has_vocabulary(file)) {
    const auto tokenizer = Tokenizer::load(file, log);
    const auto spelling = [&](const std::optional<TokenId>& id) {
      return id ? std::string(tokenizer->spelling(*id)) : std::string();
    };
    source.bos = spelling(tokenizer->special().bos);
    source.eos = spelling(tokenizer->special().eos);
  }
  return source;
}

nlohmann::ordered_json read_variables(const std::string& path) {
  const std::string what = path == "-" ? "standard input" : "'" + printable(path) + "'";
  nlohmann::ordered_json value = parse_json(read_input(path), what);
  if (value.is_array()) {
    auto messages = std::move(value);
    value = nlohmann::ordered_json::object();
    value["messages"] = std::move(messages);
  }
  if (!value.is_object())
    fail(ErrorKind::bad_input, "{} is neither an object of variables nor a list of messages", what);
  if (!value.contains("messages")) value["messages"] = nlohmann::ordered_json::array();
  if (!value.contains("tools")) value["tools"] = nullptr;
  if (!value.contains("add_generation_prompt")) value["add_generation_prompt"] = true;
  return value;
}

int render(const TemplateOptions& options, Log& log) {
  const TemplateClock clock = options.now.empty() ? TemplateClock::now() : TemplateClock::parse(options.now);
  const Source source = open_source(options.source, log);
  nlohmann::ordered_json variables = read_variables(options.input);
  const auto put = [&](const char* name, const std::optional<std::string>& given, const std::string& own) {
    if (given) variables[name] = *given;
    if (!variables.contains(name)) variables[name] = own;
  };
  put("bos_token", options.bos, source.bos);
  put("eos_token", options.eos, source.eos);
  write_output(ChatTemplate::compile(source.text).render(variables, clock).text);
  return 0;
}

}  // namespace

void add_template(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("template", "Render a chat template: print the prompt that a model would get");
  auto options = std::make_shared<TemplateOptions>();
  command->add_option("SOURCE", options->source, "A model, or a Jinja file (.jinja, .jinja2, .j2)")
      ->type_name("MODEL|FILE")
      ->required();
  command
      ->add_option("--input", options->input, "JSON: an object of variables, or a list of messages; -: standard input")
      ->type_name("FILE")
      ->required();
  command->add_option("--bos", options->bos, "The text of bos_token; default: the model's, or <s>")->type_name("TEXT");
  command->add_option("--eos", options->eos, "The text of eos_token; default: the model's, or </s>")->type_name("TEXT");
  command->add_option("--now", options->now, "The date that templates see; default: today")->type_name("YYYY-MM-DD");
  command->footer(
      "Prints the text that a model would be given and nothing else. In the input, messages, tools and\n"
      "add_generation_prompt (default true) have their usual meaning; other variables are passed on.\n\n"
      "Example:\n  echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | quarrel template model.gguf --input -");
  command->callback(
      [options, &context] { context.run = [options, &context] { return render(*options, context.log); }; });
}

}  // namespace quarrel
