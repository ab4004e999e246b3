#include "server/longbow_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_set>

#include "base/error.h"
#include "base/json_reader.h"
#include "ingest/ingestion.h"
#include "ingest/prompt_context.h"
#include "server/question.h"
#include "server/schema.h"

namespace quarrel {
namespace {

constexpr std::int32_t kMostHits = 1000;  // each is looked up
constexpr std::size_t kMostColumns = 32;
constexpr std::size_t kMostFilters = 32;
constexpr std::int32_t kMostContextTexts = 32;
constexpr std::string_view kFilterHelp =
    "only rows whose columns compare so: `FIELD=VALUE`, or with !=, <, <=, > or >=";
constexpr std::string_view kFromHelp = "longbow://host[:3000]/dataset; without it the address of the server's settings";

// A member as a column of text holds it.
std::string column_text(const Json& value) { return value.is_string() ? as_text(value) : compact_json(value); }

TextRecord read_object(const Json& object, std::size_t number) {
  TextRecord record;
  for (const auto& [name, value] : object.items()) {
    if (name == "text") {
      if (value.is_string()) record.text = as_text(value);
    } else if (name == "id") {
      if (value.is_null()) continue;
      if (!value.is_string() && !value.is_number_integer()) {
        throw invalid_field("texts", fmt::format("the id of text {} is neither a string nor a whole number", number));
      }
      record.id = column_text(value);
    } else if (name == "metadata") {
      if (value.is_null()) continue;
      if (!value.is_object())
        throw invalid_field("texts", fmt::format("the metadata of text {} is not an object", number));
      if (!value.empty()) record.metadata = compact_json(value);
    } else {
      throw invalid_field("texts", fmt::format("text {} has a member that is neither text, id nor metadata", number));
    }
  }
  return record;
}

void read_texts(const Json& value, EmbedToRequest& request) {
  if (!value.is_array() || value.empty() || value.size() > kMostInputs) {
    throw invalid_field("texts", fmt::format("'texts' must be a list of 1 to {} texts", kMostInputs));
  }
  std::unordered_set<std::string> ids;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const Json& each = value[i];
    if (!each.is_string() && !each.is_object()) {
      throw invalid_field("texts", fmt::format("text {} is neither a string nor an object", i + 1));
    }
    TextRecord record = each.is_object() ? read_object(each, i + 1) : TextRecord{.text = as_text(each)};
    if (is_blank(record.text)) throw invalid_field("texts", fmt::format("text {} is empty", i + 1));
    if (!record.id.empty() && !ids.insert(record.id).second) {
      throw invalid_field("texts", fmt::format("the id of text {} is that of an earlier one too", i + 1));
    }
    record.place = fmt::format("text {}", i + 1);
    request.texts.push_back(std::move(record));
  }
}

std::vector<std::string> read_strings(const Json& value, const char* field, std::size_t most) {
  const auto is_text = [](const Json& each) { return each.is_string() && !as_text(each).empty(); };
  if (!value.is_array() || value.size() > most || !std::all_of(value.begin(), value.end(), is_text)) {
    throw invalid_field(field, fmt::format("'{}' must be a list of at most {} texts", field, most));
  }
  return value.get<std::vector<std::string>>();
}

std::vector<RowFilter> read_filters(const Json& value) {
  std::vector<RowFilter> filters;
  for (const std::string& text : read_strings(value, "filters", kMostFilters)) {
    try {
      filters.push_back(read_row_filter(text));
    } catch (const Error& error) {
      throw invalid_field("filters", error.what());
    }
  }
  return filters;
}

std::vector<std::string> read_columns(const Json& value) {
  std::vector<std::string> columns = read_strings(value, "columns", kMostColumns);
  try {
    check_column_names(columns);
  } catch (const Error& error) {
    throw invalid_field("columns", error.what());
  }
  return columns;
}

std::string read_template(const Json& value) {
  try {
    check_context_template(as_text(value));
  } catch (const Error& error) {
    throw invalid_field("template", error.what());
  }
  return as_text(value);
}

// Columns are taken out of the metadata, as `quarrel embed --column` takes them out of the objects.
void take_columns(EmbedToRequest& request) {
  for (TextRecord& record : request.texts) {
    record.source = request.source;
    record.columns.assign(request.columns.size(), "");
    if (record.metadata.empty() || request.columns.empty()) continue;
    Json metadata = read_json(record.metadata).value;  // an object: it was written here
    for (std::size_t i = 0; i < request.columns.size(); ++i) {
      const auto member = metadata.find(request.columns[i]);
      if (member == metadata.end()) continue;
      record.columns[i] = column_text(*member);
      metadata.erase(member);
    }
    record.metadata = metadata.empty() ? "" : compact_json(metadata);
  }
}

Json texts_schema() {
  const Json id = schema::either({schema::text(), schema::integer()}, "the caller's own; kept as `doc_id`");
  Json metadata{{"type", "object"}};
  Json texts = schema::list(schema::either(
      {schema::text(),
       schema::object({{"text", schema::text()}, {"id", id, false}, {"metadata", std::move(metadata), false}})}));
  texts["minItems"] = 1;
  texts["maxItems"] = kMostInputs;
  return texts;
}

Json strings_schema(std::size_t most) {
  Json texts = schema::list(schema::text());
  texts["maxItems"] = most;
  return texts;
}
Json columns_schema() { return strings_schema(kMostColumns); }
Json filters_schema() { return strings_schema(kMostFilters); }

using ToField = Field<EmbedToRequest>;

constexpr std::array kToFields = {
    ToField{.name = "model",
            .kind = FieldKind::text,
            .help = "the model; without it the default one",
            .read = [](const Json& v, EmbedToRequest& r) { r.model = as_text(v); }},
    ToField{.name = "to",
            .kind = FieldKind::text,
            .help = kFromHelp,
            .read = [](const Json& v, EmbedToRequest& r) { r.to = as_text(v); }},
    ToField{.name = "texts",
            .help = "texts, or objects with `text`, perhaps `id` and `metadata`",
            .read = read_texts,
            .schema = texts_schema},
    ToField{.name = "source",
            .kind = FieldKind::text,
            .help = "where they come from; a column to filter by",
            .read = [](const Json& v, EmbedToRequest& r) { r.source = as_short_text(v, "source"); }},
    ToField{.name = "prefix",
            .kind = FieldKind::text,
            .help = "put before each text when it is embedded, not stored",
            .read = [](const Json& v, EmbedToRequest& r) { r.prefix = as_short_text(v, "prefix"); }},
    ToField{.name = "columns",
            .help = "members of the metadata that become columns to filter by; the same for the life of a dataset",
            .read = [](const Json& v, EmbedToRequest& r) { r.columns = read_columns(v); },
            .schema = columns_schema},
    ToField{.name = "dimensions",
            .kind = FieldKind::integer,
            .least = 1,
            .most = kMostTokens,
            .help = "only the first so many values",
            .read = [](const Json& v, EmbedToRequest& r) { r.dimensions = as_integer(v); }},
    ToField{.name = "truncate",
            .kind = FieldKind::boolean,
            .help = "a text that is too long is cut, not refused; it is unless this is false",
            .read = [](const Json& v, EmbedToRequest& r) { r.truncate = as_flag(v); }},
    ToField{.name = "append",
            .kind = FieldKind::boolean,
            .help = "add to a dataset that others have filled",
            .read = [](const Json& v, EmbedToRequest& r) { r.append = as_flag(v); }},
};

using SearchField = Field<StoreSearchRequest>;

constexpr std::array kSearchFields = {
    SearchField{.name = "model",
                .kind = FieldKind::text,
                .help = "the model that the dataset was filled with; without it the default one",
                .read = [](const Json& v, StoreSearchRequest& r) { r.model = as_text(v); }},
    SearchField{.name = "from",
                .kind = FieldKind::text,
                .help = kFromHelp,
                .read = [](const Json& v, StoreSearchRequest& r) { r.from = as_text(v); }},
    SearchField{.name = "query",
                .kind = FieldKind::text,
                .help = "what is searched for",
                .read = [](const Json& v, StoreSearchRequest& r) { r.query = as_text(v); }},
    SearchField{.name = "k",
                .kind = FieldKind::integer,
                .least = 1,
                .most = kMostHits,
                .help = "how many texts; 10 without it",
                .read = [](const Json& v, StoreSearchRequest& r) { r.k = as_integer(v); }},
    SearchField{.name = "filters",
                .help = kFilterHelp,
                .read = [](const Json& v, StoreSearchRequest& r) { r.filters = read_filters(v); },
                .schema = filters_schema},
    SearchField{.name = "prefix",
                .kind = FieldKind::text,
                .help = "put before the question when it is embedded",
                .read = [](const Json& v, StoreSearchRequest& r) { r.prefix = as_short_text(v, "prefix"); }},
    SearchField{.name = "dimensions",
                .kind = FieldKind::integer,
                .least = 1,
                .most = kMostTokens,
                .help = "as the dataset was filled with: only the first so many values",
                .read = [](const Json& v, StoreSearchRequest& r) { r.dimensions = as_integer(v); }},
};

using ContextField = Field<RetrievalRequest>;

constexpr std::array kRetrievalFields = {
    ContextField{.name = "from",
                 .kind = FieldKind::text,
                 .help = kFromHelp,
                 .read = [](const Json& v, RetrievalRequest& r) { r.search.from = as_text(v); }},
    ContextField{.name = "model",
                 .kind = FieldKind::text,
                 .help = "the embedding model that the dataset was filled with",
                 .read = [](const Json& v, RetrievalRequest& r) { r.search.model = as_text(v); }},
    ContextField{.name = "k",
                 .kind = FieldKind::integer,
                 .least = 1,
                 .most = kMostContextTexts,
                 .help = "how many texts at most; 4 without it",
                 .read = [](const Json& v, RetrievalRequest& r) { r.search.k = as_integer(v); }},
    ContextField{
        .name = "max_tokens",
        .kind = FieldKind::integer,
        .least = 1,
        .most = kMostTokens,
        .help = "of all texts together; 1024 without it, half of the context at most",
        .read = [](const Json& v, RetrievalRequest& r) { r.max_tokens = static_cast<std::size_t>(as_integer(v)); }},
    ContextField{.name = "filters",
                 .help = kFilterHelp,
                 .read = [](const Json& v, RetrievalRequest& r) { r.search.filters = read_filters(v); },
                 .schema = filters_schema},
    ContextField{.name = "prefix",
                 .kind = FieldKind::text,
                 .help = "put before the question when it is embedded",
                 .read = [](const Json& v, RetrievalRequest& r) { r.search.prefix = as_short_text(v, "prefix"); }},
    ContextField{.name = "dimensions",
                 .kind = FieldKind::integer,
                 .least = 1,
                 .most = kMostTokens,
                 .help = "as the dataset was filled with: only the first so many values",
                 .read = [](const Json& v, RetrievalRequest& r) { r.search.dimensions = as_integer(v); }},
    ContextField{.name = "template",
                 .kind = FieldKind::text,
                 .help = "what the model is asked, with {texts} and {question} in it",
                 .read = [](const Json& v, RetrievalRequest& r) { r.prompt_template = read_template(v); }},
};

}  // namespace

