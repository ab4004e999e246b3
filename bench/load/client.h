// The load generator's side of a connection: one question, and what comes of it, as a coroutine. OpenAI's completions
// and chats as server-sent events, which other servers speak too, or Quarrel's WebSocket. Everything runs on one
// io_context.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "load/question.h"

namespace quarrel::load {

enum class Protocol { completions, chat, websocket };

struct Target {
  boost::asio::ip::tcp::endpoint endpoint = {};
  Protocol protocol = Protocol::completions;
  std::string model = {};  // empty: the server's default
  std::string key = {};
  std::vector<int> forbidden = {};  // tokens that end answers: biased away, so that each has its full length
  double temperature = 0.8;
};

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A connection that is kept for one question after the other, and opened anew where it broke.
class Client {
 public:
  Client(boost::asio::io_context& io, const Target& target);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  boost::asio::awaitable<Outcome> ask(const Question& question, Clock::time_point run_start);
  // Only connects (a WebSocket with its handshake), to be there. False: it could not.
  boost::asio::awaitable<bool> connect();
  // Reads what a server tells whoever is there, until the connection ends or is closed here.
  boost::asio::awaitable<void> stay();
  void close();

 private:
  class Wire;
  std::unique_ptr<Wire> wire_;
};

}  // namespace quarrel::load
