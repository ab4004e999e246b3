#include "flight/module.h"

#include <arpa/inet.h>

#include <array>
#include <string>

#include "base/loadable_module.h"
#include "flight/flight_module.h"
#include "flight/listener.h"

namespace quarrel {
namespace {

constexpr LoadableModule kModule = {
    .file = "libquarrel_flight.so", .part = "Flight client", .remedy = "run `make flight`"};

bool is_this_machine(const std::string& host) {
  in_addr four{};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  return host == "localhost" || host == "::1";
}

}  // namespace

bool has_flight_module() { return has_module(kModule); }

void check_longbow_options(const LongbowOptions& options) {
  if (options.client_certificate.empty() != options.client_key.empty()) {
    fail(ErrorKind::usage, "a client's certificate and its key belong together, and one of them is missing");
  }
  for (const char c : options.token) {
    if (c < 0x21 || c > 0x7E) fail(ErrorKind::usage, "a token has printable ASCII characters only, and no spaces");
  }
  if (options.attempts < 1 || options.connections < 1 || options.largest_batch == 0) {
    fail(ErrorKind::usage, "a client of Longbow needs at least one attempt, one connection and some room for a batch");
  }
  if (options.call_timeout.count() <= 0 || options.batch_timeout.count() <= 0 || options.first_pause.count() < 0) {
    fail(ErrorKind::usage, "the time limits of a client of Longbow must be above zero");
  }
}

void check_longbow_tls(const LongbowAddress& address, const LongbowOptions& options) {
  if (address.tls) return;
  if (!options.root_certificates.empty() || !options.client_certificate.empty()) {
    fail(ErrorKind::usage, "there are certificates for {} and no TLS: write longbow+tls:// to use them",
         longbow_address_text(address));
  }
  if (!options.token.empty() && !is_this_machine(address.host)) {
    fail(ErrorKind::usage, "a token for {} would travel where others can read it: write longbow+tls://",
         longbow_address_text(address));
  }
}

std::unique_ptr<LongbowClient> connect_longbow(const LongbowAddress& address, const LongbowOptions& options) {
  check_longbow_options(options);
  check_longbow_tls(address, options);
  const auto connect = reinterpret_cast<ConnectLongbow>(module_function(kModule, kConnectLongbow));
  std::array<char, 512> reason{};
  std::unique_ptr<LongbowClient> client(
      connect(kFlightModuleVersion, &address, &options, reason.data(), reason.size()));
  if (client == nullptr) fail(ErrorKind::unsupported, "{}", reason.data());
  return client;
}

std::unique_ptr<FlightListener> listen_flight(const FlightListenerOptions& options,
                                              std::shared_ptr<FlightHandler> handler) {
  const auto listen = reinterpret_cast<ListenFlight>(module_function(kModule, kListenFlight));
  std::array<char, 512> reason{};
  std::unique_ptr<FlightListener> listener(
      listen(kFlightModuleVersion, &options, &handler, reason.data(), reason.size()));
  if (listener == nullptr) fail(ErrorKind::io, "{}", reason.data());
  return listener;
}

}  // namespace quarrel
