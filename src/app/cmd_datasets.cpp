// `quarrel datasets`: what a Longbow holds.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/input.h"
#include "app/longbow_flags.h"
#include "app/progress_bar.h"
#include "app/terminal.h"
#include "app/text_table.h"
#include "base/error.h"
#include "base/printable.h"

namespace quarrel {
namespace {

struct DatasetsCommand {
  std::string address;
  bool json = false;
  LongbowFlags longbow;
};

struct Dataset {
  DatasetInfo info;
  Readiness readiness;
};

const char* state_word(ReadyState state) noexcept {
  switch (state) {
    case ReadyState::ready: return "ready";
    case ReadyState::busy: return "busy";
    case ReadyState::missing: return "missing";
  }
  return "missing";
}

nlohmann::ordered_json json_of(const Dataset& dataset) {
  nlohmann::ordered_json object{{"name", dataset.info.name}};
  object["rows"] =
      dataset.readiness.indexed ? nlohmann::ordered_json(*dataset.readiness.indexed) : nlohmann::ordered_json(nullptr);
  object["batches"] = dataset.info.batches;
  object["bytes"] = dataset.info.bytes;
  object["state"] = state_word(dataset.readiness.state);
  return object;
}

std::string table_of(const std::vector<Dataset>& datasets) {
  using Side = TextTable::Side;
  TextTable table({{"NAME"}, {"ROWS", Side::right}, {"BATCHES", Side::right}, {"SIZE", Side::right}, {"STATE"}});
  for (const Dataset& dataset : datasets) {
    const auto& rows = dataset.readiness.indexed;
    table.add_row({printable(dataset.info.name), rows ? fmt::format("{}", *rows) : "-",
                   fmt::format("{}", dataset.info.batches),
                   human_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(0, dataset.info.bytes))),
                   state_word(dataset.readiness.state)});
  }
  return table.text();
}

nlohmann::ordered_json schema_json(const StoredSchema& schema) {
  nlohmann::ordered_json object{{"dimension", schema.dimension}, {"columns", nlohmann::ordered_json::object()}};
  for (const ColumnInfo& column : schema.columns) object["columns"][column.name] = column.type;
  for (const auto& [name, value] : schema.properties) object["properties"][name] = value;
  return object;
}

std::string schema_text(const StoredSchema& schema) {
  TextTable table({{"COLUMN"}, {"TYPE"}});
  for (const ColumnInfo& column : schema.columns) table.add_row({printable(column.name), printable(column.type)});
  std::string text = "\n" + table.text();
  for (const auto& [name, value] : schema.properties) {
    text += fmt::format("{} = {}\n", printable(name), printable(value));
  }
  return text;
}

// One dataset in full where the address names one, otherwise all of them.
int run_datasets(const DatasetsCommand& command) {
  const LongbowAddress address = read_longbow_address(command.address, DatasetPart::optional);
  const std::unique_ptr<LongbowClient> client = open_longbow(address, command.longbow);
  const bool one = !address.dataset.empty();
  std::vector<Dataset> datasets;
  for (const std::string& name : one ? std::vector<std::string>{address.dataset} : client->datasets()) {
    Dataset& dataset = datasets.emplace_back(Dataset{.info = client->info(name), .readiness = client->readiness(name)});
    dataset.info.name = name;
  }
  const std::optional<StoredSchema> schema = one ? client->schema(address.dataset) : std::nullopt;
  if (command.json && one) {
    nlohmann::ordered_json object = json_of(datasets.front());
    if (schema) object["schema"] = schema_json(*schema);
    write_output(dump_json(object) + "\n");
    return 0;
  }
  if (command.json) {
    auto array = nlohmann::ordered_json::array();
    for (const Dataset& dataset : datasets) array.push_back(json_of(dataset));
    write_output(dump_json(array) + "\n");
    return 0;
  }
  write_output(table_of(datasets) + (schema ? schema_text(*schema) : std::string()));
  if (datasets.empty()) write_error("There are no datasets.\n");
  return 0;
}

}  // namespace

void add_datasets(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<DatasetsCommand>();
  CLI::App* command =
      app.add_subcommand("datasets", "List the datasets of a Longbow server, or what one of them holds");
  command->add_option("ADDRESS", options->address, "longbow://host[:3000][/dataset][?meta=3001]")->required();
  command->add_flag("--json", options->json, "JSON instead of tables");
  add_longbow_flags(*command, options->longbow);
  command->footer(
      "Examples:\n  quarrel datasets longbow://localhost\n  quarrel datasets longbow://localhost/notes --json");
  command->callback([options, &context] { context.run = [options] { return run_datasets(*options); }; });
}

}  // namespace quarrel
