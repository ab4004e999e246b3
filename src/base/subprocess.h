// Runs another program: no shell, arguments as given, standard input empty, output captured. The caller's thread waits;
// any thread may call. The child leads a process group of its own, so that cancelling ends what it started too.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace quarrel {

struct ProcessOptions {
  std::optional<std::chrono::milliseconds> timeout;
  std::stop_token stop;
  std::function<void()> tick;                                    // called several times a second while it runs
  std::filesystem::path directory;                               // where it runs; empty: where we do
  std::vector<std::pair<std::string, std::string>> environment;  // variables set in addition to ours
  std::size_t output_limit = 64 << 10;                           // only the last bytes are kept
};

struct ProcessResult {
  int exit_code = 0;   // 128 + the signal's number if one ended it; -1 if the system does not tell
  std::string output;  // standard output and error together, in the order written
};

// `arguments[0]` is the program, looked for on the PATH. Throws Error: not_found when there is no such program, io when
// it cannot be started or exceeds its time, cancelled when `stop` was asked for. In the last two cases the group gets
// SIGTERM, and after a grace of two seconds SIGKILL; so it does when `tick` throws.
ProcessResult run_process(const std::vector<std::string>& arguments, const ProcessOptions& options = {});

}  // namespace quarrel
