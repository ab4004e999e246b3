// `quarrel serve`: models over HTTP until Ctrl-C or SIGTERM.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <thread>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/hangups.h"
#include "app/settings_in_force.h"
#include "app/terminal.h"
#include "base/environment.h"
#include "base/error.h"
#include "quarrel_version.h"
#include "server/server.h"

namespace quarrel {
namespace {

// For requests to hear that the device is lost.
constexpr std::chrono::seconds kLastWords{1};

struct ServeCommand {
  std::vector<std::string> models;
  GivenSettings given;
};

int run(const ServeCommand& command) {
  Interrupts interrupts;
  Hangups hangups;
  const ServeSettings settings = settings_in_force(command.given, environment).settings;
  ServeOptions options = serve_options(settings);
  const http::TlsFiles& tls = options.http.tls;
  if (tls.certificate.empty() != tls.key.empty()) {
    fail(ErrorKind::usage, "--tls-cert and --tls-key go together: a certificate is of no use without its key");
  }
  const bool encrypted = !tls.certificate.empty();
  options.service.models = command.models;
  options.service.version = QUARREL_VERSION;
  options.watch.request_log = std::make_shared<ServerLog>(options.watch.log);
  Log& log = *options.watch.request_log;
  Server server(options, open_device(settings.machine, log), ModelStore(StorePaths::from_environment()), log);
  const std::vector<OfferedModel> models = server.service().all_models();
  std::string names;
  for (const OfferedModel& model : models) names += (names.empty() ? "" : ", ") + model.name;
  const std::string& address = options.http.address;
  const std::string host = address.find(':') == std::string::npos ? address : '[' + address + ']';
  std::string addresses;
  for (const std::uint16_t port : server.ports()) {
    addresses +=
        fmt::format("{}{}://{}:{}", addresses.empty() ? "" : " and ", encrypted ? "https" : "http", host, port);
  }
  if (const auto port = server.flight_port()) {
    addresses += fmt::format(", Flight on {}://{}:{}", encrypted ? "grpc+tls" : "grpc", host, *port);
  }
  write_error(fmt::format("Serving {} on {}\nCtrl-C ends it.\n",
                          names.empty() ? "no model yet (`quarrel pull` gets one)" : names, addresses));
  while (!interrupts.requested() && !server.service().device_lost()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (hangups.take()) server.reload();
  }
  if (server.service().device_lost()) {
    server.drain(kLastWords, [&] { return interrupts.requested(); });
    fail(ErrorKind::device_lost, "the device does not compute any more; start the server again");
  }
  const bool twice = interrupts.take() > 1;
  write_error("Ending: what runs is finished first. Another Ctrl-C ends it at once.\n");
  if (!server.drain(settings.drain, [&] { return twice || interrupts.requested(); })) {
    log.warn("some requests were still running and have been cut off");
  }
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, CommandContext& context) {
  auto command = std::make_shared<ServeCommand>();
  CLI::App* serve = app.add_subcommand("serve", "Serve models over HTTP: OpenAI's API, Ollama's and Quarrel's own");
  serve->add_option("MODEL", command->models,
                    "Names or files, the first of them the default; without any, every model of the stores and the "
                    "settings file");
  add_setting_options(*serve, command->given);
  serve->footer(
      "Each setting is also a line of the settings file and an environment variable; flags count most,\n"
      "then variables. `quarrel config` shows what is in force, and where it comes from.\n\nExamples:\n"
      "  quarrel serve default minilm --port 0\n  QUARREL_PORT=9000 quarrel serve model.gguf");
  serve->callback([command, &context] { context.run = [command] { return run(*command); }; });
}

}  // namespace quarrel
