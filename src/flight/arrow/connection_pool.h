// Connections to one port of the store. Each has a socket of its own; a call takes one that nobody uses, a new one
// while there may be more, or shares the one with the fewest calls. Any thread may call.
#pragma once

#include <arrow/flight/client.h>
#include <arrow/flight/transport.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "flight/longbow.h"

namespace quarrel::flight {

class ConnectionPool {
 public:
  // Connects nothing yet.
  ConnectionPool(const LongbowAddress& address, std::uint16_t port, const LongbowOptions& options);
  ~ConnectionPool();
  ConnectionPool(const ConnectionPool&) = delete;
  ConnectionPool& operator=(const ConnectionPool&) = delete;

  // A connection for the time of a call. The pool must outlive it.
  class Lease {
   public:
    Lease(ConnectionPool* pool, std::size_t index) : pool_(pool), index_(index) {}
    ~Lease();
    Lease(Lease&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), index_(other.index_) {}
    Lease& operator=(Lease&&) = delete;
    arrow::flight::internal::ClientTransport& operator*() const;
    arrow::flight::internal::ClientTransport* operator->() const { return &**this; }

   private:
    ConnectionPool* pool_;
    std::size_t index_;
  };

  // Throws Error(unsupported) where Arrow cannot make one.
  Lease take();
  const std::string& host() const noexcept { return host_; }  // with the port
  std::size_t connections() const;

 private:
  struct Connection {
    std::unique_ptr<arrow::flight::internal::ClientTransport> transport;
    int calls = 0;
  };
  std::unique_ptr<arrow::flight::internal::ClientTransport> connect() const;

  std::string host_;
  bool tls_;
  std::size_t most_;
  arrow::flight::FlightClientOptions options_;
  mutable std::mutex mutex_;
  std::vector<Connection> open_;
};

}  // namespace quarrel::flight
