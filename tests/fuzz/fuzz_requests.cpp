// What clients send. `request_body`: the first byte chooses an endpoint's reader, the others are the body. Readers take
// it or refuse it with 400. `http_connection`: the bytes come over a connection and nothing after them. What comes back
// are whole answers, none of them 500, and handlers see clean requests alone.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "fuzz/request_targets.h"
#include "fuzz/targets.h"
#include "server/http/http_server.h"
#include "server/ollama_request.h"
#include "server/openai_request.h"
#include "support/temp_dir.h"

namespace quarrel::fuzz {
namespace {

using namespace std::string_view_literals;

template <auto Read>
void read_with(std::string_view body) {
  Read(parse_body(body));
}

constexpr std::array kReaders = {
    BodyReader{"/v1/chat/completions", read_with<read_chat_request>},
    BodyReader{"/v1/completions", read_with<read_completion_request>},
    BodyReader{"/v1/embeddings", read_with<read_embedding_request>},
    BodyReader{"/api/generate", read_with<read_ollama_generate>},
    BodyReader{"/api/chat", read_with<read_ollama_chat>},
    BodyReader{"/api/embed", read_with<read_ollama_embed>},
    BodyReader{"/api/embeddings", read_with<read_ollama_embeddings>},
    BodyReader{"/api/show", read_with<read_ollama_model>},
    BodyReader{"/api/copy", read_with<read_ollama_copy>},
};

struct NoLog : Log {
  void write(LogLevel, std::string_view) override {}
};

// A server on a socket of its own, for as long as the program runs.
class Listening {
 public:
  Listening() : path_(folder_.path() / "http") {
    http::HttpServer::Handler handler;
    handler.admit = [this](const http::Request& request) { return admit(request); };
    handler.handle = [this](const std::shared_ptr<http::Exchange>& exchange) { handle(exchange); };
    handler.refuse = [](unsigned status, const std::string& message) {
      return http::Response{.status = status, .content_type = "text/plain", .body = message};
    };
    http::ServerOptions options{.port = 0, .unix_socket = path_};
    options.limits.header_time = options.limits.body_time = options.limits.idle_time = std::chrono::seconds(5);
    server_ = std::make_unique<http::HttpServer>(options, std::move(handler), log_);
    server_->start();
  }

  // All that comes back for these bytes.
  std::string answer(std::string_view bytes) const {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
    require(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "it listens");
    const timeval limit{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    // The server may have refused before it has all.
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) break;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    ::shutdown(socket, SHUT_WR);
    std::string text;
    char piece[4096];
    ssize_t count = 0;
    while ((count = ::recv(socket, piece, sizeof piece, 0)) > 0) text.append(piece, static_cast<std::size_t>(count));
    const bool ended = count == 0 || errno == ECONNRESET;
    ::close(socket);
    require(ended, "a connection ends when nothing more comes");
    return text;
  }

  bool saw_fault() const noexcept { return fault_; }

 private:
  http::Admission admit(const http::Request& request) {
    check(request);
    if (request.path.starts_with("/closed")) return {.refusal = 403, .answer = {.status = 403, .body = "no"}};
    return {.body_bytes = 4096};
  }

  void handle(const std::shared_ptr<http::Exchange>& exchange) {
    check(exchange->request());
    if (exchange->request().path != "/stream") return exchange->respond({.body = exchange->request().body});
    exchange->begin(http::stream_head("text/plain"));
    exchange->write("one");
    exchange->write("two");
    exchange->finish();
  }

  // On the server's thread: an exception would end there.
  void check(const http::Request& request) {
    const auto clean = [](std::string_view text) {
      return std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
    };
    bool good = request.path.starts_with('/') && request.path.find("//") == std::string::npos && clean(request.path) &&
                request.path.find("/../") == std::string::npos && !request.path.ends_with("/..") &&
                clean(request.method) && http::usable_request_id(request.id) && request.body.size() <= 4096;
    for (const auto& [name, value] : request.headers) {
      good = good && !name.empty() && value.find_first_of("\r\n\0"sv) == std::string::npos;
    }
    if (!good) fault_ = true;
  }

  test::TempDir folder_;
  const std::string path_;
  NoLog log_;
  std::atomic<bool> fault_ = false;
  std::unique_ptr<http::HttpServer> server_;  // ends first
};

}  // namespace

std::span<const BodyReader> body_readers() noexcept { return kReaders; }

void request_body(Input input) {
  if (input.empty()) return;
  const std::string_view text = as_text(input);
  const BodyReader& reader = kReaders[static_cast<unsigned char>(text.front()) % kReaders.size()];
  try {
    reader.read(text.substr(1));
  } catch (const ApiError& error) {
    require(error.status == 400, "a body is taken, or refused with 400");
    require(openai_error(error).body.find("\"error\"") != std::string::npos, "a refusal can be said");
  }
}

void http_connection(Input input) {
  static Listening listening;
  const std::string answer = listening.answer(as_text(input));
  require(!listening.saw_fault(), "handlers see clean requests alone");
  require(answer.empty() || answer.starts_with("HTTP/1."), "an answer begins with its status");
  require(answer.find("HTTP/1.1 500") == std::string::npos && answer.find("HTTP/1.0 500") == std::string::npos,
          "nothing goes wrong inside");
}

}  // namespace quarrel::fuzz
