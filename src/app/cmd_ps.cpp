// quarrel ps and quarrel stop: what a running server holds in memory, and letting go of it.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/input.h"
#include "app/progress_bar.h"
#include "app/running_server.h"
#include "app/terminal.h"
#include "app/text_table.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"

namespace quarrel {
namespace {

struct ListCommand {
  GivenSettings given;
  bool json = false;
};

struct StopCommand {
  GivenSettings given;
  std::string model;
};

// "4 minutes", from the server's time of day; "forever" for one that lies beyond every plan.
std::string time_left(const std::string& expires) {
  std::tm broken{};
  if (::strptime(expires.c_str(), "%Y-%m-%dT%H:%M:%S", &broken) == nullptr) return "-";
  const double seconds = std::difftime(::timegm(&broken), std::time(nullptr));
  constexpr double kYear = 365.0 * 86400.0;
  if (seconds > 10 * kYear) return "forever";
  return human_duration(std::max(seconds, 0.0));
}

int list(const ListCommand& command) {
  const std::unique_ptr<ServerClient> client = require_server(command.given);
  const std::vector<HeldModel> models = held_models(*client);
  if (command.json) {
    auto json = nlohmann::ordered_json::array();
    for (const HeldModel& model : models) json.push_back(model.json);
    write_output(dump_json(json) + "\n");
    return 0;
  }
  using Side = TextTable::Side;
  TextTable table({{"NAME"}, {"SIZE", Side::right}, {"CONTEXT", Side::right}, {"STAYS"}});
  for (const HeldModel& model : models) {
    table.add_row(
        {printable(model.name), human_bytes(model.bytes), fmt::format("{}", model.context), time_left(model.expires)});
  }
  write_output(table.text());
  if (models.empty()) write_error(fmt::format("The server at {} holds no model now.\n", client->where()));
  return 0;
}

int stop(const StopCommand& command) {
  const std::unique_ptr<ServerClient> client = require_server(command.given);
  const std::vector<HeldModel> models = held_models(*client);
  const auto found = std::ranges::find_if(models, [&](const HeldModel& model) {
    return model.name == command.model || model.name + ":latest" == command.model;
  });
  if (found == models.end()) {
    std::vector<std::string> names;
    for (const HeldModel& model : models) names.push_back(model.name);
    const std::vector<std::string> near = nearest(command.model, names, 1);
    fail(ErrorKind::not_found, "the server at {} does not hold '{}'{}", client->where(), printable(command.model),
         near.empty() ? "" : fmt::format("; did you mean {}?", near.front()));
  }
  const nlohmann::ordered_json body{{"model", found->name}, {"messages", nlohmann::json::array()}, {"keep_alive", 0}};
  const ServerAnswer answer = client->call("POST", "/api/chat", body.dump());
  if (answer.status != 200) fail(ErrorKind::io, "the server at {} refuses: {}", client->where(), error_of(answer));
  write_error(fmt::format("{} is unloaded; answers that it is giving are finished first.\n", printable(found->name)));
  return 0;
}

}  // namespace

void add_ps(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("ps", "List the models that a running server holds in memory");
  auto options = std::make_shared<ListCommand>();
  command->add_flag("--json", options->json, "A JSON array");
  add_address_options(*command, options->given);
  command->footer(
      "The settings say where the server is: its Unix socket is tried first, unless a host or a port is named.\n"
      "--host also takes a whole address; https means TLS.\n\nExamples:\n  quarrel ps\n"
      "  quarrel ps --port 8081\n  quarrel ps --host https://models.example:8443");
  command->callback([options, &context] { context.run = [options] { return list(*options); }; });
}

void add_stop(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("stop", "Make a running server unload a model");
  auto options = std::make_shared<StopCommand>();
  command->add_option("MODEL", options->model, "Its name, as ps lists it")->required();
  add_address_options(*command, options->given);
  command->footer(
      "The server keeps running, and loads the model again when it is asked for. It is found as by `quarrel ps`.\n\n"
      "Examples:\n  quarrel stop default\n  quarrel stop default --port 8081");
  command->callback([options, &context] { context.run = [options] { return stop(*options); }; });
}

}  // namespace quarrel
