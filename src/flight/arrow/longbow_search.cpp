// The three ways of a search: DoExchange, DoGet with a ticket, DoAction.
#include <arrow/array.h>
#include <arrow/builder.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>

#include <cmath>

#include "flight/arrow/ipc_check.h"
#include "flight/arrow/longbow_client.h"
#include "flight/arrow/row_reader.h"
#include "flight/tickets.h"

namespace quarrel::flight {
namespace {

void check_request(const SearchRequest& request, SearchPath path) {
  if (request.vector.empty()) fail(ErrorKind::bad_input, "no vectors provided: a search needs one");
  for (const float value : request.vector) {
    if (!std::isfinite(value)) fail(ErrorKind::bad_input, "a value of the query vector is not a finite number");
  }
  if (request.k < 1) fail(ErrorKind::bad_input, "a search for {} neighbours: at least one is needed", request.k);
  if (request.text_query.empty()) return;
  if (!request.filters.empty()) fail(ErrorKind::bad_input, "the store applies no filters where texts count too");
  if (!(request.alpha >= 0 && request.alpha <= 1)) fail(ErrorKind::bad_input, "alpha lies between 0 and 1");
  if (path == SearchPath::exchange) fail(ErrorKind::bad_input, "an exchange has no text query");
}

[[noreturn]] void fail_hits(const CallSite& site) {
  fail_call(site, ErrorKind::io, AfterFailure::give_up, "the store's hits have columns other than id and score");
}

// What comes beyond `most` is not waited for.
std::vector<SearchHit> read_hits(DataStream& stream, std::size_t most) {
  BatchReader batches(stream);
  std::vector<SearchHit> hits;
  while (const auto batch = batches.next()) {
    if (!append_hits(*batch, most, hits)) fail_hits(stream.site());
    if (hits.size() == most) break;
  }
  return hits;
}

// One row in exactly the types that the store looks for: others would end its process.
std::shared_ptr<arrow::RecordBatch> query_batch(const CallSite& site, const std::string& dataset,
                                                const SearchRequest& request) {
  const auto count = static_cast<std::int32_t>(request.vector.size());
  auto values = arrow::Buffer::Wrap(request.vector.data(), request.vector.size());
  const auto type = arrow::fixed_size_list(arrow::float32(), count);
  auto vector = std::make_shared<arrow::FixedSizeListArray>(
      type, 1, std::make_shared<arrow::FloatArray>(count, std::move(values)));
  arrow::StringBuilder name;
  arrow::Int32Builder k;
  check(site, name.Append(dataset));
  check(site, k.Append(request.k));
  auto columns = arrow::schema(
      {arrow::field("dataset", arrow::utf8()), arrow::field("query_vector", type), arrow::field("k", arrow::int32())});
  return arrow::RecordBatch::Make(
      std::move(columns), 1, arrow::ArrayVector{value_of(site, name.Finish()), vector, value_of(site, k.Finish())});
}

}  // namespace

std::vector<SearchHit> ArrowLongbowClient::search(const std::string& dataset, const SearchRequest& request,
                                                  SearchPath path, std::stop_token stop) {
  if (dataset.empty()) fail(ErrorKind::bad_input, "no dataset is named");
  check_request(request, path);
  check_filters_of(dataset, request.filters, stop);
  if (path == SearchPath::exchange && !request.filters.empty()) {
    fail(ErrorKind::bad_input, "an exchange has no filters");
  }
  if (path == SearchPath::automatic) {
    const bool plain = request.filters.empty() && request.text_query.empty();
    path = plain ? SearchPath::exchange : SearchPath::ticket;
  }
  return repeated(stop, [&] {
    std::vector<SearchHit> hits = path == SearchPath::exchange ? search_by_exchange(dataset, request, stop)
                                  : path == SearchPath::ticket ? search_by_ticket(dataset, request, stop)
                                                               : search_by_action(dataset, request, stop);
    state_->counts.rows_received += hits.size();
    return hits;
  });
}

std::vector<SearchHit> ArrowLongbowClient::search_by_exchange(const std::string& dataset, const SearchRequest& request,
                                                              const std::stop_token& stop) {
  const auto descriptor = arrow::flight::FlightDescriptor::Command("VectorSearch");
  DataStream stream(data_site("DoExchange", dataset), state_, state_->options.call_timeout, stop,
                    [options = state_->call_options(state_->options.call_timeout)](auto& transport, auto* out) {
                      return transport.DoExchange(options, out);
                    });
  const auto batch = query_batch(stream.site(), dataset, request);
  arrow::ipc::IpcPayload payload;
  check(stream.site(), arrow::ipc::GetRecordBatchPayload(*batch, arrow::ipc::IpcWriteOptions::Defaults(), &payload));
  stream.write_descriptor(descriptor);
  stream.write_schema(*batch->schema(), descriptor);
  stream.write(payload);
  stream.done_writing();
  return read_hits(stream, static_cast<std::size_t>(request.k));
}

std::vector<SearchHit> ArrowLongbowClient::search_by_ticket(const std::string& dataset, const SearchRequest& request,
                                                            const std::stop_token& stop) {
  DataStream stream =
      open_get(data_site("DoGet", dataset), search_ticket(dataset, request), ScanLimit::whole_call, stop);
  return read_hits(stream, static_cast<std::size_t>(request.k));
}

std::vector<SearchHit> ArrowLongbowClient::search_by_action(const std::string& dataset, const SearchRequest& request,
                                                            const std::stop_token& stop) {
  const CallSite site = data_site("DoAction VectorSearch", dataset);
  const std::string answer = act_once(site, "VectorSearch", search_body(dataset, request), stop);
  arrow::io::BufferReader input(arrow::Buffer::Wrap(answer.data(), answer.size()));
  const auto reader = value_of(site, arrow::ipc::RecordBatchStreamReader::Open(
                                         std::make_unique<CheckedMessages>(arrow::ipc::MessageReader::Open(&input))));
  std::vector<SearchHit> hits;
  std::shared_ptr<arrow::RecordBatch> batch;
  while (true) {
    check(site, reader->ReadNext(&batch));
    if (batch == nullptr || hits.size() == static_cast<std::size_t>(request.k)) return hits;
    check(site, batch->ValidateFull());
    if (!append_hits(*batch, static_cast<std::size_t>(request.k), hits)) fail_hits(site);
  }
}

}  // namespace quarrel::flight
