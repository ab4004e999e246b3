#include "server/watch/server_log.h"

#include <fmt/format.h>
#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/pattern_formatter.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "base/printable.h"
#include "base/spdlog_level.h"
#include "base/utc_time.h"
#include "server/json_text.h"
#include "server/watch/log_sink.h"

namespace quarrel {
namespace {

// Lines that wait for the disk. If more come, the oldest are lost.
constexpr std::size_t kMostWaiting = 4096;
// A line's bytes at most, of which a message from elsewhere is the only part without a bound of its own.
constexpr std::size_t kLongestMessage = 2000;

std::string_view name_of(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::debug: return "debug";
    case LogLevel::info: return "info";
    case LogLevel::warning: return "warning";
    case LogLevel::error: return "error";
  }
  return "error";
}

bool wants_json(const ServerLogOptions& options) {
  if (options.format != LogFormat::automatic) return options.format == LogFormat::json;
  return !options.file.empty() || ::isatty(STDERR_FILENO) == 0;
}

bool is_key_character(char c) noexcept {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' ||
         c == '.' || c == '+' || c == '/' || c == '=' || c == '~';
}

}  // namespace

std::string without_keys(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    std::size_t masked = std::string_view::npos;
    for (const std::string_view mark : {"qk_", "Bearer ", "bearer ", "ApiKey ", "apikey "}) {
      const std::size_t found = text.find(mark);
      if (found != std::string_view::npos) masked = std::min(masked, found + mark.size());
    }
    if (masked == std::string_view::npos) break;
    clean += text.substr(0, masked);
    text.remove_prefix(masked);
    const auto end = std::ranges::find_if_not(text, is_key_character);
    if (end != text.begin()) clean += "[masked]";
    text.remove_prefix(static_cast<std::size_t>(end - text.begin()));
  }
  clean += text;
  return clean;
}

struct ServerLog::Writer {
  explicit Writer(const ServerLogOptions& options)
      : sink(std::make_shared<LogSink>(options.file)),
        pool(std::make_shared<spdlog::details::thread_pool>(kMostWaiting, 1)),
        logger(std::make_shared<spdlog::async_logger>("quarrel", sink, pool,
                                                      spdlog::async_overflow_policy::overrun_oldest)) {
    logger->set_level(spdlog_level(options.least));
  }
  // The pool's thread is over before the logger is, in which every waiting message has a share.
  ~Writer() { pool.reset(); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  std::shared_ptr<LogSink> sink;
  std::shared_ptr<spdlog::details::thread_pool> pool;
  std::shared_ptr<spdlog::async_logger> logger;
};

ServerLog::ServerLog(const ServerLogOptions& options)
    : least_(options.least), json_(wants_json(options)), writer_(std::make_unique<Writer>(options)) {
  writer_->logger->set_pattern(json_ ? "%v" : "%H:%M:%S.%e %l: %v");
}

ServerLog::~ServerLog() = default;

bool ServerLog::writes(LogLevel level) const noexcept { return level >= least_; }

void ServerLog::put(LogLevel level, std::string_view line) {
  writer_->logger->log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
}

void ServerLog::write(LogLevel level, std::string_view line) {
  if (!writes(level)) return;
  const std::string clean = printable(without_keys(line), kLongestMessage);
  write(level, clean, fmt::format("\"message\":{}", json_string(clean)));
}

void ServerLog::write(LogLevel level, std::string_view text, std::string_view json) {
  if (!writes(level)) return;
  if (!json_) return put(level, text);
  put(level, fmt::format("{{\"time\":\"{}\",\"level\":\"{}\",{}}}", rfc3339(std::chrono::system_clock::now(), 3),
                         name_of(level), json));
}

void ServerLog::reopen() {
  if (!writer_->sink->reopen()) write(LogLevel::warning, "the log's file cannot be reopened");
}

std::uint64_t ServerLog::lost() const noexcept { return writer_->sink->lost() + writer_->pool->overrun_counter(); }

}  // namespace quarrel
