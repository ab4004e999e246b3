// The test server as a program, for tests that run quarrel from outside. It says "ready DATA_PORT META_PORT" and runs
// until it is ended. What it holds it holds in memory, and finds again only where it has a folder.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "support/longbow_server.h"

namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Command {
  quarrel::longbow::ServerOptions options;
  quarrel::longbow::Faults faults;
  std::string certificate;
  std::string key;
  std::string client_authority;
  std::string folder;
  std::int64_t visible_after = 0;
  std::optional<std::int64_t> most_rows;
  std::int64_t die_after = 0;
};

// Nothing: go on; otherwise what to end with.
std::optional<int> read_arguments(int count, char** arguments, Command& command) {
  CLI::App app("A Flight server that behaves as Longbow does, for tests");
  app.add_option("--host", command.options.host, "where it listens");
  app.add_option("--data-port", command.options.data_port, "0: any");
  app.add_option("--meta-port", command.options.meta_port, "0: any");
  app.add_option("--token", command.options.token, "asked for with every call");
  app.add_option("--certificate", command.certificate, "PEM file: TLS with it")->check(CLI::ExistingFile);
  app.add_option("--key", command.key, "PEM file")->check(CLI::ExistingFile);
  app.add_option("--client-ca", command.client_authority, "PEM file: clients show a certificate that these have signed")
      ->check(CLI::ExistingFile);
  app.add_option("--folder", command.folder, "what was stored is kept there")->check(CLI::ExistingDirectory);
  app.add_option("--visible-after", command.visible_after, "milliseconds until what was stored shows");
  app.add_option("--most-rows", command.most_rows, "rows beyond these are taken and thrown away");
  app.add_option("--busy-as-a-whole", command.faults.busy_as_a_whole,
                 "so many questions whether a dataset is ready find a busy store, also where there is no such dataset");
  app.add_flag("--slow-down", command.faults.slow_down, "each stream is greeted with a warning");
  app.add_flag("--full", command.faults.full, "the queue takes nothing");
  app.add_option("--rate-limited", command.faults.rate_limited, "so many streams are refused");
  app.add_flag("--stall", command.faults.stall, "streams are not read");
  app.add_option("--refuse-calls", command.faults.refuse_calls, "so many calls find it unavailable");
  app.add_option("--break-put-after", command.faults.break_put_after, "each stream ends badly after so many batches");
  app.add_flag("--keep-broken", command.faults.keep_broken, "... and they are stored");
  app.add_flag("--overtaken", command.faults.overtaken,
               "the first stream's rows are stored only after those of another; says \"read\" when it has them");
  app.add_option("--die-after", command.die_after, "ends itself by SIGKILL after so many batches of a stream");
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  return std::nullopt;
}

}  // namespace

int main(int count, char** arguments) {
  Command command;
  try {
    if (const auto code = read_arguments(count, arguments, command)) return *code;
    if (!command.certificate.empty()) command.options.certificate = content_of(command.certificate);
    if (!command.key.empty()) command.options.key = content_of(command.key);
    if (!command.client_authority.empty()) command.options.client_authority = content_of(command.client_authority);
    if (command.die_after > 0) {
      command.options.after_batch = [after = command.die_after](std::int64_t batches) {
        if (batches >= after) kill(getpid(), SIGKILL);
      };
    }
    if (command.faults.overtaken) {
      command.options.after_batch = [](std::int64_t) {
        fmt::print("read\n");
        std::fflush(stdout);
      };
    }
    // Before there are other threads: they inherit the mask, and `sigwait` sees what ends the program.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    quarrel::longbow::Server server(command.options);
    if (!command.folder.empty()) {
      const arrow::Status found = server.store().set_folder(command.folder);
      if (!found.ok()) throw std::runtime_error(found.ToString());
    }
    server.store().set_visible_after(std::chrono::milliseconds(command.visible_after));
    server.store().set_most_rows(command.most_rows);
    server.set_faults(command.faults);
    fmt::print("ready {} {}\n", server.data_port(), server.meta_port());
    std::fflush(stdout);
    int signal = 0;
    sigwait(&signals, &signal);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "longbow_server: {}\n", error.what());
    return 1;
  }
}
