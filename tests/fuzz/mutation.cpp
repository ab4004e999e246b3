#include "fuzz/mutation.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

namespace quarrel::fuzz {
namespace {

using namespace std::string_view_literals;

// What readers have stumbled over before: ends of lines, lengths, chunks, paths, escapes, half characters.
constexpr std::array kOdd = {
    "\r\n"sv,
    "\n"sv,
    "\r"sv,
    "\0"sv,
    "\r\n\r\n"sv,
    " "sv,
    "\t"sv,
    ":"sv,
    "/.."sv,
    "//"sv,
    "%2e%2e"sv,
    "%00"sv,
    "\\"sv,
    "?"sv,
    "#"sv,
    "\xff"sv,
    "\xc3"sv,
    "\xed\xa0\x80"sv,
    "\\ud800"sv,
    "\\u0000"sv,
    "{"sv,
    "["sv,
    "\""sv,
    "1e999"sv,
    "-0"sv,
    "18446744073709551616"sv,
    "null"sv,
    "true"sv,
    "0\r\n\r\n"sv,
    "ffffffffffffffff\r\n"sv,
    "Content-Length: 5\r\n"sv,
    "Content-Length: -1\r\n"sv,
    "Transfer-Encoding: chunked\r\n"sv,
    "Transfer-Encoding: gzip\r\n"sv,
    "Expect: 100-continue\r\n"sv,
    "Connection: close\r\n"sv,
    "Connection: upgrade\r\nUpgrade: websocket\r\n"sv,
    "Host: a\r\n"sv,
    "Authorization: Bearer x\r\n"sv,
    " HTTP/1.0\r\n"sv,
    "HTTP/2.0"sv,
};

}  // namespace

void Mutator::change_bytes(std::string& text) {
  const std::size_t at = below(text.size() + 1);
  const std::size_t length = std::min(below(32), text.size() - at);
  switch (below(6)) {
    case 0: text.insert(at, kOdd[below(kOdd.size())]); break;
    case 1: text.erase(at, length); break;
    case 2: text.insert(at, text.substr(at, length)); break;
    case 3: text.resize(at); break;
    case 4: text.replace(at, length, kOdd[below(kOdd.size())]); break;
    default:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
      break;
  }
}

std::string Mutator::bytes(std::string text) {
  for (std::size_t left = 1 + below(4); left > 0; --left) change_bytes(text);
  return text;
}

Mutator::Json Mutator::odd_value() {
  switch (below(16)) {
    case 0: return nullptr;
    case 1: return below(2) == 0;
    case 2: return "";
    case 3: return std::string(below(300), 'x');
    case 4: return "a\0b\xe2\x82\xac";
    case 5: return Json::array();
    case 6: return Json::object();
    case 7: return Json::array({Json::array({Json::array({1, "a", nullptr})})});
    case 8: return std::numeric_limits<std::int64_t>::min();
    case 9: return std::numeric_limits<std::uint64_t>::max();
    case 10: return 1e308;
    case 11: return -0.0;
    case 12: return static_cast<std::int64_t>(below(5)) - 2;
    case 13: return 0.5;
    case 14: return {{"type", "text"}, {"text", "t"}, {"role", "user"}};
    default: return "text";
  }
}

void Mutator::change_value(Json& root) {
  // A walk down to some place.
  Json* place = &root;
  while (place->is_structured() && !place->empty() && (place == &root || below(3) > 0)) {
    auto next = place->begin();
    std::advance(next, below(place->size()));
    place = &*next;
  }
  switch (below(5)) {
    case 0:
      if (place->is_object() && !place->empty()) {
        place->erase(std::next(place->begin(), static_cast<std::ptrdiff_t>(below(place->size()))));
        break;
      }
      [[fallthrough]];
    case 1:
      if (place->is_array()) {
        place->push_back(odd_value());
      } else if (place->is_object()) {
        (*place)[below(2) == 0 ? "model" : "unknown"] = odd_value();
      } else {
        *place = odd_value();
      }
      break;
    case 2: {
      // One becomes a list of two.
      Json copy = *place;
      *place = Json::array({copy, copy});
      break;
    }
    default: *place = odd_value(); break;
  }
}

std::string Mutator::json(std::string_view text) {
  Json root = Json::parse(text);
  for (std::size_t left = 1 + below(4); left > 0; --left) change_value(root);
  std::string changed = root.dump(-1, ' ', below(2) == 0, Json::error_handler_t::ignore);
  return below(4) == 0 ? bytes(std::move(changed)) : changed;
}

}  // namespace quarrel::fuzz
