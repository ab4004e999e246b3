// The server: HTTP in front, models behind, rights and limits between them. One object a process; made, run and ended
// on one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "flight/listener.h"
#include "server/admission.h"
#include "server/http/http_server.h"
#include "server/service.h"
#include "server/watch/watch.h"

namespace quarrel {

struct ServeOptions {
  http::ServerOptions http = {};
  ServiceOptions service = {};
  AdmissionOptions admission = {};
  WatchOptions watch = {};
  std::optional<std::uint16_t> flight_port = {};  // none: Flight is not served; 0: a free one
};

class Server {
 public:
  // Listens when it returns. Throws Error: io where it cannot, unsupported where Flight cannot be served, what
  // RequestAdmission throws, and not_found for a model that it is started with and that does not exist.
  Server(ServeOptions options, std::shared_ptr<Device> device, ModelStore store, Log& log);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const noexcept { return http_->port(); }
  const std::vector<std::uint16_t>& ports() const noexcept { return http_->ports(); }
  Service& service() noexcept { return service_; }
  std::optional<std::uint16_t> flight_port() const noexcept;
  void reload();  // files that it has open, or its certificate, may have been exchanged
  RequestAdmission& admission() noexcept { return *admission_; }
  // Takes no more, and gives what runs so much time, or until `hurry` says so. What runs then is cancelled and told
  // why, for which it has a second. True: all of it had ended by itself.
  bool drain(std::chrono::milliseconds time, const std::function<bool()>& hurry = {});

 private:
  http::Admission admit(const http::Request& request);
  void handle(const std::shared_ptr<http::Exchange>& exchange);
  http::Response refuse(const http::Refusal& refusal);

  const ServeOptions options_;
  Service service_;
  const std::shared_ptr<RequestAdmission> admission_;  // what is answered while the service ends asks it too
  std::unique_ptr<Watch> watch_;
  std::unique_ptr<http::HttpServer> http_;
  std::unique_ptr<FlightListener> flight_;  // ends first
};

}  // namespace quarrel
