// Where an answer that outlives its connection is taken up again: "<id>:<event>", the id that the server made for it
// and the number of the last event that the client has. The same text over SSE (its `id` lines and Last-Event-ID) and
// WebSocket. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quarrel {

struct ResumePoint {
  std::string id = {};      // 32 hexadecimal digits
  std::uint64_t event = 0;  // 0: none has come
};

std::string to_text(const ResumePoint& point);
// None: it is no such text.
std::optional<ResumePoint> read_resume_point(std::string_view text) noexcept;

// 128 bits from the system's source of secrets, which nobody guesses. Throws Error(io) where there is none.
std::string new_resume_id();

}  // namespace quarrel
