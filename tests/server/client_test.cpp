// Addresses of registries: one way to write each, and nothing that two readers could take for two things.
#include "server/http/client.h"

#include <gtest/gtest.h>

#include <boost/asio.hpp>
#include <thread>

#include "base/error.h"

namespace quarrel::http {
namespace {

using boost::asio::ip::tcp;

// Takes one connection, reads a head, sends what it was given and closes; or says nothing until it is told to end.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer, bool silent = false)
      : acceptor_(io_, tcp::endpoint(boost::asio::ip::make_address("127.0.0.1"), 0)),
        thread_([this, answer = std::move(answer), silent](const std::stop_token& stop) {
          boost::system::error_code error;
          tcp::socket socket(io_);
          acceptor_.accept(socket, error);
          std::string head;
          boost::asio::read_until(socket, boost::asio::dynamic_buffer(head), "\r\n\r\n", error);
          asked_ = head;
          while (silent && !stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          boost::asio::write(socket, boost::asio::buffer(answer), error);
        }) {}
  // Perhaps nobody has come, and its thread still waits for somebody.
  ~OneAnswer() {
    boost::system::error_code ignored;
    tcp::socket(io_).connect(acceptor_.local_endpoint(ignored), ignored);
  }
  OneAnswer(const OneAnswer&) = delete;
  OneAnswer& operator=(const OneAnswer&) = delete;

  Url url() const {
    return *Url::parse("http://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port()) + "/x");
  }
  std::string asked() {
    thread_.join();
    return asked_;
  }

 private:
  boost::asio::io_context io_;
  tcp::acceptor acceptor_;
  std::string asked_;
  std::jthread thread_;
};

struct Fetched {
  unsigned status = 0;
  std::string body = {};
  std::string error = {};
};

Fetched fetched(const Url& url, FetchOptions options = {}) {
  Fetched result;
  options.allowed_hosts = {url.authority()};
  try {
    result.status = fetch(url, options, [&result](unsigned, std::span<const std::byte> bytes) {
      result.body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    });
  } catch (const Error& error) {
    result.error = error.what();
  }
  return result;
}

TEST(Urls, AreTakenApart) {
  const auto plain = Url::parse("http://Registry.Example/v2/a?b=c");
  ASSERT_TRUE(plain);
  EXPECT_FALSE(plain->secure);
  EXPECT_EQ(plain->host, "registry.example");
  EXPECT_EQ(plain->port, 80);
  EXPECT_EQ(plain->target, "/v2/a?b=c");
  EXPECT_EQ(plain->authority(), "registry.example");
  const auto secure = Url::parse("https://127.0.0.1:8443");
  ASSERT_TRUE(secure);
  EXPECT_TRUE(secure->secure);
  EXPECT_EQ(secure->authority(), "127.0.0.1:8443");
  EXPECT_EQ(secure->target, "/");
  EXPECT_EQ(Url::parse("https://h:443/")->authority(), "h");
  EXPECT_EQ(Url::parse("http://[::1]:5000/x")->authority(), "[::1]:5000");
  EXPECT_EQ(Url::parse("http://[::1]:5000/x")->host, "::1");
}

TEST(Urls, WhatCouldMeanSomethingElseIsNone) {
  for (const char* text : {"",
                           "h",
                           "//h/x",
                           "ftp://h/x",
                           "file:///etc/passwd",
                           "http:///x",
                           "http://",
                           "http://user@h/x",
                           "http://h:/x",
                           "http://h:0/x",
                           "http://h:70000/x",
                           "http://h:80a/x",
                           "http://h\\@other/x",
                           "http://h/a b",
                           "http://h/a#b",
                           "http://h/\x01",
                           "http://[::1/x",
                           "http://[::1]x80/",
                           "http://[g::1]/x",
                           "http://%68/x",
                           "http://h?x",
                           "http://h/a\\b",
                           "http://\xc3\xa9/x"}) {
    EXPECT_FALSE(Url::parse(text)) << text;
  }
}

TEST(Fetching, AsksNobodyWhoIsNotNamed) {
  bool refused = false;
  try {
    fetch(*Url::parse("http://127.0.0.1:1/x"), {.allowed_hosts = {"127.0.0.1", "127.0.0.1:2"}},
          [](unsigned, std::span<const std::byte>) {});
  } catch (const std::exception& error) {
    refused = std::string(error.what()).find("models may not be fetched from") != std::string::npos;
  }
  EXPECT_TRUE(refused);
}

TEST(Fetching, TakesABodyByLengthByChunksAndToTheEnd) {
  const std::string large(300'000, 'x');  // more than one piece
  for (const std::string& answer : {"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + large,
                                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nxxx\r\n493dd\r\n" +
                                        large.substr(3) + "\r\n0\r\nT: t\r\n\r\n",
                                    "HTTP/1.0 200 OK\r\n\r\n" + large}) {
    OneAnswer server(answer);
    const Fetched result = fetched(server.url());
    EXPECT_EQ(result.error, "");
    EXPECT_EQ(result.status, 200U);
    EXPECT_TRUE(result.body == large) << result.body.size();
  }
  OneAnswer empty("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(fetched(empty.url()).error, "");
}

TEST(Fetching, WhatIsNotWholeIsAnError) {
  const std::string endless(1'000'000, 'a');
  for (const std::string& answer :
       {std::string(), std::string("HTTP/1.1 200 OK\r\nContent-Le"), std::string("nonsense\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfour"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nfour"),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + endless, "HTTP/1.1 200 OK\r\nX: " + endless}) {
    OneAnswer server(answer);
    EXPECT_NE(fetched(server.url()).error, "") << answer.substr(0, 80);
  }
}

TEST(Fetching, SendsABodyAndHeaders) {
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  EXPECT_EQ(fetched(server.url(), {.headers = {{"X-Test", "a b"}}, .post = "body"}).body, "ok");
  const std::string asked = server.asked();
  EXPECT_TRUE(asked.starts_with("POST /x HTTP/1.1\r\n")) << asked;
  EXPECT_NE(asked.find("X-Test: a b\r\n"), std::string::npos);
  EXPECT_NE(asked.find("Content-Length: 4\r\n"), std::string::npos);
  OneAnswer other("");
  EXPECT_NE(fetched(other.url(), {.headers = {{"X-Test", "a\r\nHost: b"}}}).error.find("control character"),
            std::string::npos);
  fetched(other.url());
}

TEST(Fetching, EndsWhenTheTimeIsOverOrWhenStopped) {
  OneAnswer slow("", true);
  const std::string late = fetched(slow.url(), {.silence = std::chrono::seconds(0)}).error;
  EXPECT_NE(late.find("does not answer in time"), std::string::npos) << late;
  OneAnswer silent("", true);
  std::stop_source stop;
  std::jthread stopper([&stop] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop.request_stop();
  });
  EXPECT_EQ(fetched(silent.url(), {.stop = stop.get_token()}).error, "the pull was cancelled");
}

}  // namespace
}  // namespace quarrel::http
