#include "server/http/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>

namespace quarrel::http {
namespace {

constexpr std::size_t kLongestPath = 1024;
constexpr std::size_t kLongestLine = 8 * 1024;
constexpr std::size_t kMostLines = 101;  // the first is the request's

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

int hex_value(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  const char small = lower(c);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

constexpr std::size_t kCodeLength = 3;

// What a text like "%41" begins with: 'A'; none: that is no code.
std::optional<char> code_at(std::string_view text) noexcept {
  if (text.size() < kCodeLength || text[0] != '%') return std::nullopt;
  const int high = hex_value(text[1]);
  const int low = hex_value(text[2]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

// "%41" becomes "A"; false for half a code, or one of a control character.
bool decode(std::string_view text, std::string& out) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const std::optional<char> code = code_at(text.substr(i));
      if (!code) return false;
      c = *code;
      i += kCodeLength - 1;
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') return false;
    out.push_back(c);
  }
  return true;
}

// Two ways to write one path would be two ways around a right.
bool is_normal(std::string_view path) noexcept {
  if (path.empty() || path.front() != '/') return false;
  std::size_t begin = 1;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view segment = path.substr(begin, end - begin);
    if (segment == "." || segment == "..") return false;
    if (segment.empty() && end != path.size()) return false;
    begin = end + 1;
  }
  return true;
}

}  // namespace

std::string percent_decoded(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::optional<char> code = code_at(text.substr(i));
    plain += code.value_or(text[i]);
    if (code) i += kCodeLength - 1;
  }
  return plain;
}

bool equals_ignoring_case(std::string_view a, std::string_view b) noexcept {
  return std::ranges::equal(a, b, {}, lower, lower);
}

std::string_view Request::header(std::string_view name) const noexcept {
  for (const auto& [key, value] : headers) {
    if (equals_ignoring_case(key, name)) return value;
  }
  return {};
}

Response stream_head(std::string content_type) {
  return {.content_type = std::move(content_type),
          .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}};
}

std::string_view status_text(unsigned status) noexcept {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 421: return "Misdirected Request";
    case 426: return "Upgrade Required";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    case 507: return "Insufficient Storage";
    default: return "Status";
  }
}

std::string http_date(std::chrono::sys_seconds time) {
  constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return fmt::format("{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT", kDays[std::chrono::weekday(day).c_encoding()],
                     static_cast<unsigned>(date.day()), kMonths[static_cast<unsigned>(date.month()) - 1],
                     static_cast<int>(date.year()), clock.hours().count(), clock.minutes().count(),
                     clock.seconds().count());
}

bool read_path(std::string_view target, std::string& path, std::string& query) {
  path.clear();
  query.clear();
  if (target.size() > kLongestPath || target.find('#') != std::string_view::npos) return false;
  const std::size_t question = target.find('?');
  if (question != std::string_view::npos) query = target.substr(question + 1);
  return decode(target.substr(0, question), path) && is_normal(path);
}

void HeadScan::refuse(unsigned status, std::string fault) {
  status_ = status;
  fault_ = std::move(fault);
}

void HeadScan::look(std::string_view seen) {
  while (length_ == 0 && status_ == 0 && place_ < seen.size()) {
    if (seen[place_] == '\r' && place_ + 1 == seen.size()) break;  // the rest is still to come
    look_at(seen);
    if (status_ == 0 && place_ > most_bytes_)
      refuse(431, fmt::format("the request's head is longer than {} bytes", most_bytes_));
  }
}

void HeadScan::look_at(std::string_view seen) {
  const auto c = static_cast<unsigned char>(seen[place_]);
  const bool at_begin = place_ == line_begin_;
  if (c == '\r') {
    if (seen[place_ + 1] != '\n') return refuse(400, "the request's head has a CR without a LF");
    if (place_ == 0) return refuse(400, "the request begins with an empty line");
    place_ += 2;
    line_begin_ = place_;
    if (at_begin) {
      length_ = place_;
    } else if (++lines_ > kMostLines) {
      refuse(400, "the request has more than 100 headers");
    }
    return;
  }
  if (c == '\n') return refuse(400, "the request's head has a LF without a CR");
  if ((c < 0x20 && c != '\t') || c == 0x7f) return refuse(400, "the request's head has a control character");
  if (at_begin && place_ > 0 && (c == ' ' || c == '\t')) {
    return refuse(400, "the request has a header that is continued on the next line");
  }
  if (++place_ - line_begin_ > kLongestLine) {
    refuse(431, fmt::format("the request's head has a line of more than {} bytes", kLongestLine));
  }
}

bool usable_request_id(std::string_view id) noexcept {
  const auto fine = [](char c) {
    return (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z') || c == '-' || c == '_' || c == '.' ||
           c == ':';
  };
  return !id.empty() && id.size() <= 128 && std::ranges::all_of(id, fine);
}

std::string new_request_id() {
  thread_local std::mt19937_64 random(std::random_device{}());
  return fmt::format("req-{:016x}", random());
}

}  // namespace quarrel::http
