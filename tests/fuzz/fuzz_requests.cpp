// What clients send. `request_body`: the first byte chooses an endpoint and one of two services, the others are the
// body. In the service without models what is read comes to an end at 404; in the other a toy answers it, to the end.
// Nothing goes wrong in either. `http_connection`: the bytes come over a connection and nothing after them. What comes
// back are whole answers, none of them 500, and handlers see clean requests alone.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/create.h"
#include "base/error.h"
#include "fuzz/request_targets.h"
#include "fuzz/targets.h"
#include "server/api_error.h"
#include "server/http/http_server.h"
#include "server/json_body.h"
#include "server/routes.h"
#include "server/service.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::fuzz {
namespace {

using namespace std::string_view_literals;

struct NoLog : Log {
  void write(LogLevel, std::string_view) override {}
};

// `name` stands where a path has a model's name.
http::Request request_to(const Route& row, std::string_view body, std::string_view name, const Service& service) {
  http::Request request{.method = std::string(row.method), .path = std::string(row.path), .body = std::string(body)};
  if (const std::size_t open = request.path.find('{'); open != std::string::npos) {
    request.path.replace(open, request.path.find('}') - open + 1, name);
  }
  request.record = service.new_record({});
  return request;
}

void handle_request(const Route& row, Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  try {
    row.handle(service, exchange);
  } catch (...) {
    const ApiError error = api_error(std::current_exception());
    exchange->respond(row.dialect == Dialect::openai ? openai_error(error) : plain_error(error));
  }
}

// What handlers work with, where there is no model at all.
class NobodyHome {
 public:
  NobodyHome()
      : service_({}, make_device({.backend = "reference", .threads = 1}),
                 ModelStore(StorePaths{.quarrel = folder_.path(), .ollama = {}}), log_) {}

  // The status that it is answered with; 0: that comes later.
  unsigned answer(const Route& row, std::string_view body) {
    const auto exchange =
        std::make_shared<http::Exchange>(request_to(row, body, "somebody", service_), std::size_t{1} << 20, [] {});
    handle_request(row, service_, exchange);
    const http::Exchange::Output output = exchange->take();
    return output.has_head ? output.head.status : 0;
  }

 private:
  test::TempDir folder_;
  NoLog log_;
  Service service_;
};

// The same with a toy under each name that the examples have.
class ToyHome {
 public:
  ToyHome()
      : service_(with_toy(folder_.path()), make_device({.backend = "cpu", .threads = 1}),
                 ModelStore(StorePaths{.quarrel = folder_ / "store", .ollama = {}}), log_) {
    service_.poster()->set([](const std::function<void()>& task) { task(); });
  }

  // The status of the answer, whose end is waited for.
  unsigned answer(const Route& row, std::string_view body) {
    const auto news = std::make_shared<News>();
    const auto exchange = std::make_shared<http::Exchange>(request_to(row, body, "m", service_), std::size_t{1} << 20,
                                                           [news] { news->tell(); });
    handle_request(row, service_, exchange);
    http::Response head;
    for (;;) {
      require(news->wait(), "every request is answered");
      http::Exchange::Output output = exchange->take();
      require(!output.broken, "an answer is whole");
      if (output.has_head) head = std::move(output.head);
      if (output.finished) break;
    }
    const bool is_json = head.content_type == "application/json" && !head.body.empty();
    require(!is_json || Json::accept(head.body), "an answer in JSON is JSON");
    return head.status;
  }

 private:
  // That the exchange has something for its client.
  class News {
   public:
    void tell() {
      const std::scoped_lock lock(mutex_);
      there_ = true;
      came_.notify_one();
    }
    // False: for long there was none.
    bool wait() {
      std::unique_lock lock(mutex_);
      const bool came = came_.wait_for(lock, std::chrono::seconds(60), [this] { return there_; });
      there_ = false;
      return came;
    }

   private:
    std::mutex mutex_;
    std::condition_variable came_;
    bool there_ = false;  // guarded
  };

  // A context so short that an answer without any bound ends soon.
  static ServiceOptions with_toy(const std::filesystem::path& folder) {
    const std::string file = test::write_toy_chat(folder, {.layers = 1, .context = 256}).string();
    ServiceOptions options{.load = {.executor = {.sequences = 4}}};
    for (const char* name : {"m", "default", "minilm"}) {
      options.models.emplace_back(name);
      options.configured.emplace(name, file);
    }
    return options;
  }

  test::TempDir folder_;
  NoLog log_;
  Service service_;
};

// A server on a socket of its own, for as long as the program runs.
class Listening {
 public:
  Listening() : path_(folder_.path() / "http") {
    http::HttpServer::Handler handler;
    handler.admit = [this](const http::Request& request) { return admit(request); };
    handler.handle = [this](const std::shared_ptr<http::Exchange>& exchange) { handle(exchange); };
    handler.refuse = [](const http::Refusal& refusal) {
      return http::Response{.status = refusal.status, .content_type = "text/plain", .body = refusal.message};
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

std::span<const Route* const> routes_with_bodies() {
  static const std::vector<const Route*> kList = [] {
    std::vector<const Route*> list;
    for (const Route& row : routes()) {
      if (row.body_bytes > 0) list.push_back(&row);
    }
    return list;
  }();
  return kList;
}

// What one reader of JSON takes, the other takes for the same.
void compare_readers(std::string_view body) {
  const std::optional<Json> quick = read_by_simdjson(body);
  if (!quick) return;
  try {
    require(quick->dump() == read_by_nlohmann(body).dump(), "both readers read the same");
  } catch (const ApiError&) {
    require(false, "what one reader takes the other takes");
  }
}

unsigned answer_to_body(const Route& row, std::string_view body) {
  static NobodyHome home;
  compare_readers(body);
  return home.answer(row, body);
}

unsigned answer_of_toy(const Route& row, std::string_view body) {
  static ToyHome home;
  compare_readers(body);
  return home.answer(row, body);
}

void request_body(Input input) {
  if (input.empty()) return;
  const std::string_view text = as_text(input);
  const std::span<const Route* const> rows = routes_with_bodies();
  const std::size_t chosen = static_cast<unsigned char>(text.front());
  const Route& row = *rows[chosen % rows.size()];
  const bool has_model = chosen / rows.size() == 1;
  const unsigned status = has_model ? answer_of_toy(row, text.substr(1)) : answer_to_body(row, text.substr(1));
  require(status != 500, "nothing goes wrong inside");
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
