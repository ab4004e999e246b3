#include "server/longbow_stores.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/lower_case.h"
#include "base/printable.h"
#include "flight/module.h"
#include "server/api_error.h"

namespace quarrel {
namespace {

constexpr std::size_t kThreads = 4;
constexpr std::size_t kMostWaiting = 64;  // a quarter of them for one dataset
// Each has connections; beyond so many the one that nobody has used for longest goes.
constexpr std::size_t kMostClients = 8;
// Journals that stay in memory between requests; about 40 bytes a text that was stored.
constexpr std::size_t kMostJournals = 8;
constexpr std::size_t kMostJournalBytes = std::size_t{64} << 20;
constexpr std::chrono::seconds kComeBack{2};

std::vector<std::string> allowed_ports(const std::vector<std::string>& hosts) {
  std::vector<std::string> allowed;
  for (const std::string& text : hosts) {
    const LongbowAddress entry = read_longbow_address("longbow://" + text, DatasetPart::optional);
    if (!entry.dataset.empty() || text.find_first_of("/?") != std::string::npos) {
      fail(ErrorKind::usage, "'{}' is not the host of a vector store: give a name, or name:port", printable(text));
    }
    const std::string host = lower_case(entry.host);
    allowed.push_back(host_and_port(host, entry.data_port));
    const bool names_its_port = lower_case(text) == allowed.back();
    if (!names_its_port) allowed.push_back(host_and_port(host, kLongbowMetaPort));
  }
  return allowed;
}

// What is wrong with the settings is told when they are read: clients can do nothing about it.
void check_connection(const LongbowSettings& settings) {
  try {
    check_longbow_options(settings.connection);
  } catch (const Error& error) {
    fail(ErrorKind::usage, "{} (longbow.token_file, longbow.cert_file, longbow.key_file)", error.what());
  }
  if (settings.address.empty()) return;
  try {
    check_longbow_tls(read_longbow_address(settings.address), settings.connection);
  } catch (const Error& error) {
    fail(ErrorKind::usage, "{} (longbow.address)", error.what());
  }
}

void add(LongbowCounters& sum, const LongbowCounters& more) {
  sum.calls += more.calls;
  sum.failures += more.failures;
  sum.retries += more.retries;
  sum.slow_downs += more.slow_downs;
  sum.rows_sent += more.rows_sent;
  sum.bytes_sent += more.bytes_sent;
  sum.rows_received += more.rows_received;
  sum.bytes_received += more.bytes_received;
  sum.seconds += more.seconds;
}

}  // namespace

LongbowStores::LongbowStores(LongbowSettings settings, Log& log)
    : settings_(std::move(settings)),
      allowed_(allowed_ports(settings_.hosts)),
      journals_(kMostJournals, kMostJournalBytes),
      pool_(kThreads, kMostWaiting, log) {
  if (!settings_.connect) settings_.connect = connect_longbow;
  check_connection(settings_);
  if (settings_.address.empty()) return;
  if (!allows(read_longbow_address(settings_.address))) {
    fail(ErrorKind::usage, "the vector store {} is not among the hosts that may be reached (longbow.hosts)",
         printable(settings_.address, 200));
  }
}

bool LongbowStores::allows(const LongbowAddress& address) const {
  const std::string host = lower_case(address.host);
  const auto listed = [&](std::uint16_t port) {
    return std::ranges::find(allowed_, host_and_port(host, port)) != allowed_.end();
  };
  return listed(address.data_port) && listed(address.meta_port);
}

// The same host may be reached with TLS: so this is for the client to mend.
void LongbowStores::require_tls(const LongbowAddress& address, const std::string& field) const {
  try {
    check_longbow_tls(address, settings_.connection);
  } catch (const Error&) {
    throw ApiError(400, "invalid_request_error", "tls_required",
                   fmt::format("this server reaches {} with TLS only: write longbow+tls://",
                               host_and_port(address.host, address.data_port)),
                   field);
  }
}

LongbowAddress LongbowStores::address(const std::string& text, const std::string& field) const {
  const std::string& meant = text.empty() ? settings_.address : text;
  if (meant.empty()) {
    throw invalid_field(field, fmt::format("'{}' is missing: longbow://host[:3000]/dataset", field));
  }
  LongbowAddress address;
  try {
    address = read_longbow_address(meant);
  } catch (const Error& error) {
    throw invalid_field(field, error.what());
  }
  if (allows(address)) {
    require_tls(address, field);
    return address;
  }
  throw ApiError(403, "permission_error", "host_not_allowed",
                 fmt::format("{} and port {} are not both among the stores that this server may reach",
                             host_and_port(address.host, address.data_port), address.meta_port),
                 field);
}

JournalShelf::Lease LongbowStores::journal(const LongbowAddress& address, const JournalSubject& subject) {
  if (!settings_.journals.empty()) {
    return journals_.take(journal_path(settings_.journals, longbow_address_text(address)), subject);
  }
  throw ApiError(500, "server_error", "no_journal", "this server has no folder for journals, and stores nothing");
}

std::shared_ptr<LongbowClient> LongbowStores::client(const LongbowAddress& address) {
  LongbowAddress server = address;
  server.dataset.clear();
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(clients_, server, &Known::server);
  if (found != clients_.end()) {
    clients_.splice(clients_.begin(), clients_, found);
    return found->client;
  }
  // One that is in use stays: there are no more of those than threads.
  while (clients_.size() >= kMostClients) {
    const auto unused = std::find_if(clients_.rbegin(), clients_.rend(),
                                     [](const Known& each) { return each.client.use_count() == 1; });
    if (unused == clients_.rend()) break;
    add(seen_.counters, unused->client->counters());
    clients_.erase(std::next(unused).base());
  }
  std::shared_ptr<LongbowClient> made = settings_.connect(server, settings_.connection);
  clients_.push_front({.server = server, .client = made});
  return made;
}

void LongbowStores::post(StoreLane lane, std::stop_source stop, StorePool::Job job) {
  if (pool_.post(std::move(lane), std::move(stop), std::move(job))) return;
  {
    const std::scoped_lock lock(mutex_);
    ++seen_.refused;
  }
  ApiError busy(503, "unavailable_error", "queue_full", "too many requests wait for a vector store");
  busy.retry_after = kComeBack;
  throw ApiError(busy);
}

void LongbowStores::count(StoreOperation operation, double seconds) {
  const std::scoped_lock lock(mutex_);
  StoreTimes& times = seen_.times[static_cast<std::size_t>(operation)];
  times.seconds += seconds;
  times.milliseconds.add(static_cast<std::uint64_t>(std::ceil(seconds * 1e3)));
}

StoreObservations LongbowStores::observations() const {
  const std::scoped_lock lock(mutex_);
  StoreObservations all = seen_;
  for (const Known& each : clients_) add(all.counters, each.client->counters());
  return all;
}

}  // namespace quarrel
