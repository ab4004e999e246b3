// A time of day as RFC 3339 writes it, in UTC. Any thread.
#pragma once

#include <chrono>
#include <string>

namespace quarrel {

// "2026-05-04T10:11:12.345678Z", with so many digits after the point: 0 (and no point), 3 or 6. The rest is cut off.
void append_rfc3339(std::string& out, std::chrono::sys_time<std::chrono::microseconds> time, int digits);

template <typename Duration>
std::string rfc3339(std::chrono::sys_time<Duration> time, int digits = 6) {
  std::string text;
  append_rfc3339(text, std::chrono::floor<std::chrono::microseconds>(time), digits);
  return text;
}

}  // namespace quarrel
