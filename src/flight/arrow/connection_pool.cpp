#include "flight/arrow/connection_pool.h"

#include <arrow/util/uri.h>

#include <algorithm>

namespace quarrel::flight {
namespace {

// What the store sends at most, too.
constexpr int kLargestMessage = 512 << 20;

arrow::flight::FlightClientOptions transport_options(const LongbowOptions& options) {
  arrow::flight::FlightClientOptions result = arrow::flight::FlightClientOptions::Defaults();
  result.tls_root_certs = options.root_certificates;
  result.cert_chain = options.client_certificate;
  result.private_key = options.client_key;
  result.generic_options.emplace_back("grpc.max_receive_message_length", kLargestMessage);
  // The proxy that the environment names is for the web: a store is reached directly.
  result.generic_options.emplace_back("grpc.enable_http_proxy", 0);
  // Pauses between attempts to connect are this client's own.
  result.generic_options.emplace_back("grpc.max_reconnect_backoff_ms", 1000);
  return result;
}

// Arrow knows its transports once somebody has made a client.
void register_transports(const arrow::flight::Location& location) {
  if (auto client = arrow::flight::FlightClient::Connect(location); client.ok()) (void)(*client)->Close();
}

template <typename T>
T made(arrow::Result<T> result) {
  if (!result.ok()) fail(ErrorKind::unsupported, "Arrow Flight cannot be used: {}", result.status().message());
  return std::move(result).ValueUnsafe();
}

}  // namespace

ConnectionPool::ConnectionPool(const LongbowAddress& address, std::uint16_t port, const LongbowOptions& options)
    : host_(host_and_port(address.host, port)),
      tls_(address.tls),
      most_(static_cast<std::size_t>(std::max(options.connections, 1))),
      options_(transport_options(options)) {}

ConnectionPool::~ConnectionPool() {
  for (Connection& connection : open_) (void)connection.transport->Close();
}

std::unique_ptr<arrow::flight::internal::ClientTransport> ConnectionPool::connect() const {
  const auto location = made(arrow::flight::Location::Parse((tls_ ? "grpc+tls://" : "grpc+tcp://") + host_));
  register_transports(location);
  auto transport = made(arrow::flight::internal::GetDefaultTransportRegistry()->MakeClient(location.scheme()));
  arrow::util::Uri uri;
  arrow::Status status = uri.Parse(location.ToString());
  if (status.ok()) status = transport->Init(options_, location, uri);
  if (!status.ok()) fail(ErrorKind::unsupported, "Arrow Flight cannot be used: {}", status.message());
  return transport;
}

ConnectionPool::Lease ConnectionPool::take() {
  const std::lock_guard lock(mutex_);
  auto best = std::ranges::min_element(open_, {}, &Connection::calls);
  if (best == open_.end() || (best->calls > 0 && open_.size() < most_)) {
    open_.push_back({.transport = connect(), .calls = 0});
    best = open_.end() - 1;
  }
  ++best->calls;
  return {this, static_cast<std::size_t>(best - open_.begin())};
}

std::size_t ConnectionPool::connections() const {
  const std::lock_guard lock(mutex_);
  return open_.size();
}

ConnectionPool::Lease::~Lease() {
  if (pool_ == nullptr) return;
  const std::lock_guard lock(pool_->mutex_);
  --pool_->open_[index_].calls;
}

arrow::flight::internal::ClientTransport& ConnectionPool::Lease::operator*() const {
  const std::lock_guard lock(pool_->mutex_);
  return *pool_->open_[index_].transport;
}

}  // namespace quarrel::flight
