// Where a server's lines go: standard error or a file. Nobody waits for it: a line that a pipe has no room for, or a
// disk no place, is counted and gone, and the next one is tried again.
//
// Threads: any.
#pragma once

#include <spdlog/sinks/base_sink.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace quarrel {

class LogSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  // An empty path: standard error. Throws Error(io) for a file that cannot be opened.
  explicit LogSink(std::string path);
  ~LogSink() override;

  // The file was moved away: from now on lines go to a new one of its name. If there can be none, they go where they
  // went. False then.
  bool reopen();
  std::uint64_t lost() const noexcept { return lost_; }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

 private:
  void take(int descriptor);
  bool write_whole(std::string_view text);

  const std::string path_;
  int descriptor_ = -1;     // guarded by the base's mutex, like the next two
  bool may_block_ = false;  // a pipe or a terminal, of which nobody knows whether somebody reads
  bool torn_ = false;       // the last line was not written to its end
  std::atomic<std::uint64_t> lost_ = 0;
};

}  // namespace quarrel
