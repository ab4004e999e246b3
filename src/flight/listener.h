// A Flight endpoint of our own, for Arrow programs that want vectors without JSON: what it asks of whoever serves, in
// words without Arrow, which is opened at run time (flight/module.h).
//
// Threads: the listener calls its handler from threads of its own, several at once; each call may block.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace quarrel {

enum class FlightFault : std::uint8_t {
  invalid,
  unauthenticated,
  unauthorized,
  not_found,
  unavailable,
  unsupported,
  cancelled,
  internal,
};

// What a handler throws to have a call end with that status; anything else ends it as `internal`, without a word.
class FlightRefusal : public std::runtime_error {
 public:
  FlightRefusal(FlightFault fault, const std::string& message) : std::runtime_error(message), fault_(fault) {}
  FlightFault fault() const noexcept { return fault_; }

 private:
  FlightFault fault_;
};

// Who calls.
struct FlightCall {
  std::string authorization = {};  // the header, "Bearer …"; empty: there was none
  std::string request_id = {};     // the header x-request-id
  std::string peer = {};           // the address, without a port
  std::function<bool()> cancelled = {};
};

// Row by row.
struct FlightVectors {
  std::int32_t dimension = 0;
  std::vector<float> values = {};
  std::shared_ptr<void> share = {};  // of the room that all of them have; kept until they are sent
};

struct FlightColumn {
  std::string name = {};
  std::variant<std::vector<std::string>, std::vector<std::int64_t>, std::vector<double>> values = {};
};
using FlightTable = std::vector<FlightColumn>;  // columns of one length

class FlightHandler {
 public:
  virtual ~FlightHandler() = default;
  // Whether this caller may call at all: before anything of what it sends is read. On whose account: that of its key.
  virtual std::uint64_t admit(const FlightCall& call) = 0;
  // DoExchange: a vector a text, in their order; without texts only how wide they would be. `command` is the
  // descriptor's.
  virtual FlightVectors embed(const FlightCall& call, std::string_view command, std::vector<std::string> texts) = 0;
  // DoGet.
  virtual FlightTable table(const FlightCall& call, std::string_view ticket) = 0;
};

struct FlightListenerOptions {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;        // 0: a free one
  std::string certificate = {};  // PEM, with its key; empty: no TLS
  std::string key = {};
  int calls = 64;  // open at once; more are refused
  int calls_of_caller = 32;
  int message_bytes = 17 * 1024 * 1024;  // the most that one may have: 16 MiB of texts, and what surrounds them
  // So long a message may take to come or to be taken, the silence before it included; then its connection is cut.
  std::chrono::milliseconds message_time = std::chrono::minutes(2);
};

class FlightListener {
 public:
  virtual ~FlightListener() = default;  // stops
  virtual std::uint16_t port() const noexcept = 0;
  // No call is being answered; streams may be open on which nobody asks.
  virtual bool idle() const noexcept = 0;
  // Takes no more calls, and gives what runs so much time; then it is cancelled. Returns when all have ended.
  virtual void stop(std::chrono::milliseconds time) = 0;
};

// Listens when it returns. Throws Error: unsupported where there is no module, io where it cannot listen there.
std::unique_ptr<FlightListener> listen_flight(const FlightListenerOptions& options,
                                              std::shared_ptr<FlightHandler> handler);

}  // namespace quarrel
