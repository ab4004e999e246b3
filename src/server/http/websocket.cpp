#include "server/http/websocket.h"

#include <algorithm>
#include <utility>

namespace quarrel::http {
namespace {

// Of 16 bytes in base64.
constexpr std::size_t kKeyLength = 24;

bool has_token(const Request& request, std::string_view name, std::string_view wanted) {
  bool found = false;
  for_each_token(request, name, [&](std::string_view token) { found |= equals_ignoring_case(token, wanted); });
  return found;
}

std::size_t count(const Request& request, std::string_view name) {
  return static_cast<std::size_t>(
      std::ranges::count_if(request.headers, [&](const auto& each) { return equals_ignoring_case(each.first, name); }));
}

bool is_key(std::string_view key) noexcept {
  if (key.size() != kKeyLength || !key.ends_with("==")) return false;
  return std::ranges::all_of(key.substr(0, kKeyLength - 2), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '/';
  });
}

}  // namespace

WebSocket::WebSocket(std::shared_ptr<const Request> request, std::size_t most_buffered, std::function<void()> wake)
    : request_(std::move(request)), wake_(std::move(wake)), backlog_(most_buffered) {}

bool WebSocket::send(std::string text) { return append(Opcode::text, text, true); }

bool WebSocket::broadcast(std::string_view text) { return append(Opcode::text, text, false); }

void WebSocket::control(Opcode opcode, std::string_view data) { append(opcode, data, false); }

bool WebSocket::append(Opcode opcode, std::string_view payload, bool is_message) {
  std::unique_lock lock(mutex_);
  if (state_ != State::open) return false;
  const bool broken = !backlog_.takes(output_.frames.size(), payload.size());
  if (broken) {
    broken_ = true;
    state_ = State::closed;
    output_ = {};
  } else {
    append_frame(output_.frames, opcode, payload);
    output_.has_message |= is_message;
    // One call for however much gathers until the connection takes it.
    if (woken_) return true;
  }
  wake(lock);
  return !broken;
}

void WebSocket::wake(std::unique_lock<std::mutex>& lock) {
  woken_ = true;
  lock.unlock();
  try {
    wake_();
  } catch (...) {
    lock.lock();
    woken_ = false;  // the next frame tries again
    throw;
  }
}

void WebSocket::close(CloseCode code, std::string_view reason) {
  std::unique_lock lock(mutex_);
  if (state_ == State::closing && output_.closing && !woken_) return wake(lock);  // nobody could be told at first
  if (state_ != State::open) return;
  append_close_frame(output_.frames, code, reason);
  state_ = State::closing;
  output_.closing = true;
  wake(lock);
}

WebSocket::Output WebSocket::take() {
  const std::scoped_lock lock(mutex_);
  woken_ = false;
  return std::exchange(output_, {});
}

bool WebSocket::is_open() const {
  const std::scoped_lock lock(mutex_);
  return state_ == State::open;
}

bool WebSocket::broken() const {
  const std::scoped_lock lock(mutex_);
  return broken_;
}

void WebSocket::end() {
  const std::scoped_lock lock(mutex_);
  state_ = State::closed;
  output_ = {};
}

UpgradeFault upgrade_fault(const Request& request) {
  if (!has_token(request, "Upgrade", "websocket") || !has_token(request, "Connection", "upgrade")) {
    return {426, "this path is for WebSockets: the request does not ask to become one"};
  }
  if (request.method != "GET") return {400, "a WebSocket begins with a GET"};
  if (request.header("Sec-WebSocket-Version") != "13" || count(request, "Sec-WebSocket-Version") != 1) {
    return {426, "the only version of WebSocket that is spoken here is 13"};
  }
  if (count(request, "Sec-WebSocket-Key") != 1 || !is_key(request.header("Sec-WebSocket-Key"))) {
    return {400, "the request's Sec-WebSocket-Key is none"};
  }
  return {};
}

std::vector<std::string> offered_protocols(const Request& request) {
  std::vector<std::string> offered;
  for_each_token(request, "Sec-WebSocket-Protocol", [&](std::string_view token) { offered.emplace_back(token); });
  return offered;
}

}  // namespace quarrel::http
