// What comes over a socket before anything is known of it: a WebSocket's frames, and a request's head. Both are read as
// they come, so every input is read at once and in pieces of the size that its first byte says: nothing may differ.
#include <algorithm>
#include <optional>
#include <vector>

#include "fuzz/targets.h"
#include "server/http/message.h"
#include "server/http/websocket_frames.h"

namespace quarrel::fuzz {
namespace {

using http::FrameEvent;

constexpr std::size_t kMostMessage = 4096;
constexpr std::size_t kMostHead = 2048;

std::vector<FrameEvent> read_frames(std::string_view bytes, std::size_t piece) {
  http::FrameReader reader(kMostMessage);
  std::vector<FrameEvent> events;
  while (!bytes.empty()) {
    std::string_view part = bytes.substr(0, piece);
    bytes.remove_prefix(part.size());
    while (std::optional<FrameEvent> event = reader.take(part)) events.push_back(std::move(*event));
  }
  return events;
}

bool is_utf8(std::string_view text) {
  http::Utf8Check check;
  return check.take(text) && check.at_end();
}

void check_event(const FrameEvent& event, bool last) {
  const bool ends = event.kind == FrameEvent::Kind::close || event.kind == FrameEvent::Kind::fault;
  require(!ends || last, "nothing follows a close or a fault");
  const auto code = static_cast<unsigned>(event.code);
  switch (event.kind) {
    case FrameEvent::Kind::message:
      require(event.data.size() <= kMostMessage, "messages are bounded");
      require(is_utf8(event.data), "messages are UTF-8");
      break;
    case FrameEvent::Kind::ping:
    case FrameEvent::Kind::pong: require(event.data.size() <= 125, "control frames are short"); break;
    case FrameEvent::Kind::close:
      require(is_utf8(event.data), "reasons are UTF-8");
      require(code >= 1000 && code <= 4999 && code != 1004 && code != 1006, "codes are those that may be sent");
      break;
    case FrameEvent::Kind::fault:
      require(code == 1002 || code == 1003 || code == 1007 || code == 1009, "a fault has its code");
      break;
  }
}

}  // namespace

void websocket_frames(Input input) {
  if (input.empty()) return;
  const std::size_t piece = std::to_integer<std::size_t>(input[0]) % 16 + 1;
  const std::string_view bytes = as_text(input.subspan(1));
  const std::vector<FrameEvent> events = read_frames(bytes, bytes.size() + 1);
  const std::vector<FrameEvent> again = read_frames(bytes, piece);
  require(std::ranges::equal(events, again,
                             [](const FrameEvent& a, const FrameEvent& b) {
                               return a.kind == b.kind && a.code == b.code && a.data == b.data;
                             }),
          "frames are the same however they are cut");
  for (std::size_t i = 0; i < events.size(); ++i) check_event(events[i], i + 1 == events.size());
}

void http_head(Input input) {
  if (input.empty()) return;
  const std::size_t piece = std::to_integer<std::size_t>(input[0]) % 16 + 1;
  const std::string_view bytes = as_text(input.subspan(1));
  http::HeadScan whole(kMostHead), pieces(kMostHead);
  whole.look(bytes);
  for (std::size_t length = 0; length < bytes.size();) {
    length = std::min(length + piece, bytes.size());
    pieces.look(bytes.substr(0, length));
  }
  require(whole.status() == pieces.status() && whole.length() == pieces.length(), "a head is the same in pieces");
  require(whole.length() == 0 || bytes.substr(0, whole.length()).ends_with("\r\n\r\n"),
          "a head ends with an empty line");
  std::string path, query;
  if (!http::read_path(bytes, path, query)) return;
  require(path.starts_with('/') && path.find("//") == std::string::npos, "a path is one that routes know");
  require((path + '/').find("/../") == std::string::npos && (path + '/').find("/./") == std::string::npos,
          "a path goes down only");
}

}  // namespace quarrel::fuzz
