#include "load/client.h"

#include <fmt/format.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

namespace quarrel::load {

namespace asio = boost::asio;
namespace http = boost::beast::http;
namespace websocket = boost::beast::websocket;
using boost::system::error_code;
using Json = nlohmann::json;

namespace {

// Times of an answer's pieces.
class Stopwatch {
 public:
  explicit Stopwatch(Outcome& outcome) : outcome_(outcome) {}

  void piece(std::string_view text) {
    const double now = seconds_since(start_);
    if (pieces_++ == 0) {
      outcome_.first = now;
    } else {
      outcome_.gaps.push_back(now - last_);
    }
    last_ = now;
    outcome_.text += text;
  }
  void end() { outcome_.total = seconds_since(start_); }
  std::uint64_t pieces() const noexcept { return pieces_; }

 private:
  Outcome& outcome_;
  std::uint64_t pieces_ = 0;
  Clock::time_point start_ = Clock::now();
  double last_ = 0.0;
};

std::string authorization(const Target& target) { return "Bearer " + target.key; }

// What a question is in every protocol.
Json asked(const Target& target, const Question& question) {
  Json body{
      {"max_tokens", question.output}, {"seed", question.seed}, {"temperature", target.temperature}, {"stream", true}};
  if (!target.model.empty()) body["model"] = target.model;
  for (const int id : target.forbidden) body["logit_bias"][std::to_string(id)] = -100;
  return body;
}

std::string events_body(const Target& target, const Question& question) {
  Json body = asked(target, question);
  body["stream_options"] = {{"include_usage", true}};
  if (target.protocol == Protocol::chat) {
    body["messages"] = Json::array({{{"role", "user"}, {"content", question.prompt}}});
  } else {
    body["prompt"] = question.prompt;
  }
  return body.dump();
}

std::string websocket_body(const Target& target, const Question& question) {
  Json payload = asked(target, question);
  payload["prompt"] = question.prompt;
  return Json{{"type", "inference"}, {"payload", payload}}.dump();
}

// A member that may be absent, null or of another kind: servers differ.
std::string text_member(const Json& json, const char* name) {
  const auto found = json.is_object() ? json.find(name) : json.end();
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}
std::uint64_t number_member(const Json& json, const char* name) {
  const auto found = json.is_object() ? json.find(name) : json.end();
  return found != json.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

// Of a completion's event, or of a chat's.
std::string text_of_event(const Json& choice) {
  const std::string text = text_member(choice, "text");
  const auto delta = choice.is_object() ? choice.find("delta") : choice.end();
  return text.empty() && delta != choice.end() ? text_member(*delta, "content") : text;
}

// One event of OpenAI's stream.
void take_event(std::string_view data, Outcome& outcome, Stopwatch& watch) {
  if (data == "[DONE]") {
    outcome.whole = true;
    return;
  }
  const Json json = Json::parse(data, nullptr, false);
  if (!json.is_object()) return;
  if (json.contains("error")) outcome.error = json["error"].dump();
  if (json.contains("choices") && json["choices"].is_array() && !json["choices"].empty()) {
    const std::string text = text_of_event(json["choices"][0]);
    if (!text.empty()) watch.piece(text);
  }
  if (json.contains("usage") && json["usage"].is_object()) {
    outcome.prompt_tokens = number_member(json["usage"], "prompt_tokens");
    outcome.tokens = number_member(json["usage"], "completion_tokens");
  }
}

// One line of a stream of events: "data:", a space or none, and the data; lines end as the server likes.
void take_line(std::string_view line, Outcome& outcome, Stopwatch& watch) {
  constexpr std::string_view kData = "data:";
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (!line.starts_with(kData)) return;
  line.remove_prefix(kData.size());
  if (line.starts_with(' ')) line.remove_prefix(1);
  take_event(line, outcome, watch);
}

// One message of the WebSocket; true: the answer has ended.
bool take_message(std::string_view data, Outcome& outcome, Stopwatch& watch) {
  const Json json = Json::parse(data, nullptr, false);
  if (!json.is_object()) return false;
  const std::string type = json.value("type", "");
  const Json payload = json.value("payload", Json::object());
  if (type == "error") {
    outcome.error = payload.dump();
    outcome.status =
        payload.value("code", "") == "QUEUE_FULL" || payload.value("code", "") == "RATE_LIMITED" ? 503 : 500;
    outcome.retry_after = payload.contains("retry_after");
    return true;
  }
  if (type != "inference") return false;
  if (payload.value("token_id", -1) >= 0) ++outcome.tokens;
  const std::string text = payload.value("token", "");
  if (!text.empty()) watch.piece(text);
  outcome.whole = payload.value("complete", false);
  return outcome.whole;
}

}  // namespace

class Client::Wire {
 public:
  Wire(asio::io_context& io, const Target& target) : io_(io), target_(target) {}

