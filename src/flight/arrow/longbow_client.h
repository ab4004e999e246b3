// The client itself (flight/longbow.h says what it promises). The module makes it, and tests that look behind it.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "flight/arrow/client_state.h"
#include "flight/arrow/data_stream.h"
#include "flight/arrow/left_call.h"
#include "flight/longbow.h"

namespace quarrel::flight {

class ArrowLongbowClient final : public LongbowClient {
 public:
  ArrowLongbowClient(const LongbowAddress& address, const LongbowOptions& options)
      : state_(std::make_shared<ClientState>(address, options)) {}

  std::unique_ptr<VectorBatch> new_batch(const DatasetSchema& schema, std::size_t rows) const override;
  std::unique_ptr<VectorStream> put(const std::string& dataset, const DatasetSchema& schema,
                                    std::stop_token stop) override;
  std::unique_ptr<VectorStream> ingest(const std::string& dataset, const DatasetSchema& schema,
                                       std::stop_token stop) override;
  std::uint64_t scan(const std::string& dataset, const std::vector<RowFilter>& filters, const RowVisitor& visitor,
                     std::stop_token stop, ScanLimit limit) override;
  std::vector<SearchHit> search(const std::string& dataset, const SearchRequest& request, SearchPath path,
                                std::stop_token stop) override;
  DatasetInfo info(const std::string& dataset, std::stop_token stop) override;
  std::vector<std::string> datasets(const std::string& contains, std::stop_token stop) override;
  std::optional<StoredSchema> schema(const std::string& dataset, std::stop_token stop) override;
  std::optional<StoredSchema> remembered_schema(const std::string& dataset, std::stop_token stop) override;
  Readiness readiness(const std::string& dataset, std::stop_token stop) override;
  Readiness wait_until_ready(const std::string& dataset, std::int64_t rows, std::chrono::milliseconds patience,
                             std::stop_token stop) override;
  void remove(const std::string& dataset, const std::string& id) override;
  void remove_dataset(const std::string& dataset) override;
  std::string statistics(const std::string& dataset) override;
  LongbowCounters counters() const noexcept override;
  void note_retry() noexcept override { ++state_->counts.retries; }
  void note_failure() noexcept override { ++state_->counts.failures; }
  const LongbowAddress& address() const noexcept override { return state_->address; }

  // Connections to the data port that are open, for tests.
  std::size_t data_connections() const { return state_->data.connections(); }

 private:
  // Runs `call`, again after a pause where that may help.
  template <typename Call>
  auto repeated(const std::stop_token& stop, const Call& call);
  CallSite data_site(const char* verb, const std::string& dataset, CallEffect effect = CallEffect::reads) const;
  CallSite meta_site(const char* verb, const std::string& dataset) const;
  // The value of the arrow::Result that `call` makes of a connection of the pool. It may outlive this, and owns what it
  // uses.
  template <typename Call>
  auto ask(ConnectionPool& pool, const CallSite& site, const std::stop_token& stop, Call call);
  DataStream open_get(CallSite site, const std::string& ticket, ScanLimit limit, const std::stop_token& stop);
  // The results of an action.
  std::vector<std::string> act(const CallSite& site, const char* type, const std::string& body,
                               const std::stop_token& stop);
  std::string act_once(const CallSite& site, const char* type, const std::string& body, const std::stop_token& stop);
  std::optional<StoredSchema> schema_from_server(const std::string& dataset, const std::stop_token& stop);
  std::optional<StoredSchema> schema_from_scan(const std::string& dataset, const std::stop_token& stop);
  void check_filters_of(const std::string& dataset, const std::vector<RowFilter>& filters, const std::stop_token& stop);
  std::vector<SearchHit> search_by_exchange(const std::string& dataset, const SearchRequest& request,
                                            const std::stop_token& stop);
  std::vector<SearchHit> search_by_ticket(const std::string& dataset, const SearchRequest& request,
                                          const std::stop_token& stop);
  std::vector<SearchHit> search_by_action(const std::string& dataset, const SearchRequest& request,
                                          const std::stop_token& stop);

  std::shared_ptr<ClientState> state_;
  std::mutex schemas_mutex_;
  std::map<std::string, StoredSchema> schemas_;  // for filters: a column, once there, keeps its type
};

template <typename Call>
auto ArrowLongbowClient::repeated(const std::stop_token& stop, const Call& call) {
  CountedCall counted(state_->counts);
  const Clock::time_point end = Clock::now() + state_->options.call_timeout;
  std::chrono::milliseconds pause = state_->options.first_pause;
  for (int attempt = 1;; ++attempt) {
    try {
      auto result = call();
      counted.succeeded();
      return result;
    } catch (const LongbowError& error) {
      if (error.after_failure() != AfterFailure::retry || attempt >= state_->options.attempts ||
          stop.stop_requested() || Clock::now() >= end) {
        throw;
      }
    }
    if (!pause_for(pause, stop)) fail(ErrorKind::cancelled, "a call to the store was stopped");
    pause = std::min(2 * pause, std::chrono::milliseconds(5000));
    ++state_->counts.retries;
  }
}

template <typename Call>
auto ArrowLongbowClient::ask(ConnectionPool& pool, const CallSite& site, const std::stop_token& stop, Call call) {
  auto answer = run_leavable(
      state_, stop,
      [state = state_, connection = pool.take(), call = std::move(call)]() mutable { return call(*connection); });
  if (!answer) fail_call(site, arrow::Status::OK(), CallEnd::stopped);
  return value_of(site, std::move(*answer));
}

}  // namespace quarrel::flight
