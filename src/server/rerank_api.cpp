#include "server/rerank_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "server/embedding_call.h"
#include "server/question.h"
#include "server/schema.h"

namespace quarrel {
namespace {

using http::Exchange;

// As an object; what else a client keeps beside the text would not be read.
using Document = Field<std::string>;
constexpr std::array kDocumentFields = {
    Document{.name = "text",
             .kind = FieldKind::text,
             .help = "what it says",
             .read = [](const Json& v, std::string& text) { text = as_text(v); }},
};

void read_documents(const Json& value, RerankRequest& request, const char* field) {
  if (!value.is_array() || value.empty() || value.size() > kMostInputs) {
    throw invalid_field(field, fmt::format("'{}' must be a list of 1 to {} texts", field, kMostInputs));
  }
  for (const Json& each : value) {
    std::string& text = request.documents.emplace_back();
    if (each.is_object() && each.contains("text") && !each["text"].is_null()) {
      read_fields<std::string>(each, kDocumentFields, text);
    } else if (each.is_string()) {
      text = as_text(each);
    } else {
      throw invalid_field(field, fmt::format("'{}' must hold texts alone", field));
    }
  }
}

Json documents_schema() {
  Json texts = schema::list(
      schema::either({schema::text(), schema::request_of<std::string>("RerankDocument", {"text"}, kDocumentFields)}));
  texts["minItems"] = 1;
  texts["maxItems"] = kMostInputs;
  return texts;
}

// A score a document. With one vector more than documents, the first is the query's.
std::vector<double> scores_of(const RerankRequest& request, std::span<const Embedding> embeddings) {
  std::vector<double> scores;
  const bool ranked = embeddings.size() == request.documents.size();
  for (const Embedding& embedding : ranked ? embeddings : embeddings.subspan(1)) {
    double score = 0.0;
    if (ranked) {
      score = embedding.values.empty() ? 0.0 : embedding.values.front();
      if (!request.raw_scores) score = 1.0 / (1.0 + std::exp(-score));
    } else {
      score = cosine(embeddings.front().values, embedding.values);
    }
    scores.push_back(score);
  }
  return scores;
}

http::Response rerank_response(const RerankRequest& request, const std::string& model,
                               std::span<const Embedding> embeddings) {
  const std::vector<double> scores = scores_of(request, embeddings);
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  if (request.top_n) order.resize(std::min(order.size(), static_cast<std::size_t>(*request.top_n)));
  Json results = Json::array();
  for (const std::size_t index : order) {
    Json result{{"index", index}, {request.texts ? "score" : "relevance_score", scores[index]}};
    if (request.return_documents && request.texts) result["text"] = request.documents[index];
    if (request.return_documents && !request.texts) result["document"] = {{"text", request.documents[index]}};
    results.push_back(std::move(result));
  }
  if (request.texts) return {.body = compact_json(results)};
  std::size_t tokens = 0;
  for (const Embedding& embedding : embeddings) tokens += embedding.tokens;
  return {.body = compact_json({{"model", model},
                                {"object", "list"},
                                {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}},
                                {"results", std::move(results)}})};
}

void start(Service& service, const std::shared_ptr<Exchange>& exchange, http::Response (*fail)(const ApiError&)) {
  RerankRequest request = read_rerank(parse_body(exchange->request().body));
  const OfferedModel model = service.find(request.model, *caller_of(*exchange));
  EmbeddingAsk ask{
      .query = request.query, .truncate = request.truncate, .field = request.texts ? "texts" : "documents"};
  ask.options.priority = Priority::batch;
  for (std::string& text : request.documents) {
    if (request.return_documents) {
      ask.inputs.emplace_back(text);
    } else {
      ask.inputs.emplace_back(std::move(text));  // the answer only counts them
    }
  }
  const auto respond = [request = std::move(request), name = model.name](std::span<const Embedding> embeddings,
                                                                         double) {
    return rerank_response(request, name, embeddings);
  };
  start_embedding_call(service, exchange, model, std::move(ask), {.respond = respond, .fail = fail});
}

using RerankField = Field<RerankRequest>;

constexpr std::array kRerankFields = {
    RerankField{.name = "model",
                .kind = FieldKind::text,
                .help = "the model; without it the default one",
                .read = [](const Json& v, RerankRequest& r) { r.model = as_text(v); }},
    RerankField{.name = "query",
                .kind = FieldKind::text,
                .help = "what the texts are to answer",
                .read = [](const Json& v, RerankRequest& r) { r.query = as_text(v); }},
    RerankField{.name = "documents",
                .help = "the texts; the answer is an object",
                .read = [](const Json& v, RerankRequest& r) { read_documents(v, r, "documents"); },
                .schema = documents_schema},
    RerankField{.name = "texts",
                .help = "the same; the answer is a list",
                .read =
                    [](const Json& v, RerankRequest& r) {
                      read_documents(v, r, "texts");
                      r.texts = true;
                    },
                .schema = documents_schema},
    RerankField{.name = "top_n",
                .kind = FieldKind::integer,
                .least = 1,
                .most = kMostTokens,
                .help = "only the best so many",
                .read = [](const Json& v, RerankRequest& r) { r.top_n = as_integer(v); }},
    RerankField{.name = "return_documents",
                .kind = FieldKind::boolean,
                .help = "with the texts",
                .read = [](const Json& v, RerankRequest& r) { r.return_documents = as_flag(v); }},
    RerankField{.name = "return_text",
                .kind = FieldKind::boolean,
                .help = "the same",
                .read = [](const Json& v, RerankRequest& r) { r.return_documents = as_flag(v); }},
    RerankField{.name = "raw_scores",
                .kind = FieldKind::boolean,
                .help = "of a model that ranks: its own numbers",
                .read = [](const Json& v, RerankRequest& r) { r.raw_scores = as_flag(v); }},
    RerankField{.name = "truncate",
                .kind = FieldKind::boolean,
                .help = "a text that is too long is cut, not refused",
                .read = [](const Json& v, RerankRequest& r) { r.truncate = as_flag(v); }},
    RerankField{.name = "user", .kind = FieldKind::no_effect},
};

}  // namespace

double cosine(std::span<const float> one, std::span<const float> other) {
  return std::clamp(std::inner_product(one.begin(), one.end(), other.begin(), 0.0), -1.0, 1.0);
}

Json rerank_schema() { return schema::request_of<RerankRequest>("RerankRequest", {"query"}, kRerankFields); }

RerankRequest read_rerank(const Json& body) {
  RerankRequest request;
  read_fields<RerankRequest>(body, kRerankFields, request);
  if (request.query.empty()) throw invalid_field("query", "'query' is missing");
  if (request.documents.empty()) throw invalid_field("documents", "'documents' is missing");
  require_one_spelling(body, "documents", "texts");
  require_one_spelling(body, "return_documents", "return_text");
  return request;
}

void rerank(Service& service, const std::shared_ptr<Exchange>& exchange) { start(service, exchange, plain_error); }
void openai_rerank(Service& service, const std::shared_ptr<Exchange>& exchange) {
  start(service, exchange, openai_error);
}

}  // namespace quarrel
