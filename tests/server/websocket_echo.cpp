// A server whose WebSockets send back what they get, for the protocol's cases (tests/cli/test_websocket_cases.py). It
// prints its port and ends when its input does. The message "long" has an answer that no socket's buffer holds.
//
//   websocket_echo [CERTIFICATE KEY]
#include <cstdio>
#include <string>

#include "server/http/http_server.h"

namespace quarrel::http {
namespace {

struct NoLog : Log {
  void write(LogLevel, std::string_view) override {}
};

constexpr std::size_t kLongAnswer = 16 << 20;

class Echo : public WebSocketHandler {
 public:
  explicit Echo(std::shared_ptr<WebSocket> socket) : socket_(std::move(socket)) {}
  void message(std::string text, std::shared_ptr<void>) override {
    socket_->send(text == "long" ? std::string(kLongAnswer, '*') : std::move(text));
  }
  void closed() override {}

 private:
  const std::shared_ptr<WebSocket> socket_;
};

void handle(const std::shared_ptr<Exchange>& exchange) {
  const std::vector<std::string> offered = offered_protocols(exchange->request());
  const bool known = !offered.empty() && offered.front() == "echo";
  exchange->upgrade(known ? "echo" : "",
                    [](const std::shared_ptr<WebSocket>& socket) { return std::make_shared<Echo>(socket); });
}

int run(int count, char** arguments) {
  NoLog log;
  ServerOptions options{.port = 0};
  if (count == 3) options.tls = {.certificate = arguments[1], .key = arguments[2]};
  HttpServer::Handler handler;
  handler.admit = [](const Request&) { return Admission{}; };
  handler.handle = handle;
  handler.refuse = [](const Refusal& refusal) {
    return Response{.status = refusal.status, .content_type = "text/plain", .body = refusal.message};
  };
  HttpServer server(options, handler, log);
  server.start();
  std::printf("%u\n", static_cast<unsigned>(server.port()));
  std::fflush(stdout);
  while (std::getchar() != EOF) continue;
  return 0;
}

}  // namespace
}  // namespace quarrel::http

int main(int count, char** arguments) { return quarrel::http::run(count, arguments); }
