// Frames without sockets: every way to cut them, what is refused and when, what ours look like.
#include "server/http/websocket_frames.h"

#include <gtest/gtest.h>

#include <vector>

#include "server/http/websocket.h"

namespace quarrel::http {
namespace {

using Kind = FrameEvent::Kind;

std::string client_frame(unsigned first, std::string_view payload, std::string_view mask = "\x37\xfa\x21\x3d") {
  std::string frame(1, static_cast<char>(first));
  if (payload.size() <= 125) {
    frame.push_back(static_cast<char>(0x80 | payload.size()));
  } else {
    frame += "\xfe";
    frame.push_back(static_cast<char>(payload.size() >> 8));
    frame.push_back(static_cast<char>(payload.size()));
  }
  frame += mask;
  for (std::size_t i = 0; i < payload.size(); ++i) frame.push_back(static_cast<char>(payload[i] ^ mask[i % 4]));
  return frame;
}

// All events of these bytes, given in pieces of so many.
std::vector<FrameEvent> read(std::string_view bytes, std::size_t piece, std::size_t most = 1000) {
  FrameReader reader(most);
  std::vector<FrameEvent> events;
  while (!bytes.empty()) {
    std::string_view part = bytes.substr(0, piece);
    bytes.remove_prefix(part.size());
    while (std::optional<FrameEvent> event = reader.take(part)) events.push_back(std::move(*event));
  }
  return events;
}

TEST(WebSocketFrames, AreTheSameHoweverTheyAreCut) {
  const std::string bytes = client_frame(0x01, "Hel") + client_frame(0x89, "p") + client_frame(0x80, "lo") +
                            client_frame(0x81, std::string(300, 'x')) + client_frame(0x81, "") +
                            client_frame(0x88,
                                         "\x03\xe8"
                                         "bye") +
                            client_frame(0x81, "late");
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    const std::vector<FrameEvent> events = read(bytes, piece);
    ASSERT_EQ(events.size(), 5u) << piece;
    EXPECT_EQ(events[0].kind, Kind::ping);
    EXPECT_EQ(events[0].data, "p");
    EXPECT_EQ(events[1].data, "Hello");
    EXPECT_EQ(events[2].data, std::string(300, 'x'));
    EXPECT_EQ(events[3].kind, Kind::message);
    EXPECT_EQ(events[4].kind, Kind::close);
    EXPECT_EQ(events[4].code, CloseCode::normal);
    EXPECT_EQ(events[4].data, "bye");
  }
}

TEST(WebSocketFrames, AFaultIsKnownWithTheFirstByteThatShowsIt) {
  const auto fault_after = [](std::string_view bytes) {
    for (std::size_t length = 1; length <= bytes.size(); ++length) {
      const std::vector<FrameEvent> events = read(bytes.substr(0, length), length, 1000);
      if (!events.empty() && events.back().kind == Kind::fault) return std::pair(length, events.back().code);
    }
    return std::pair(std::size_t{0}, CloseCode::normal);
  };
  using namespace std::string_view_literals;
  const auto fails = [&](std::string_view bytes, std::size_t after, CloseCode code) {
    EXPECT_EQ(fault_after(bytes), std::pair(after, code)) << testing::PrintToString(bytes);
  };
  fails("\xc1", 1, CloseCode::protocol_error);      // a reserved bit
  fails("\x83", 1, CloseCode::protocol_error);      // an unknown opcode
  fails("\x82", 1, CloseCode::unsupported_data);    // binary
  fails("\x80", 1, CloseCode::protocol_error);      // nothing to continue
  fails("\x09", 1, CloseCode::protocol_error);      // a fragmented ping
  fails("\x81\x05", 2, CloseCode::protocol_error);  // not masked
  fails("\x89\xfe", 2, CloseCode::protocol_error);  // a long ping
  fails(
      "\x81\xfe\0\x7d"
      "mask"sv,
      8, CloseCode::protocol_error);  // a length in too many bytes
  fails(
      "\x81\xff\0\0\0\0\0\0\xff\xff"
      "mask"sv,
      14, CloseCode::protocol_error);  // and another
  fails(
      "\x81\xff\x80\0\0\0\0\0\0\0"
      "mask"sv,
      14, CloseCode::protocol_error);  // a negative one
  fails(
      "\x81\xff\0\0\0\0\x7f\xff\xff\xff"
      "mask"sv,
      14, CloseCode::too_big);
  fails(client_frame(0x01, "a") + "\x81", 8, CloseCode::protocol_error);         // one message within another
  fails(client_frame(0x81, "a\xf4\x90 and so on"), 9, CloseCode::invalid_data);  // beyond Unicode
  fails(client_frame(0x01, "a\xce") + client_frame(0x80, ""), 14, CloseCode::invalid_data);  // half a character
  fails(client_frame(0x88, "x"), 7, CloseCode::protocol_error);
  fails(client_frame(0x88, "\x03\xed"), 8, CloseCode::protocol_error);  // 1005 is never sent
  fails(client_frame(0x88, "\x03\xe8\xff"), 9, CloseCode::invalid_data);
}

TEST(WebSocketFrames, FragmentsTogetherAreBounded) {
  const std::string part = client_frame(0x01, std::string(600, 'a'));
  EXPECT_TRUE(read(part + client_frame(0x80, std::string(400, 'b')), 7).back().kind == Kind::message);
  EXPECT_EQ(read(part + client_frame(0x80, std::string(401, 'b')), 7).back().code, CloseCode::too_big);
}

TEST(WebSocketFrames, OursHaveTheShortestHead) {
  for (const auto& [size, head] : {std::pair(0u, std::string("\x81\x00", 2)),
                                   {125u, "\x81\x7d"},
                                   {126u, std::string("\x81\x7e\x00\x7e", 4)},
                                   {65535u, "\x81\x7e\xff\xff"},
                                   {65536u, std::string("\x81\x7f\0\0\0\0\0\x01\0\0", 10)}}) {
    std::string frame;
    append_frame(frame, Opcode::text, std::string(size, 'x'));
    EXPECT_EQ(frame, head + std::string(size, 'x'));
  }
  std::string close;
  append_close_frame(close, CloseCode::going_away, std::string(122, 'a') + "\xc3\xa4");  // one byte too long
  EXPECT_EQ(close, "\x88\x7c\x03\xe9" + std::string(122, 'a'));
  EXPECT_EQ(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");  // the RFC's own example
}

TEST(WebSocketQueue, GathersAndEndsWithOneClose) {
  int wakes = 0;
  WebSocket socket(std::make_shared<Request>(), 100, [&] { ++wakes; });
  EXPECT_TRUE(socket.send("a"));
  EXPECT_TRUE(socket.send("b"));
  EXPECT_EQ(wakes, 1);
  socket.close(CloseCode::normal, "x");
  socket.close(CloseCode::too_big, "y");
  EXPECT_FALSE(socket.send("c"));
  const WebSocket::Output output = socket.take();
  EXPECT_EQ(output.frames,
            "\x81\x01"
            "a\x81\x01"
            "b\x88\x03\x03\xe8"
            "x");
  EXPECT_TRUE(output.closing);
}

TEST(WebSocketQueue, AReaderThatIsTooSlowIsGivenUp) {
  WebSocket socket(std::make_shared<Request>(), 100, [] {});
  EXPECT_TRUE(socket.send(std::string(1000, 'x')));  // one is taken whatever its size
  EXPECT_TRUE(socket.send(std::string(90, 'y')));    // and takes no room from the next
  EXPECT_FALSE(socket.send(std::string(90, 'y')));
  EXPECT_TRUE(socket.broken());
  EXPECT_FALSE(socket.send("z"));
  EXPECT_EQ(socket.take().frames, "");
}

TEST(WebSocketUpgrade, IsRefusedForWhatIsNone) {
  const Headers good = {{"Upgrade", "WebSocket"},
                        {"connection", "keep-alive, Upgrade"},
                        {"Sec-WebSocket-Version", "13"},
                        {"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}};
  EXPECT_EQ(upgrade_fault({.method = "GET", .headers = good}).status, 0u);
  EXPECT_EQ(upgrade_fault({.method = "POST", .headers = good}).status, 400u);
  for (std::size_t i = 0; i < good.size(); ++i) {
    Headers headers = good;
    headers.erase(headers.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_EQ(upgrade_fault({.method = "GET", .headers = headers}).status, i == 3 ? 400u : 426u) << i;
  }
  const auto with = [&](std::size_t i, std::string value) {
    Headers headers = good;
    headers[i].second = std::move(value);
    return upgrade_fault({.method = "GET", .headers = headers}).status;
  };
  EXPECT_EQ(with(0, "h2c"), 426u);
  EXPECT_EQ(with(2, "8"), 426u);
  EXPECT_EQ(with(3, "dGhlIHNhbXBsZSBub25jZQ"), 400u);
  EXPECT_EQ(with(3, "dGhlIHNhbXBsZSBub25jZQ==="), 400u);
  EXPECT_EQ(with(3, "dGhlIHNhbXBsZSBub25j*Q=="), 400u);
  const Request request{.headers = {{"sec-websocket-protocol", "quarrel.v1, a,,b "}, {"Sec-WebSocket-Protocol", "c"}}};
  EXPECT_EQ(offered_protocols(request), (std::vector<std::string>{"quarrel.v1", "a", "b", "c"}));
}

}  // namespace
}  // namespace quarrel::http
