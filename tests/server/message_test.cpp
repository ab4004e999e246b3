// Paths, request ids and the bytes of a head, before anything else looks at them.
#include "server/http/message.h"

#include <gtest/gtest.h>

namespace quarrel::http {
namespace {

std::string path_of(std::string_view target) {
  std::string path, query;
  return read_path(target, path, query) ? path : "refused";
}

TEST(Path, IsDecodedOnce) {
  EXPECT_EQ(path_of("/health"), "/health");
  EXPECT_EQ(path_of("/"), "/");
  EXPECT_EQ(path_of("/v1/models/org%2fname:tag"), "/v1/models/org/name:tag");
  EXPECT_EQ(path_of("/%68ealth"), "/health");
  EXPECT_EQ(path_of("/a%252e"), "/a%2e");
  EXPECT_EQ(path_of("/v1/"), "/v1/");
  EXPECT_EQ(path_of("/..a/.b/c.."), "/..a/.b/c..");
  EXPECT_EQ(path_of("/\xc3\xa9"), "/\xc3\xa9");
}

TEST(PercentDecoded, IsDecodedOnceAndLeavesWhatIsNoCode) {
  EXPECT_EQ(percent_decoded("q%6b%5F1"), "qk_1");
  EXPECT_EQ(percent_decoded("%2541"), "%41");
  for (const char* plain : {"", "%", "%4", "%zz", "100%key", "a+b"}) EXPECT_EQ(percent_decoded(plain), plain);
}

TEST(Path, HasOneSpelling) {
  for (const char* target : {"",       "health", "*",           "http://localhost/health",
                             "/.",     "/..",    "/a/.",        "/a/../b",
                             "/a/..",  "/%2e",   "/a/%2E%2e/b", "//",
                             "//a",    "/a//b",  "/%2fa",       "/a\\b",
                             "/a%5cb", "/%00",   "/a%0d%0ab",   "/a%7f",
                             "/a\x01", "/a%",    "/a%4",        "/a%4g",
                             "/a%g4",  "/a#b"}) {
    EXPECT_EQ(path_of(target), "refused") << target;
  }
  EXPECT_EQ(path_of("/" + std::string(1023, 'a')).size(), 1024u);
  EXPECT_EQ(path_of("/" + std::string(1024, 'a')), "refused");
}

TEST(Path, LeavesTheQueryAsItCame) {
  std::string path, query;
  ASSERT_TRUE(read_path("/a%20b?c=%2e%2e&d=/..//?", path, query));
  EXPECT_EQ(path, "/a b");
  EXPECT_EQ(query, "c=%2e%2e&d=/..//?");
  ASSERT_TRUE(read_path("/a", path, query));
  EXPECT_EQ(query, "");
}

TEST(RequestId, IsWhatALogLineTakes) {
  EXPECT_TRUE(usable_request_id("req-1_2.3:4Z"));
  EXPECT_TRUE(usable_request_id(std::string(128, 'a')));
  for (const std::string& id : {std::string(), std::string(129, 'a'), std::string("a b"), std::string("a\r\nb"),
                                std::string("<a>"), std::string("\xc3\xa9"), std::string("a\0", 2)}) {
    EXPECT_FALSE(usable_request_id(id)) << id;
  }
}

TEST(Headers, AreFoundWithoutRegardToCase) {
  const Request request{.headers = {{"X-One", "1"}, {"x-one", "2"}, {"Host", "h"}}};
  EXPECT_EQ(request.header("x-ONE"), "1");
  EXPECT_EQ(request.header("host"), "h");
  EXPECT_EQ(request.header("hos"), "");
  EXPECT_FALSE(equals_ignoring_case("[", "{"));
}

unsigned head_status(std::string_view head) {
  HeadScan scan(16 * 1024);
  scan.look(head);
  return scan.status();
}

TEST(Head, IsFineHoweverMuchOfItHasCome) {
  const std::string head = "GET /a HTTP/1.1\r\nHost: localhost\r\nX:\t a \xc3\xa9\r\n\r\n";
  for (std::size_t length = 0; length <= head.size(); ++length) EXPECT_EQ(head_status(head.substr(0, length)), 0u);
}

TEST(Head, IsRefusedForWhatReadersUnderstandDifferently) {
  const std::string first = "GET /a HTTP/1.1\r\n";
  for (const std::string& head :
       {std::string("\r\nGET"), std::string("GET /a HTTP/1.1\n"), first + "A: b\nC: d\r\n", first + "A: b\rC",
        first + "A: b\r\n c\r\n", first + "A: b\r\n\tc\r\n", first + " A: b\r\n", first + std::string("A: \0b", 5),
        first + "A: \x7f", first + "A: \x0b", "\n" + first}) {
    EXPECT_EQ(head_status(head), 400u) << head;
    // The same byte by byte.
    HeadScan scan(16 * 1024);
    for (std::size_t length = 1; length <= head.size(); ++length) scan.look(std::string_view(head).substr(0, length));
    EXPECT_EQ(scan.status(), 400u) << head;
  }
}

TEST(Head, HasAHundredHeadersAtMost) {
  std::string head = "GET /a HTTP/1.1\r\n";
  for (int i = 0; i < 100; ++i) head += "A: b\r\n";
  EXPECT_EQ(head_status(head + "\r\n"), 0u);
  EXPECT_EQ(head_status(head + "A: b\r\n\r\n"), 400u);
}

TEST(Head, EndsWithItsEmptyLine) {
  const std::string head = "GET /a HTTP/1.1\r\nA: b\r\n\r\n";
  HeadScan scan(16 * 1024);
  for (std::size_t length = 1; length < head.size(); ++length) {
    scan.look(std::string_view(head).substr(0, length));
    EXPECT_EQ(scan.length(), 0u);
  }
  scan.look(head + "\n\r next");  // what follows is not looked at
  EXPECT_EQ(scan.length(), head.size());
  EXPECT_EQ(scan.status(), 0u);
}

TEST(Head, HasBounds) {
  const std::string first = "GET /a HTTP/1.1\r\n";
  EXPECT_EQ(head_status(first + std::string(8192, 'a')), 0u);
  EXPECT_EQ(head_status(first + std::string(8193, 'a')), 431u);
  std::string head = first;
  while (head.size() <= 16 * 1024) head += "A: " + std::string(1000, 'b') + "\r\n";
  EXPECT_EQ(head_status(head), 431u);
}

TEST(Date, IsAsHttpHasIt) {
  using std::chrono::seconds;
  EXPECT_EQ(http_date(std::chrono::sys_seconds(seconds(784111777))), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(http_date(std::chrono::sys_seconds(seconds(0))), "Thu, 01 Jan 1970 00:00:00 GMT");
  EXPECT_EQ(http_date(std::chrono::sys_seconds(seconds(1709251199))), "Thu, 29 Feb 2024 23:59:59 GMT");
}

TEST(Status, HasAText) {
  for (const unsigned status :
       {200u, 204u, 400u, 401u, 403u, 404u, 405u, 408u, 413u, 415u, 417u, 421u, 426u, 429u, 431u, 500u, 503u, 505u}) {
    EXPECT_NE(status_text(status), status_text(999)) << status;
  }
}

}  // namespace
}  // namespace quarrel::http
