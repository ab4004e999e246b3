#include "base/utc_time.h"

#include <array>
#include <ctime>

namespace quarrel {
namespace {

constexpr std::chrono::sys_days kFirstDay{std::chrono::year(0) / 1 / 1};
constexpr std::chrono::sys_days kLastDay{std::chrono::year(9999) / 12 / 31};

// A line of an answer has its time in it: fmt's way from a time to a text takes longer than all the rest of the line.
void append_digits(std::string& out, unsigned value, int digits) {
  char text[10];
  for (int i = digits - 1; i >= 0; --i, value /= 10) text[i] = static_cast<char>('0' + value % 10);
  out.append(text, static_cast<std::size_t>(digits));
}

// Of a year with more or less than four digits, which the standard's calendar may not know.
void append_far_second(std::string& out, std::chrono::sys_seconds second) {
  const std::time_t count = second.time_since_epoch().count();
  std::tm parts{};
  std::array<char, 48> text{};
  if (gmtime_r(&count, &parts) == nullptr) return;
  out.append(text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts));
}

}  // namespace

void append_rfc3339(std::string& out, std::chrono::sys_time<std::chrono::microseconds> time, int digits) {
  const auto second = std::chrono::floor<std::chrono::seconds>(time);
  const auto day = std::chrono::floor<std::chrono::days>(time);
  if (day < kFirstDay || day > kLastDay) {
    append_far_second(out, second);
  } else {
    const std::chrono::year_month_day date(day);
    const std::chrono::hh_mm_ss clock(second - day);
    append_digits(out, static_cast<unsigned>(static_cast<int>(date.year())), 4);
    out.push_back('-');
    append_digits(out, static_cast<unsigned>(date.month()), 2);
    out.push_back('-');
    append_digits(out, static_cast<unsigned>(date.day()), 2);
    out.push_back('T');
    append_digits(out, static_cast<unsigned>(clock.hours().count()), 2);
    out.push_back(':');
    append_digits(out, static_cast<unsigned>(clock.minutes().count()), 2);
    out.push_back(':');
    append_digits(out, static_cast<unsigned>(clock.seconds().count()), 2);
  }
  if (digits > 0) {
    const auto micros = static_cast<unsigned>((time - second).count());
    out.push_back('.');
    append_digits(out, digits == 3 ? micros / 1000 : micros, digits);
  }
  out.push_back('Z');
}

}  // namespace quarrel
