// strftime over a TemplateClock, without the C library's locale.
#include "text/jinja/globals.h"

namespace quarrel::jinja {
namespace {

constexpr std::string_view kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                        "July",    "August",   "September", "October", "November", "December"};
constexpr std::string_view kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};

bool is_leap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

int day_of_year(const TemplateClock& clock) {
  static constexpr int kBefore[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  return kBefore[clock.month - 1] + clock.day + (clock.month > 2 && is_leap(clock.year) ? 1 : 0);
}

// Sunday is 0.
int day_of_week(const TemplateClock& clock) {
  const int years = clock.year - 1;
  const int days = years * 365 + years / 4 - years / 100 + years / 400 + day_of_year(clock);
  return ((days % 7) + 7) % 7;
}

// A number with leading zeros, or without them for the "%-d" forms.
std::string padded(int value, int width, bool bare) {
  return bare ? std::to_string(value) : fmt::format("{:0{}}", value, width);
}

void append_directive(std::string& out, const TemplateClock& clock, char directive, bool bare) {
  const int hour12 = clock.hour % 12 == 0 ? 12 : clock.hour % 12;
  const std::string_view month = kMonths[clock.month - 1];
  const std::string_view day = kDays[day_of_week(clock)];
  switch (directive) {
    case 'd': out += padded(clock.day, 2, bare); return;
    case 'e': out += bare ? std::to_string(clock.day) : fmt::format("{:2}", clock.day); return;
    case 'm': out += padded(clock.month, 2, bare); return;
    case 'y': out += padded(clock.year % 100, 2, bare); return;
    case 'Y': out += std::to_string(clock.year); return;
    case 'H': out += padded(clock.hour, 2, bare); return;
    case 'I': out += padded(hour12, 2, bare); return;
    case 'M': out += padded(clock.minute, 2, bare); return;
    case 'S': out += padded(clock.second, 2, bare); return;
    case 'j': out += padded(day_of_year(clock), 3, bare); return;
    case 'p': out += clock.hour < 12 ? "AM" : "PM"; return;
    case 'B': out += month; return;
    case 'b': out += month.substr(0, 3); return;
    case 'A': out += day; return;
    case 'a': out += day.substr(0, 3); return;
    case 'w': out += std::to_string(day_of_week(clock)); return;
    case 'F': out += fmt::format("{}-{:02}-{:02}", clock.year, clock.month, clock.day); return;
    case 'T': out += fmt::format("{:02}:{:02}:{:02}", clock.hour, clock.minute, clock.second); return;
    case '%': out += '%'; return;
    default:
      out += '%';
      if (bare) out += '-';
      out += directive;
  }
}

}  // namespace

std::string format_date(const TemplateClock& clock, std::string_view format) {
  std::string out;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out += format[at];
      continue;
    }
    const bool bare = format[at + 1] == '-' && at + 2 < format.size();
    at += bare ? 2 : 1;
    append_directive(out, clock, format[at], bare);
  }
  return out;
}

}  // namespace quarrel::jinja
