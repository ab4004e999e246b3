// Where warnings and progress lines go. A Log is made by the program and passed down by reference; libraries never
// write to a stream of their own. Safe to call from any thread.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace quarrel {

enum class LogLevel { debug, info, warning, error };

class Log {
 public:
  virtual ~Log() = default;
  virtual void write(LogLevel level, std::string_view line) = 0;

  template <typename... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
  }
  // For the last catch of a thread, where an exception would end the process: a line that cannot be written is lost.
  template <typename... Args>
  void try_warn(fmt::format_string<Args...> format, Args&&... args) noexcept {
    try {
      warn(format, std::forward<Args>(args)...);
    } catch (...) {
      return;
    }
  }
  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
  }
};

// Lines of at least `least` to standard error, through spdlog.
std::unique_ptr<Log> make_stderr_log(LogLevel least);

// Keeps the lines, so that a test can ask what was said.
class MemoryLog : public Log {
 public:
  void write(LogLevel level, std::string_view line) override;
  std::vector<std::pair<LogLevel, std::string>> lines;  // not locked: one thread at a time
};

}  // namespace quarrel
