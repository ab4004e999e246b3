// quarrel convert: makes a GGUF file of a model's folder with safetensors.

#include <fmt/format.h>

#include <memory>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/conversion.h"
#include "app/terminal.h"
#include "app/value_checks.h"
#include "convert/convert.h"
#include "convert/hugging_face_names.h"

namespace quarrel {
namespace {

struct ConvertArguments {
  std::string folder;
  std::string output;
  std::string type;
  std::string name;
  bool force = false;
};

int convert(const ConvertArguments& arguments, Log& log) {
  const TargetType* type = arguments.type.empty() ? nullptr : &find_target_type(arguments.type);
  return run_conversion([&](const RecodeOptions& recode) {
    const ConvertOptions options{.name = arguments.name, .type = type, .overwrite = arguments.force, .recode = recode};
    const ConvertedModel model = convert_folder(arguments.folder, arguments.output, options, log);
    const std::string what = fmt::format("{} as {}", model.architecture, model.type);
    write_output(conversion_summary(arguments.output, what, model.written));
  });
}

}  // namespace

void add_convert(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("convert", "Convert a folder with safetensors to a GGUF file");
  auto arguments = std::make_shared<ConvertArguments>();
  command
      ->add_option("FOLDER", arguments->folder,
                   "A folder with config.json, model.safetensors or its parts, and a tokenizer")
      ->required();
  command->add_option("-o,--output", arguments->output, "The file to write")
      ->required()
      ->check(not_standard_output())
      ->type_name("FILE");
  command->add_option("--type", arguments->type, "The type of the matrices; default: as they are stored")
      ->type_name("TYPE");
  command->add_option("--name", arguments->name, "The model's name; default: the folder's")->type_name("NAME");
  command->add_flag("--force", arguments->force, "Overwrite the file");
  std::string classes;
  for (const ModelFamily& family : model_families()) classes += fmt::format("\n  {}", family.class_name);
  command->footer(
      fmt::format("Types: {}\n\nModel classes:{}\n\nExample:\n  quarrel convert Qwen3-0.6B -o qwen3.gguf "
                  "--type Q8_0",
                  target_type_names(), classes));
  command->callback(
      [arguments, &context] { context.run = [arguments, &context] { return convert(*arguments, context.log); }; });
}

}  // namespace quarrel
