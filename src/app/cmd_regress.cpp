// `quarrel regress`: a suite of models, prompts and limits; says which are kept and fails when one is not.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/input.h"
#include "app/model_options.h"
#include "app/regress_checks.h"
#include "app/value_checks.h"
#include "app/workbench.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/output_file.h"
#include "base/printable.h"

namespace quarrel {
namespace {

constexpr const char* kModelsVariable = "QUARREL_TEST_MODELS";

struct RegressCommand {
  std::string suite;
  ModelOptions options;
  std::string report;
  bool json = false;
};

std::vector<std::string> split_names(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view name = text.substr(0, comma);
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    if (!name.empty()) names.emplace_back(name);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return names;
}

// The suite's own models, or those that the environment names with the suite's generic checks.
std::vector<SuiteModel> models_to_check(const Suite& suite) {
  const auto named = environment(kModelsVariable);
  if (!named || named->empty()) {
    if (suite.models.empty()) {
      fail(ErrorKind::bad_input, "the suite lists no models ([[models]]), and {} names none", kModelsVariable);
    }
    return suite.models;
  }
  if (!suite.generic) {
    fail(ErrorKind::bad_input, "{} is set, but the suite has no [generic] checks for the models it names",
         kModelsVariable);
  }
  std::vector<SuiteModel> models;
  for (const std::string& name : split_names(*named)) {
    SuiteModel& model = models.emplace_back(*suite.generic);
    model.name = name;
  }
  if (models.empty()) fail(ErrorKind::bad_input, "{} names no model", kModelsVariable);
  return models;
}

nlohmann::ordered_json to_json(const CheckResult& result) {
  nlohmann::ordered_json value{{"model", result.model},   {"check", result.check},     {"subject", result.subject},
                               {"passed", result.passed}, {"summary", result.summary}, {"seconds", result.seconds}};
  if (result.skipped) value["skipped"] = true;
  if (!result.details.is_null()) value.update(result.details);
  return value;
}

std::string to_line(const CheckResult& result) {
  if (result.skipped) return fmt::format("skip  {}: {}\n", printable(result.model), result.summary);
  return fmt::format("{:4}  {}: {}{}{}: {}\n", result.passed ? "ok" : "MISS", printable(result.model), result.check,
                     result.subject.empty() ? "" : " ", printable(result.subject), printable(result.summary, 400));
}

std::string summary(std::size_t total, std::size_t missed, std::size_t skipped) {
  std::string text = total == 0    ? "no check was made"
                     : missed == 0 ? fmt::format("all {} checks passed", total)
                                   : fmt::format("{} of {} checks missed", missed, total);
  if (skipped > 0) text += fmt::format("; {} {} not here", skipped, skipped == 1 ? "model is" : "models are");
  return text + "\n";
}

int run_regress(const RegressCommand& command, Log& log, const Interrupts& interrupts) {
  const std::filesystem::path path = command.suite;
  const Suite suite = load_suite(path);
  const ModelOptions& options = command.options;
  const std::string backend = options.device.empty() ? options.backend : parse_device(options.device).backend;
  const RegressContext context{.options = options, .folder = path.parent_path(), .log = log, .interrupts = interrupts};
  auto checks = nlohmann::ordered_json::array();
  std::size_t missed = 0;
  std::size_t skipped = 0;
  for (const SuiteModel& model : models_to_check(suite)) {
    run_checks(model, suite, context, [&](const CheckResult& result) {
      checks.push_back(to_json(result));
      if (result.skipped) {
        ++skipped;
      } else if (!result.passed) {
        ++missed;
      }
      if (!command.json) write_output(to_line(result));
    });
  }
  const std::size_t total = checks.size() - skipped;
  const std::string report = dump_json({{"suite", command.suite},
                                        {"backend", backend},
                                        {"passed", missed == 0},
                                        {"missed", missed},
                                        {"skipped", skipped},
                                        {"checks", std::move(checks)}}) +
                             "\n";
  if (!command.report.empty()) {
    OutputFile file(command.report);
    file.write(std::as_bytes(std::span(report)));
    file.commit();
  }
  if (command.json) {
    write_output(report);
  } else {
    write_output(summary(total, missed, skipped));
  }
  return missed == 0 ? 0 : 1;
}

}  // namespace

void add_regress(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<RegressCommand>();
  CLI::App* command = app.add_subcommand("regress", "Check models against a suite of limits");
  command->add_option("SUITE", options->suite, "A TOML file: models, prompts and limits (docs/regress.md)")->required();
  command->add_option("--report", options->report, "Write a JSON report to this file")
      ->check(not_standard_output())
      ->check(not_empty())
      ->type_name("FILE");
  command->add_flag("--json", options->json, "The report on standard output instead of lines for people");
  add_model_options(*command, options->options);
  command->footer(
      "QUARREL_TEST_MODELS=name,... runs the suite's generic checks on those models instead of the listed ones.\n\n"
      "Example:\n  quarrel regress suite.toml --report report.json");
  command->callback([options, &context] {
    context.run = [options, &context] {
      return run_interruptible(
          [&](const Interrupts& interrupts) { return run_regress(*options, context.log, interrupts); });
    };
  });
}

}  // namespace quarrel
