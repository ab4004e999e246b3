#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "base/spdlog_level.h"

namespace quarrel {
namespace {

class StderrLog final : public Log {
 public:
  explicit StderrLog(LogLevel least) : logger_("quarrel", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()) {
    logger_.set_level(spdlog_level(least));
    logger_.set_pattern("%^%l%$: %v");
  }

  void write(LogLevel level, std::string_view line) override {
    logger_.log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
  }

 private:
  spdlog::logger logger_;
};

}  // namespace

std::unique_ptr<Log> make_stderr_log(LogLevel least) { return std::make_unique<StderrLog>(least); }

void MemoryLog::write(LogLevel level, std::string_view line) { lines.emplace_back(level, std::string(line)); }

}  // namespace quarrel
