// `quarrel serve`: models over HTTP until Ctrl-C or SIGTERM.
#include <fmt/ranges.h>

#include <chrono>
#include <memory>
#include <thread>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/hangups.h"
#include "app/settings_in_force.h"
#include "app/terminal.h"
#include "backend/create.h"
#include "base/environment.h"
#include "base/error.h"
#include "quarrel_version.h"
#include "server/json_text.h"
#include "server/server.h"

namespace quarrel {
namespace {

// For requests to hear that the device is lost.
constexpr std::chrono::seconds kLastWords{1};

struct ServeCommand {
  std::vector<std::string> models;
  GivenSettings given;
};

// What the server says of itself: an event of its log, and a word to people, who see standard error where that is no
// log for programs.
struct Announcement {
  std::string text = {};
  std::string hint = {};     // what only people can use
  std::string members = {};  // of the event, as JSON
};

void announce(ServerLog& log, bool log_has_file, const Announcement& said) {
  const bool for_people = log_has_file || !log.is_json();
  if (for_people) write_error(fmt::format("{}\n{}\n", said.text, said.hint));
  if (log_has_file || log.is_json()) {
    log.write(LogLevel::info, said.text, fmt::format("{},\"message\":{}", said.members, json_string(said.text)));
  }
}

Announcement serving(const Server& server, const ServeOptions& options, const std::vector<OfferedModel>& models) {
  std::vector<std::string> names, addresses, quoted_names, quoted_addresses;
  for (const OfferedModel& model : models) names.push_back(model.name);
  const bool encrypted = !options.http.tls.certificate.empty();
  const std::string& address = options.http.address;
  const std::string host = address.find(':') == std::string::npos ? address : '[' + address + ']';
  for (const std::uint16_t port : server.ports()) {
    addresses.push_back(fmt::format("{}://{}:{}", encrypted ? "https" : "http", host, port));
  }
  std::string text =
      fmt::format("Serving {} on {}",
                  names.empty() ? "no model yet (`quarrel pull` gets one)" : fmt::format("{}", fmt::join(names, ", ")),
                  fmt::join(addresses, " and "));
  if (const auto port = server.flight_port()) {
    addresses.push_back(fmt::format("{}://{}:{}", encrypted ? "grpc+tls" : "grpc", host, *port));
    text += fmt::format(", Flight on {}", addresses.back());
  }
  for (const std::string& each : names) quoted_names.push_back(json_string(each));
  for (const std::string& each : addresses) quoted_addresses.push_back(json_string(each));
  return {.text = std::move(text),
          .hint = "Ctrl-C ends it.",
          .members = fmt::format(R"("event":"serving","models":[{}],"addresses":[{}])", fmt::join(quoted_names, ","),
                                 fmt::join(quoted_addresses, ","))};
}

int run(const ServeCommand& command) {
  Interrupts interrupts;
  Hangups hangups;
  const ServeSettings settings = settings_in_force(command.given, environment).settings;
  ServeOptions options = serve_options(settings);
  const http::TlsFiles& tls = options.http.tls;
  if (tls.certificate.empty() != tls.key.empty()) {
    fail(ErrorKind::usage, "--tls-cert and --tls-key go together: a certificate is of no use without its key");
  }
  options.service.models = command.models;
  options.service.program = {.version = QUARREL_VERSION,
                             .commit = QUARREL_COMMIT,
                             .build = QUARREL_BUILD_TYPE,
                             .backends = built_in_backends()};
  std::erase(options.service.program.backends, "auto");  // it is one of the others
  options.watch.request_log = std::make_shared<ServerLog>(options.watch.log);
  ServerLog& log = *options.watch.request_log;
  const bool log_has_file = !options.watch.log.file.empty();
  Server server(options, open_device(settings.machine, log), ModelStore(StorePaths::from_environment()), log);
  announce(log, log_has_file, serving(server, options, server.service().all_models()));
  while (!interrupts.requested() && !server.service().device_lost()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (hangups.take()) server.reload();
  }
  if (server.service().device_lost()) {
    server.drain(kLastWords, [&]() -> bool { return interrupts.requested(); });
    fail(ErrorKind::device_lost, "the device has stopped working; start the server again");
  }
  const bool twice = interrupts.take() > 1;
  announce(log, log_has_file,
           {.text = "Ending: what runs is finished first.",
            .hint = "Another Ctrl-C ends it at once.",
            .members = R"("event":"ending")"});
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
