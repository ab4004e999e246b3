// quarrel_load: puts a server of OpenAI's API, or Quarrel's WebSocket, under load and says how it held out.
//
// Closed loop, each client one question after another:
//   quarrel_load --port 8080 --clients 8 --requests 64 --check
// Open loop, they come whatever becomes of the others:
//   quarrel_load --port 8080 --rate 20 --requests 400
// The peak, then ten times as many; what is left of it:
//   quarrel_load --port 8080 --clients 16 --requests 64 --overload
// A crowd that is only there, beside streams:
//   quarrel_load --port 8080 --websocket --idle 1000 --clients 200 --requests 200 --check
#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdio>

#include <CLI/CLI.hpp>

#include "load/runs.h"

namespace {

using namespace quarrel::load;

struct Options {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;
  Target target;
  Load load;
  bool websocket = false;
  bool chat = false;
  bool check = false;
  bool overload = false;
  bool json = false;
};

void allow_many_connections() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void print(const Options& options, const char* title, const Run& run) {
  if (options.json) {
    nlohmann::ordered_json json = json_of(run.summary);
    json["run"] = title;
    json["idle_lost"] = run.idle_lost;
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("== {}\n{}", title, text_of(run.summary));
    if (options.load.idle > 0) fmt::print("idle         {} of {} lost\n", run.idle_lost, options.load.idle);
  }
  std::fflush(stdout);
}

bool clean(const Run& run) { return run.summary.failed == 0 && run.summary.differing == 0 && run.idle_lost == 0; }

// What a server still answers when ten times as much is asked as it can answer.
int overload(const Options& options) {
  const Run peak = run_load(options.target, options.load);
  print(options, "peak", peak);
  Load more = options.load;
  more.first_number += static_cast<std::uint64_t>(more.requests);
  const double answers = static_cast<double>(peak.summary.answered) / peak.summary.seconds;
  more.rate = 10.0 * answers;
  more.requests *= 10;
  Run flooded = run_load(options.target, more);
  if (options.check) compare_alone(options.target, flooded);
  print(options, "ten times as much", flooded);
  const double share = flooded.summary.tokens_per_second / peak.summary.tokens_per_second;
  fmt::print("goodput      {:.1f} % of the peak\n", share * 100.0);
  const bool honest = flooded.summary.honest == flooded.summary.refused;
  return share >= 0.9 && honest && clean(flooded) ? 0 : 1;
}

int run(Options& options) {
  boost::system::error_code error;
  options.target.endpoint = {boost::asio::ip::make_address(options.host, error), options.port};
  if (error) {
    fmt::print(stderr, "'{}' is not an address\n", options.host);
    return 2;
  }
  if (options.websocket) options.target.protocol = Protocol::websocket;
  if (options.chat) options.target.protocol = Protocol::chat;
  allow_many_connections();
  // The first question loads the model.
  Load first = options.load;
  first.clients = 1;
  first.requests = 1;
  first.rate = 0.0;
  first.idle = 0;
  first.first_number = std::uint64_t{1} << 40;
  if (const Run warm = run_load(options.target, first); warm.summary.answered != 1) {
    print(options, "first question", warm);
    return 1;
  }
  if (options.overload) return overload(options);
  Run result = run_load(options.target, options.load);
  if (options.check) compare_alone(options.target, result);
  print(options, options.load.rate > 0.0 ? "open loop" : "closed loop", result);
  return clean(result) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Puts a server under load.");
  app.add_option("--host", options.host, "Address")->capture_default_str();
  app.add_option("--port", options.port, "Port")->capture_default_str();
  app.add_option("--model", options.target.model, "Its name; default: the server's own");
  app.add_option("--key", options.target.key, "The key that requests carry");
  app.add_option("--forbid", options.target.forbidden, "Ids of tokens that end answers, so that none ends early")
      ->delimiter(',');
  app.add_option("--temperature", options.target.temperature, "Of answers")->capture_default_str();
  app.add_option("--clients", options.load.clients, "Clients at once")->capture_default_str();
  app.add_option("--requests", options.load.requests, "Questions of all clients together")->capture_default_str();
  app.add_option("--rate", options.load.rate, "Questions a second, in place of clients")->capture_default_str();
  app.add_option("--words", options.load.words, "Words, which are tokens, of a prompt")->capture_default_str();
  app.add_option("--output", options.load.output, "Tokens of an answer")->capture_default_str();
  app.add_option("--idle", options.load.idle, "Connections that are only there")->capture_default_str();
  app.add_option("--first", options.load.first_number, "Number of the first question")->capture_default_str();
  app.add_option("--pid", options.load.pid, "The server's process: its memory and threads are watched");
  CLI::Option* websocket = app.add_flag("--websocket", options.websocket, "Quarrel's WebSocket in place of events");
  app.add_flag("--chat", options.chat, "OpenAI's chats in place of its completions")->excludes(websocket);
  app.add_flag("--check", options.check, "Compare each answer with the one that is given alone");
  app.add_flag("--overload", options.overload, "The peak, then ten times as much");
  app.add_flag("--json", options.json, "A JSON object for each run");
  CLI11_PARSE(app, argc, argv);
  return run(options);
}
