// A Flight server that behaves as Longbow does, for tests: a data port and a meta port over one store, verbs refused
// where Longbow refuses them, no answer to a DoPut that went well, its limits, and faults on demand. In a test's
// process, or as the program longbow_server.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "support/longbow_store.h"

namespace quarrel::longbow {

// What goes wrong from now on.
struct Faults {
  int refuse_calls = 0;     // so many calls of any verb find the server unavailable
  int busy_as_a_whole = 0;  // so many questions whether a dataset is ready: no rows are counted then
  bool slow_down = false;   // each DoPut is greeted with a warning
  bool full = false;        // the queue takes nothing
  int rate_limited = 0;     // so many streams are refused, politely
  bool stall = false;       // streams are not read until this is over or the client gives up
  std::optional<std::int64_t> break_put_after =
      {};                    // a DoPut or ingest ends after so many batches, as if the server had died
  bool keep_broken = false;  // … having queued them
  bool overtaken = false;    // the first stream's rows are queued only after those of another, and meanwhile not busy
  std::optional<std::int64_t> break_get_after = {};  // a scan does, after so many
  bool endless_hits = false;                         // a search finds its first batch of hits again and again
  bool endless_nothing = false;                      // a scan brings batches without rows, and no end
  bool compressed = false;                           // what a scan brings is compressed
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  int data_port = 0;  // 0: any
  int meta_port = 0;
  std::string certificate = {};  // PEM: TLS with it
  std::string key = {};
  std::string client_authority = {};                       // PEM: clients show a certificate that these have signed
  std::string token = {};                                  // asked for with every call
  std::int64_t largest_message = std::int64_t{512} << 20;  // bytes
  // Called with the number of batches of a stream after each; the program ends itself here.
  std::function<void(std::int64_t)> after_batch = {};
};

class Server {
 public:
  explicit Server(const ServerOptions& options = {});
  // Calls that still run are ended.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int data_port() const noexcept;
  int meta_port() const noexcept;
  Store& store() noexcept;
  void set_faults(const Faults& faults);
  std::int64_t calls() const noexcept;    // that have begun
  std::int64_t streams() const noexcept;  // DoPut and ingest among them

 private:
  struct Shared;
  class Base;
  class DataServer;
  class MetaServer;

  std::shared_ptr<Shared> shared_;
  std::unique_ptr<DataServer> data_;
  std::unique_ptr<MetaServer> meta_;
};

}  // namespace quarrel::longbow
