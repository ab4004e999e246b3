// The vector stores that requests may reach: which hosts those are, clients of them, threads for calls that block, and
// what is counted of it. Only what the settings name is reached, whatever a request says.
//
// Made once by the service. Any thread; who asks for a client's calls does so on a thread of the pool.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/observations.h"
#include "flight/longbow.h"
#include "ingest/journal_shelf.h"
#include "server/store_pool.h"

namespace quarrel {

struct LongbowSettings {
  // "name:port": a port that may be reached, for data or for what is known of datasets; "name" is both usual ones.
  std::vector<std::string> hosts = {};
  std::string address = {};  // what requests mean that name none; empty: they have to
  LongbowOptions connection = {};
  std::filesystem::path journals = {};  // the folder of what was stored in which dataset; empty: nothing is stored
  using Connect = std::function<std::unique_ptr<LongbowClient>(const LongbowAddress&, const LongbowOptions&)>;
  Connect connect = {};  // for tests; none: the module's
};

// What is done in a store, for the metrics.
enum class StoreOperation : std::uint8_t { put, search };
inline constexpr std::size_t kStoreOperations = 2;

struct StoreTimes {
  SizeCounts milliseconds = {};
  double seconds = 0.0;
};

struct StoreObservations {
  LongbowCounters counters = {};  // of all clients
  std::array<StoreTimes, kStoreOperations> times = {};
  std::uint64_t refused = 0;  // for want of a thread
};

class LongbowStores {
 public:
  // Throws Error(usage) that names the settings which mean nothing, or with which no store could be reached.
  LongbowStores(LongbowSettings settings, Log& log);
  LongbowStores(const LongbowStores&) = delete;
  LongbowStores& operator=(const LongbowStores&) = delete;

  // Whether any host may be reached.
  bool any() const noexcept { return !allowed_.empty(); }
  // Where a request wants to go; an empty text is the settings' own address. Throws ApiError that names the field: 400
  // for what is no address, or one without TLS that needs it, 403 for a host that the settings do not name.
  LongbowAddress address(const std::string& text, const std::string& field) const;
  // One for each address; a few are kept. Throws what connect_longbow throws.
  std::shared_ptr<LongbowClient> client(const LongbowAddress& address);
  // Of the dataset. Throws what Journal throws, and ApiError where there is no folder for it.
  JournalShelf::Lease journal(const LongbowAddress& address, const JournalSubject& subject);
  const JournalShelf& journals() const noexcept { return journals_; }

  // Runs the job on a thread for such; see StorePool. Throws ApiError(503) when there is no room.
  void post(StoreLane lane, std::stop_source stop, StorePool::Job job);
  void count(StoreOperation operation, double seconds);
  StoreObservations observations() const;

  void stop() { pool_.stop(); }
  void end() { pool_.end(); }

 private:
  struct Known {
    LongbowAddress server;  // without a dataset
    std::shared_ptr<LongbowClient> client;
  };
  bool allows(const LongbowAddress& address) const;
  void require_tls(const LongbowAddress& address, const std::string& field) const;

  LongbowSettings settings_;
  std::vector<std::string> allowed_;  // host:port in small letters
  mutable std::mutex mutex_;          // guards all below
  std::list<Known> clients_;          // the one used last comes first
  StoreObservations seen_;            // counters: of clients that have gone
  JournalShelf journals_;             // has a mutex of its own
  StorePool pool_;                    // ends first: its jobs use all of the above
};

}  // namespace quarrel
