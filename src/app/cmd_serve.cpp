// `quarrel serve`: models over HTTP until Ctrl-C or SIGTERM.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <thread>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/input.h"
#include "app/model_options.h"
#include "app/terminal.h"
#include "base/environment.h"
#include "base/error.h"
#include "quarrel_version.h"
#include "server/server.h"

namespace quarrel {
namespace {

constexpr std::uint16_t kPort = 8080;

struct ServeCommand {
  std::vector<std::string> models;
  ModelOptions options;
  std::string host = "127.0.0.1";
  std::optional<std::uint16_t> port;
  std::string unix_socket;
  std::string api_key_file;
  std::vector<std::string> allowed_hosts;
  std::int32_t parallel = 16;
  std::string cache_tokens = "32k";
  double keep_alive = 300.0;
  double drain_seconds = 30.0;
};

std::uint16_t port_of(const ServeCommand& command) {
  if (command.port) return *command.port;
  for (const char* name : {"QUARREL_PORT", "WEBUI_PORT"}) {
    const std::optional<std::string> value = environment(name);
    if (!value || value->empty()) continue;
    const int port = parse_count(*value, name);
    if (port < 0 || port > 65535) fail(ErrorKind::usage, "{} is no port: {}", name, *value);
    return static_cast<std::uint16_t>(port);
  }
  return kPort;
}

std::string key_of(const ServeCommand& command) {
  if (command.api_key_file.empty()) return environment("QUARREL_API_KEY").value_or("");
  std::string key = read_input(command.api_key_file);
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
  if (key.empty()) fail(ErrorKind::usage, "{} has no key in it", command.api_key_file);
  return key;
}

ServeOptions serve_options(const ServeCommand& command) {
  ServeOptions options;
  options.http.address = command.host == "localhost" ? "127.0.0.1" : command.host;
  options.http.port = port_of(command);
  options.http.unix_socket = command.unix_socket;
  options.api_key = key_of(command);
  options.allowed_hosts = command.allowed_hosts;
  options.service.models = command.models;
  options.service.version = QUARREL_VERSION;
  options.service.text_threads = 2;
  options.service.keep_alive =
      std::chrono::milliseconds(static_cast<std::int64_t>(command.keep_alive < 0 ? -1 : command.keep_alive * 1000.0));
  ExecutorOptions& executor = options.service.load.executor;
  executor = executor_options(command.options);
  executor.sequences = command.parallel;
  executor.snapshots = command.parallel;
  executor.cache_tokens = parse_count(command.cache_tokens, "--cache-tokens");
  return options;
}

int run(const ServeCommand& command, Log& log) {
  const Interrupts interrupts;
  ServeOptions options = serve_options(command);
  Server server(options, open_device(command.options, log), ModelStore(StorePaths::from_environment()), log);
  const std::vector<OfferedModel> models = server.service().models();
  std::string names;
  for (const OfferedModel& model : models) names += (names.empty() ? "" : ", ") + model.name;
  const std::string& address = options.http.address;
  const std::string host = address.find(':') == std::string::npos ? address : '[' + address + ']';
  write_error(fmt::format("Serving {} on http://{}:{}\nCtrl-C ends it.\n",
                          names.empty() ? "no model yet (`quarrel pull` gets one)" : names, host, server.port()));
  while (!interrupts.requested()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  write_error("Ending: what runs is finished first.\n");
  const auto patience = std::chrono::milliseconds(static_cast<std::int64_t>(command.drain_seconds * 1000.0));
  if (!server.drain(patience)) {
    log.warn("some requests were still running after {} seconds and have been cut off", command.drain_seconds);
  }
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, CommandContext& context) {
  auto command = std::make_shared<ServeCommand>();
  CLI::App* serve = app.add_subcommand("serve", "Serve models over HTTP: OpenAI's API and Quarrel's own");
  serve->add_option("MODEL", command->models,
                    "Names or files, the first of them the default; without any, every model of the stores");
  serve->add_option("--host", command->host, "Address to listen on; beyond this machine only with a key")
      ->type_name("ADDRESS")
      ->capture_default_str();
  serve
      ->add_option("--port", command->port,
                   "Port to listen on; default: QUARREL_PORT, WEBUI_PORT or 8080; 0: any free one")
      ->type_name("N");
  serve->add_option("--unix-socket", command->unix_socket, "Listen on this socket too, for your own user alone")
      ->type_name("PATH");
  serve
      ->add_option("--api-key-file", command->api_key_file,
                   "A file with the key that requests must carry; default: QUARREL_API_KEY")
      ->type_name("FILE");
  serve->add_option("--allow-host", command->allowed_hosts, "A further host name that requests may be for")
      ->type_name("NAME");
  serve->add_option("--parallel", command->parallel, "Answers that a model computes at once; more wait")
      ->check(CLI::Range(1, 1024))
      ->type_name("N")
      ->capture_default_str();
  serve
      ->add_option("--cache-tokens", command->cache_tokens,
                   "Tokens that a model's KV cache holds for all answers together, and one context at least")
      ->type_name("N")
      ->capture_default_str();
  serve->add_option("--keep-alive", command->keep_alive, "Seconds that an unused model stays loaded; below 0: for ever")
      ->type_name("SECONDS")
      ->capture_default_str();
  serve->add_option("--drain", command->drain_seconds, "Seconds that running answers get when the server ends")
      ->check(CLI::Range(0.0, 86400.0))
      ->type_name("SECONDS")
      ->capture_default_str();
  add_model_options(*serve, command->options);
  serve->callback([command, &context] { context.run = [command, &context] { return run(*command, context.log); }; });
}

}  // namespace quarrel
