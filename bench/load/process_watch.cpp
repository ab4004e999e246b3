#include "load/process_watch.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

namespace quarrel::load {

ProcessUse process_use(int pid) {
  ProcessUse use;
  if (pid <= 0) return use;
  const std::string folder = fmt::format("/proc/{}", pid);
  std::ifstream status(folder + "/status");
  std::string word;
  while (status >> word) {
    std::uint64_t kilobytes = 0;
    if (word == "VmRSS:" && status >> kilobytes) use.resident = kilobytes * 1024;
    if (word == "RssAnon:" && status >> kilobytes) use.anonymous = kilobytes * 1024;
  }
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator(folder + "/task", error)) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    std::uint64_t nanoseconds = 0;
    std::ifstream(task.path() / "schedstat") >> nanoseconds;
    use.threads[name] += static_cast<double>(nanoseconds) * 1e-9;
  }
  return use;
}

std::map<std::string, double> used_between(const ProcessUse& before, const ProcessUse& after) {
  std::map<std::string, double> used = after.threads;
  for (const auto& [name, seconds] : before.threads) {
    if (const auto found = used.find(name); found != used.end()) found->second -= seconds;
  }
  return used;
}

}  // namespace quarrel::load
