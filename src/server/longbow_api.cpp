#include "server/longbow_api.h"

#include <span>
#include <utility>

#include "ingest/found_json.h"
#include "server/embedding_call.h"
#include "server/longbow_request.h"
#include "server/retrieval.h"
#include "server/store_texts.h"

namespace quarrel {
namespace {

using http::Exchange;

http::Response stored_response(const std::string& model, const LongbowAddress& to, const IngestReport& report) {
  const IngestProgress& progress = report.progress;
  return {.body = compact_json({{"model", model},
                                {"to", longbow_address_text(to)},
                                {"texts", progress.texts},
                                {"stored", progress.sent},
                                {"stored_before", progress.stored_before},
                                {"repeated", progress.repeated},
                                {"tokens", progress.tokens},
                                {"bytes", progress.bytes},
                                {"unindexed", report.store.unindexed}})};
}

http::Response found_response(const std::string& model, const LongbowAddress& from, std::span<const FoundText> found) {
  Json results = Json::array();
  for (const FoundText& each : found) results.push_back(found_json(each));
  return {.body =
              compact_json({{"model", model}, {"from", longbow_address_text(from)}, {"results", std::move(results)}})};
}

}  // namespace

void embed_to(Service& service, const std::shared_ptr<Exchange>& exchange) {
  EmbedToRequest request = read_embed_to(parse_body(exchange->request().body));
  const OfferedModel model = service.find(request.model, *caller_of(*exchange));
  EmbeddingAsk ask{.truncate = request.truncate};
  ask.options = {.dimensions = request.dimensions, .priority = Priority::batch};
  for (const TextRecord& record : request.texts) ask.inputs.emplace_back(request.prefix + record.text);
  StoreTextsRequest storing{.to = service.stores().address(request.to, "to"),
                            .texts = std::move(request.texts),
                            .columns = std::move(request.columns),
                            .unknown_rows = request.append ? UnknownRows::added_to : UnknownRows::refused,
                            .prefix = request.prefix,
                            .options = ask.options};
  const LongbowAddress to = storing.to;
  StoreWork work = store_work(service, std::make_shared<StoreTexts>(service, std::move(storing)),
                              [name = model.name, to](std::span<const Embedding>, const IngestReport& report) {
                                return stored_response(name, to, report);
                              });
  start_embedding_call(service, exchange, model, std::move(ask), {.fail = plain_error, .store = std::move(work)});
}

void search_store(Service& service, const std::shared_ptr<Exchange>& exchange) {
  StoreSearchRequest request = read_store_search(parse_body(exchange->request().body));
  const OfferedModel model = service.find(request.model, *caller_of(*exchange));
  const LongbowAddress from = service.stores().address(request.from, "from");
  EmbeddingAsk ask{.inputs = {request.prefix + request.query}, .truncate = true};
  ask.options = {.dimensions = request.dimensions, .priority = Priority::batch};
  StoreWork work{.lane = search_lane(from)};
  work.run = [&service, request = std::move(request), from, name = model.name](std::span<const Embedding> vectors,
                                                                               const std::stop_token& stop) {
    return found_response(name, from, find_in_store(service, request, from, vectors.front().values, stop));
  };
  start_embedding_call(service, exchange, model, std::move(ask), {.fail = plain_error, .store = std::move(work)});
}

}  // namespace quarrel