  asio::awaitable<bool> connect() {
    error_code error;
    socket_.emplace(io_);
    buffer_.clear();
    auto& lowest = boost::beast::get_lowest_layer(*socket_);
    co_await lowest.async_connect(target_.endpoint, asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return false;
    lowest.socket().set_option(asio::ip::tcp::no_delay(true), error);
    if (target_.protocol == Protocol::websocket) {
      const std::string key = target_.key;
      const auto decorate = [key](websocket::request_type& request) {
        if (!key.empty()) request.set(http::field::authorization, "Bearer " + key);
      };
      socket_->set_option(websocket::stream_base::decorator(decorate));
      const std::string host = fmt::format("localhost:{}", target_.endpoint.port());
      co_await socket_->async_handshake(host, "/ws", asio::redirect_error(asio::use_awaitable, error));
    }
    open_ = !error;
    co_return open_;
  }

  asio::awaitable<Outcome> ask(const Question& question, Clock::time_point run_start) {
    Outcome outcome{.begun = seconds_since(run_start)};
    const bool used_before = open_;
    if (!open_ && !co_await connect()) {
      outcome.error = "no connection";
      co_return outcome;
    }
    if (target_.protocol == Protocol::websocket) {
      co_await ask_websocket(question, outcome);
      co_return outcome;
    }
    co_await ask_events(question, outcome);
    // Some servers close a connection between two requests: whoever has heard nothing asks again.
    if (used_before && outcome.status == 0) {
      outcome = {.begun = outcome.begun};
      const bool connected = co_await connect();
      if (connected) co_await ask_events(question, outcome);
      if (!connected) outcome.error = "no connection";
    }
    co_return outcome;
  }

  asio::awaitable<void> stay() {
    error_code error;
    while (open_ && !error) {
      boost::beast::flat_buffer message;
      co_await socket_->async_read(message, asio::redirect_error(asio::use_awaitable, error));
    }
  }

  void close() {
    error_code ignored;
    if (socket_) boost::beast::get_lowest_layer(*socket_).socket().close(ignored);
    open_ = false;
  }

 private:
  using Stream = websocket::stream<boost::beast::tcp_stream>;

  const char* path() const noexcept {
    return target_.protocol == Protocol::chat ? "/v1/chat/completions" : "/v1/completions";
  }

  asio::awaitable<void> ask_events(const Question& question, Outcome& outcome) {
    auto& stream = socket_->next_layer();
    http::request<http::string_body> request(http::verb::post, path(), 11);
    request.set(http::field::host, fmt::format("localhost:{}", target_.endpoint.port()));
    request.set(http::field::content_type, "application/json");
    if (!target_.key.empty()) request.set(http::field::authorization, authorization(target_));
    request.body() = events_body(target_, question);
    request.prepare_payload();
    Stopwatch watch(outcome);
    error_code error;
    co_await http::async_write(stream, request, asio::redirect_error(asio::use_awaitable, error));
    http::response_parser<http::string_body> parser;
    parser.body_limit(boost::none);
    if (!error) {
      co_await http::async_read_header(stream, buffer_, parser, asio::redirect_error(asio::use_awaitable, error));
    }
    if (!error) {
      outcome.status = parser.get().result_int();
      outcome.retry_after = parser.get().find(http::field::retry_after) != parser.get().end();
    }
    std::string pending;
    while (!error) {
      pending += std::exchange(parser.get().body(), {});
      if (outcome.status == 200) take_events(pending, outcome, watch);
      if (parser.is_done()) break;
      co_await http::async_read_some(stream, buffer_, parser, asio::redirect_error(asio::use_awaitable, error));
    }
    watch.end();
    // Who says nothing of usage sends a piece for each token.
    if (outcome.tokens == 0) outcome.tokens = watch.pieces();
    if (error) outcome.error = error.message();
    if (outcome.status != 200 && outcome.error.empty()) outcome.error = pending;
    open_ = !error && parser.get().keep_alive();
  }

  static void take_events(std::string& pending, Outcome& outcome, Stopwatch& watch) {
    std::size_t begin = 0;
    for (std::size_t end = pending.find('\n'); end != std::string::npos; end = pending.find('\n', begin)) {
      take_line(std::string_view(pending).substr(begin, end - begin), outcome, watch);
      begin = end + 1;
    }
    pending.erase(0, begin);
  }

  asio::awaitable<void> ask_websocket(const Question& question, Outcome& outcome) {
    const std::string body = websocket_body(target_, question);
    Stopwatch watch(outcome);
    error_code error;
    outcome.status = 200;
    co_await socket_->async_write(asio::buffer(body), asio::redirect_error(asio::use_awaitable, error));
    bool ended = false;
    while (!error && !ended) {
      boost::beast::flat_buffer message;
      co_await socket_->async_read(message, asio::redirect_error(asio::use_awaitable, error));
      const auto data = message.cdata();
      if (!error) ended = take_message({static_cast<const char*>(data.data()), data.size()}, outcome, watch);
    }
    watch.end();
    if (error) {
      outcome.status = 0;
      outcome.error = error.message();
    }
    open_ = !error;
  }

  asio::io_context& io_;
  const Target& target_;
  std::optional<Stream> socket_;
  boost::beast::flat_buffer buffer_;
  bool open_ = false;
};

Client::Client(asio::io_context& io, const Target& target) : wire_(std::make_unique<Wire>(io, target)) {}
Client::~Client() = default;
asio::awaitable<Outcome> Client::ask(const Question& question, Clock::time_point run_start) {
  return wire_->ask(question, run_start);
}
asio::awaitable<bool> Client::connect() { return wire_->connect(); }
asio::awaitable<void> Client::stay() { return wire_->stay(); }
void Client::close() { wire_->close(); }

}  // namespace quarrel::load
