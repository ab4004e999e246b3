#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace quarrel {
namespace {

class StderrLog final : public Log {
 public:
  explicit StderrLog(LogLevel least) : logger_("quarrel", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()) {
    logger_.set_level(level_of(least));
    logger_.set_pattern("%^%l%$: %v");
  }

  void write(LogLevel level, std::string_view line) override {
    logger_.log(level_of(level), spdlog::string_view_t(line.data(), line.size()));
  }

 private:
  static spdlog::level::level_enum level_of(LogLevel level) {
    switch (level) {
      case LogLevel::debug: return spdlog::level::debug;
      case LogLevel::info: return spdlog::level::info;
      case LogLevel::warning: return spdlog::level::warn;
      case LogLevel::error: return spdlog::level::err;
    }
    return spdlog::level::err;
  }

  spdlog::logger logger_;
};

}  // namespace

std::unique_ptr<Log> make_stderr_log(LogLevel least) { return std::make_unique<StderrLog>(least); }

void MemoryLog::write(LogLevel level, std::string_view line) { lines.emplace_back(level, std::string(line)); }

}  // namespace quarrel
