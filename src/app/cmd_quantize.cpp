// quarrel quantize: makes a GGUF file of another, with weights of another type.

#include <fmt/format.h>

#include <memory>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/conversion.h"
#include "app/terminal.h"
#include "app/value_checks.h"
#include "app/workbench.h"
#include "convert/quantize.h"

namespace quarrel {
namespace {

struct QuantizeArguments {
  std::string model;
  std::string output;
  std::string type;
  bool force = false;
};

int quantize(const QuantizeArguments& arguments, Log& log) {
  const TargetType& type = find_target_type(arguments.type);
  const GgufFile file = open_model_file(arguments.model);
  return run_conversion([&](const RecodeOptions& recode) {
    const QuantizeOptions options{.overwrite = arguments.force, .recode = recode};
    const WrittenModel written = quantize_file(file, arguments.output, type, options, log);
    write_output(conversion_summary(arguments.output, std::string(type.name), written));
  });
}

}  // namespace

void add_quantize(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("quantize", "Quantise a model: write its weights as another type");
  auto arguments = std::make_shared<QuantizeArguments>();
  command->add_option("MODEL", arguments->model, "A GGUF file or the name of a model")->required();
  command->add_option("FILE", arguments->output, "The file to write")->required()->check(not_standard_output());
  command->add_option("TYPE", arguments->type, "The new type of the matrices")->required();
  command->add_flag("--force", arguments->force, "Overwrite the file");
  command->footer(fmt::format(
      "Types: {}\n\nThe _M types give more bits to the tensors that are most sensitive to rounding.\n\nExample:\n"
      "  quarrel quantize model-f16.gguf model-q4.gguf Q4_K_M",
      target_type_names()));
  command->callback(
      [arguments, &context] { context.run = [arguments, &context] { return quantize(*arguments, context.log); }; });
}

}  // namespace quarrel