EmbedToRequest read_embed_to(const Json& body) {
  EmbedToRequest request;
  read_fields<EmbedToRequest>(body, kToFields, request);
  if (request.texts.empty()) throw invalid_field("texts", "'texts' is missing");
  take_columns(request);
  return request;
}

StoreSearchRequest read_store_search(const Json& body) {
  StoreSearchRequest request;
  read_fields<StoreSearchRequest>(body, kSearchFields, request);
  if (is_blank(request.query)) throw invalid_field("query", "'query' is missing");
  return request;
}

RetrievalRequest read_retrieval(const Json& value) {
  if (!value.is_object()) throw invalid_field("retrieval", "'retrieval' must be an object");
  RetrievalRequest request;
  try {
    read_fields<RetrievalRequest>(value, kRetrievalFields, request);
    if (request.search.model.empty()) throw invalid_field("model", "'retrieval' needs the name of an embedding model");
  } catch (ApiError& error) {
    error.param = error.param.empty() ? "retrieval" : "retrieval." + error.param;
    throw;
  }
  return request;
}

Json retrieval_schema() { return schema::request_of<RetrievalRequest>("Retrieval", {"model"}, kRetrievalFields); }
Json embed_to_schema() { return schema::request_of<EmbedToRequest>("EmbedToRequest", {"texts"}, kToFields); }
Json store_search_schema() {
  return schema::request_of<StoreSearchRequest>("StoreSearchRequest", {"query"}, kSearchFields);
}

}  // namespace quarrel
