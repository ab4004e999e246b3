// The server's log: lines of text or of JSON, on standard error or in a file, written by a thread of its own so that
// nobody waits for a disk. Keys never get into it: whatever looks like one is masked.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/log.h"

namespace quarrel {

enum class LogFormat : std::uint8_t { automatic, text, json };  // automatic: text on a terminal

struct ServerLogOptions {
  LogFormat format = LogFormat::automatic;
  LogLevel least = LogLevel::info;
  std::string file = {};  // empty: standard error
};

class ServerLog final : public Log {
 public:
  // Throws Error(io) for a file that cannot be opened.
  explicit ServerLog(const ServerLogOptions& options);
  ~ServerLog() override;  // writes what it has

  void write(LogLevel level, std::string_view line) override;
  // A line that is more than a sentence: `json` is an object's members, `text` the same for people.
  void write(LogLevel level, std::string_view text, std::string_view json);

  bool writes(LogLevel level) const noexcept;
  bool is_json() const noexcept { return json_; }
  void reopen();                        // the file was moved away
  std::uint64_t lost() const noexcept;  // lines that could not be written

 private:
  struct Writer;
  void put(LogLevel level, std::string_view line);

  const LogLevel least_;
  const bool json_;
  const std::unique_ptr<Writer> writer_;
};

// The text with its keys masked: what begins with "qk_", and what follows "Bearer" or "ApiKey".
std::string without_keys(std::string_view text);

}  // namespace quarrel
