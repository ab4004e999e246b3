#include "flight/arrow/longbow_client.h"

#include <arrow/ipc/dictionary.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "base/printable.h"
#include "flight/arrow/row_reader.h"
#include "flight/arrow/vector_batch.h"
#include "flight/arrow/vector_streams.h"
#include "flight/tickets.h"

namespace quarrel::flight {
namespace {

constexpr std::chrono::milliseconds kFirstPoll{20};
constexpr std::chrono::milliseconds kLongestPoll{1000};
// What an action may answer; a server has no reason to send more.
constexpr std::size_t kLargestAnswer = std::size_t{64} << 20;
constexpr std::size_t kMostAnswers = 1024;

using arrow::flight::internal::ClientTransport;

void check_name(const std::string& dataset) {
  if (dataset.empty()) fail(ErrorKind::bad_input, "no dataset is named");
  if (printable(dataset, dataset.size()) != dataset) {
    fail(ErrorKind::bad_input, "the dataset's name '{}' has control characters or is not UTF-8", printable(dataset));
  }
}

}  // namespace

CallSite ArrowLongbowClient::data_site(const char* verb, const std::string& dataset, CallEffect effect) const {
  return {.verb = verb, .dataset = dataset, .host = state_->data.host(), .effect = effect};
}

CallSite ArrowLongbowClient::meta_site(const char* verb, const std::string& dataset) const {
  return {.verb = verb, .dataset = dataset, .host = state_->meta.host()};
}

std::unique_ptr<VectorBatch> ArrowLongbowClient::new_batch(const DatasetSchema& schema, std::size_t rows) const {
  return std::make_unique<ArrowBatch>(schema, rows, state_->options.largest_batch);
}

std::unique_ptr<VectorStream> ArrowLongbowClient::put(const std::string& dataset, const DatasetSchema& schema,
                                                      std::stop_token stop) {
  check_name(dataset);
  return open_put(state_, dataset, schema, std::move(stop));
}

std::unique_ptr<VectorStream> ArrowLongbowClient::ingest(const std::string& dataset, const DatasetSchema& schema,
                                                         std::stop_token stop) {
  check_name(dataset);
  return open_ingest(state_, dataset, schema, std::move(stop));
}

DataStream ArrowLongbowClient::open_get(CallSite site, const std::string& ticket, ScanLimit limit,
                                        const std::stop_token& stop) {
  const bool whole = limit == ScanLimit::whole_call;
  const std::chrono::milliseconds time = whole ? state_->options.call_timeout : state_->options.batch_timeout;
  auto options = state_->call_options(whole ? std::chrono::duration<double>(time) : kWatched);
  return {std::move(site), state_, time, stop,
          [options = std::move(options), wanted = arrow::flight::Ticket(ticket)](auto& transport, auto* stream) {
            return transport.DoGet(options, wanted, stream);
          }};
}

std::uint64_t ArrowLongbowClient::scan(const std::string& dataset, const std::vector<RowFilter>& filters,
                                       const RowVisitor& visitor, std::stop_token stop, ScanLimit limit) {
  check_name(dataset);
  check_filters_of(dataset, filters, stop);
  const std::string ticket = scan_ticket(dataset, filters);
  std::uint64_t rows = 0;
  std::exception_ptr failure;
  // Once the visitor has seen a row, it is the caller's business what to do about a failure.
  repeated(stop, [&] {
    DataStream stream = open_get(data_site("DoGet", dataset), ticket, limit, stop);
    BatchReader batches(stream);
    RowReader reader;
    try {
      while (const auto batch = batches.next()) {
        const auto count = static_cast<std::uint64_t>(batch->num_rows());
        rows += count;
        state_->counts.rows_received += count;
        if (!reader.visit(*batch, visitor)) break;
      }
    } catch (...) {
      if (rows == 0) throw;
      failure = std::current_exception();
    }
    state_->counts.bytes_received += stream.bytes_read();
    return true;
  });
  if (failure != nullptr) {
    ++state_->counts.failures;
    std::rethrow_exception(failure);
  }
  return rows;
}

DatasetInfo ArrowLongbowClient::info(const std::string& dataset, std::stop_token stop) {
  check_name(dataset);
  const CallSite site = meta_site("GetFlightInfo", dataset);
  return repeated(stop, [&] {
    return ask(state_->meta, site, stop,
               [options = state_->call_options(state_->options.call_timeout),
                dataset](ClientTransport& transport) -> arrow::Result<DatasetInfo> {
                 std::unique_ptr<arrow::flight::FlightInfo> answer;
                 ARROW_RETURN_NOT_OK(
                     transport.GetFlightInfo(options, arrow::flight::FlightDescriptor::Path({dataset}), &answer));
                 return DatasetInfo{
                     .name = dataset, .batches = answer->total_records(), .bytes = answer->total_bytes()};
               });
  });
}

std::vector<std::string> ArrowLongbowClient::datasets(const std::string& contains, std::stop_token stop) {
  const CallSite site = meta_site("ListFlights", {});
  return repeated(stop, [&] {
    return ask(state_->meta, site, stop,
               [options = state_->call_options(state_->options.call_timeout),
                criteria = arrow::flight::Criteria(name_criteria(contains))](
                   ClientTransport& transport) -> arrow::Result<std::vector<std::string>> {
                 std::unique_ptr<arrow::flight::FlightListing> listing;
                 ARROW_RETURN_NOT_OK(transport.ListFlights(options, criteria, &listing));
                 std::vector<std::string> names;
                 while (true) {
                   ARROW_ASSIGN_OR_RAISE(const auto flight, listing->Next());
                   if (flight == nullptr) return names;
                   if (!flight->descriptor().path.empty()) names.push_back(flight->descriptor().path.front());
                 }
               });
  });
}

std::optional<StoredSchema> ArrowLongbowClient::schema_from_server(const std::string& dataset,
                                                                   const std::stop_token& stop) {
  // A store that does not know the call, or answers it with nothing, can still be asked for rows.
  return ask(state_->meta, meta_site("GetSchema", dataset), stop,
             [options = state_->call_options(state_->options.call_timeout),
              dataset](ClientTransport& transport) -> arrow::Result<std::optional<StoredSchema>> {
               const auto answer = transport.GetSchema(options, arrow::flight::FlightDescriptor::Path({dataset}));
               if (!answer.ok() && !answer.status().IsNotImplemented()) return answer.status();
               if (!answer.ok() || (*answer)->serialized_schema().empty()) return std::nullopt;
               arrow::ipc::DictionaryMemo dictionaries;
               const auto schema = (*answer)->GetSchema(&dictionaries);
               return schema.ok() ? std::optional(stored_schema(**schema)) : std::nullopt;
             });
}

std::optional<StoredSchema> ArrowLongbowClient::schema_from_scan(const std::string& dataset,
                                                                 const std::stop_token& stop) {
  DataStream stream = open_get(data_site("DoGet", dataset), scan_ticket(dataset, {}), ScanLimit::whole_call, stop);
  BatchReader batches(stream);
  const auto columns = batches.schema();
  if (columns == nullptr) return std::nullopt;
  stream.abandon();
  return stored_schema(*columns);
}

std::optional<StoredSchema> ArrowLongbowClient::schema(const std::string& dataset, std::stop_token stop) {
  check_name(dataset);
  auto result = repeated(stop, [&] {
    auto told = schema_from_server(dataset, stop);
    return told ? told : schema_from_scan(dataset, stop);
  });
  const std::lock_guard lock(schemas_mutex_);
  if (result) schemas_[dataset] = *result;
  return result;
}

std::optional<StoredSchema> ArrowLongbowClient::remembered_schema(const std::string& dataset, std::stop_token stop) {
  {
    const std::lock_guard lock(schemas_mutex_);
    if (const auto known = schemas_.find(dataset); known != schemas_.end()) return known->second;
  }
  return schema(dataset, std::move(stop));
}

void ArrowLongbowClient::check_filters_of(const std::string& dataset, const std::vector<RowFilter>& filters,
                                          const std::stop_token& stop) {
  if (filters.empty()) return;
  try {
    // A dataset without rows has nothing to check against, and nothing to find.
    if (const auto columns = remembered_schema(dataset, stop)) check_filters(filters, *columns, dataset);
    return;
  } catch (const LongbowError&) {
    throw;
  } catch (const Error&) {
    // The dataset may have been made anew since: asked again below.
  }
  if (const auto columns = schema(dataset, stop)) check_filters(filters, *columns, dataset);
}

std::vector<std::string> ArrowLongbowClient::act(const CallSite& site, const char* type, const std::string& body,
                                                 const std::stop_token& stop) {
  return ask(state_->data, site, stop,
             [options = state_->call_options(state_->options.call_timeout),
              action = arrow::flight::Action(type, arrow::Buffer::FromString(body))](
                 ClientTransport& transport) -> arrow::Result<std::vector<std::string>> {
               std::unique_ptr<arrow::flight::ResultStream> results;
               ARROW_RETURN_NOT_OK(transport.DoAction(options, action, &results));
               std::vector<std::string> answers;
               std::size_t bytes = 0;
               while (true) {
                 ARROW_ASSIGN_OR_RAISE(const auto result, results->Next());
                 if (result == nullptr) return answers;
                 answers.push_back(result->body == nullptr ? "" : result->body->ToString());
                 bytes += answers.back().size();
                 if (bytes > kLargestAnswer || answers.size() > kMostAnswers) {
                   return arrow::Status::CapacityError("the answer is too long");
                 }
               }
             });
}

std::string ArrowLongbowClient::act_once(const CallSite& site, const char* type, const std::string& body,
                                         const std::stop_token& stop) {
  const auto answers = act(site, type, body, stop);
  if (answers.size() != 1) {
    fail_call(site, ErrorKind::io, AfterFailure::give_up, fmt::format("{} answers instead of one", answers.size()));
  }
  return answers.front();
}

Readiness ArrowLongbowClient::readiness(const std::string& dataset, std::stop_token stop) {
  check_name(dataset);
  const CallSite site = data_site("DoAction check_readiness", dataset);
  return repeated(stop, [&] {
    const std::string answer = act_once(site, "check_readiness", dataset_body(dataset), stop);
    const auto state = read_readiness(answer);
    if (!state)
      fail_call(site, ErrorKind::io, AfterFailure::give_up, fmt::format("'{}' is not a state", printable(answer)));
    return *state;
  });
}

Readiness ArrowLongbowClient::wait_until_ready(const std::string& dataset, std::int64_t rows,
                                               std::chrono::milliseconds patience, std::stop_token stop) {
  const Clock::time_point end = Clock::now() + patience;
  std::chrono::milliseconds pause = kFirstPoll;
  while (true) {
    const Readiness state = readiness(dataset, stop);
    // Ready says that nothing is under way: rows that are missing now stay missing.
    if (state.state != ReadyState::busy || (state.indexed && *state.indexed >= rows && rows > 0)) return state;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return state;
    if (!pause_for(std::min(pause, left), stop)) fail(ErrorKind::cancelled, "the wait for '{}' was stopped", dataset);
    pause = std::min(2 * pause, kLongestPoll);
  }
}

void ArrowLongbowClient::remove(const std::string& dataset, const std::string& id) {
  check_name(dataset);
  const CallSite site = data_site("DoAction delete", dataset, CallEffect::writes);
  repeated({}, [&] { return act(site, "delete", row_body(dataset, id), {}); });
}

void ArrowLongbowClient::remove_dataset(const std::string& dataset) {
  check_name(dataset);
  const CallSite site = data_site("DoAction delete-dataset", dataset, CallEffect::writes);
  repeated({}, [&] { return act(site, "delete-dataset", dataset_body(dataset), {}); });
  const std::lock_guard lock(schemas_mutex_);
  schemas_.erase(dataset);
}

std::string ArrowLongbowClient::statistics(const std::string& dataset) {
  check_name(dataset);
  const CallSite site = data_site("DoAction GetGraphStats", dataset);
  return repeated({}, [&] { return act_once(site, "GetGraphStats", dataset_body(dataset), {}); });
}

LongbowCounters ArrowLongbowClient::counters() const noexcept {
  const CallCounts& counts = state_->counts;
  return {.calls = counts.calls,
          .failures = counts.failures,
          .retries = counts.retries,
          .slow_downs = counts.slow_downs,
          .rows_sent = counts.rows_sent,
          .bytes_sent = counts.bytes_sent,
          .rows_received = counts.rows_received,
          .bytes_received = counts.bytes_received,
          .seconds = 1e-6 * static_cast<double>(counts.microseconds)};
}

}  // namespace quarrel::flight
