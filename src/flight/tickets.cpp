#include "flight/tickets.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/json_depth.h"
#include "base/printable.h"

namespace quarrel {
namespace {

using Json = nlohmann::json;

constexpr int kDeepestAnswer = 16;

const char* operator_of(Comparison comparison) {
  switch (comparison) {
    case Comparison::equal: return "=";
    case Comparison::not_equal: return "!=";
    case Comparison::less: return "<";
    case Comparison::less_or_equal: return "<=";
    case Comparison::greater: return ">";
    case Comparison::greater_or_equal: return ">=";
  }
  return "=";
}

Json filters_json(const std::vector<RowFilter>& filters) {
  Json list = Json::array();
  for (const RowFilter& filter : filters) {
    list.push_back({{"field", filter.field}, {"operator", operator_of(filter.comparison)}, {"value", filter.value}});
  }
  return list;
}

// All fields every time: the store's parser may keep another request's value for one that is left out.
Json search_json(const std::string& dataset, const SearchRequest& request) {
  return {{"dataset", dataset},
          {"vector", std::vector<float>(request.vector.begin(), request.vector.end())},
          {"k", request.k},
          {"filters", filters_json(request.filters)},
          {"local_only", false},
          {"text_query", request.text_query},
          {"alpha", request.text_query.empty() ? 0.0 : request.alpha},
          {"graph_alpha", 0.0},
          {"include_vectors", false},
          {"vector_format", ""}};
}

// Field names and values come from people: what is not UTF-8 must not end in an exception of the library's.
std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Null where it is no JSON that this program would read.
Json parsed(std::string_view json) {
  if (nests_deeper(json, kDeepestAnswer)) return nullptr;
  Json result = Json::parse(json, nullptr, false);
  return result.is_object() ? result : Json(nullptr);
}

std::string text_member(const Json& object, const char* name) {
  const auto member = object.find(name);
  return member != object.end() && member->is_string() ? member->get<std::string>() : std::string();
}

std::optional<std::int64_t> number_member(const Json& object, const char* name) {
  const auto member = object.find(name);
  if (member == object.end() || !member->is_number_integer()) return std::nullopt;
  return member->get<std::int64_t>();
}

template <typename Number>
bool is_number(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(static_cast<double>(value));
}

}  // namespace

std::string scan_ticket(const std::string& dataset, const std::vector<RowFilter>& filters) {
  Json ticket = {{"name", dataset}};
  if (!filters.empty()) ticket["filters"] = filters_json(filters);
  return text_of(ticket);
}

std::string search_ticket(const std::string& dataset, const SearchRequest& request) {
  return text_of({{"search", search_json(dataset, request)}});
}

std::string search_body(const std::string& dataset, const SearchRequest& request) {
  return text_of(search_json(dataset, request));
}

std::string dataset_body(const std::string& dataset) { return text_of({{"dataset", dataset}}); }

std::string row_body(const std::string& dataset, const std::string& id) {
  return text_of({{"dataset", dataset}, {"id", id}});
}

std::string name_criteria(const std::string& contains) {
  if (contains.empty()) return "";
  const Json filter = {{"field", "name"}, {"operator", "contains"}, {"value", contains}};
  return text_of({{"filters", Json::array({filter})}});
}

std::optional<Readiness> read_readiness(std::string_view json) {
  const Json answer = parsed(json);
  Readiness result;
  const std::string status = text_member(answer, "status");
  if (status == "READY") {
    result.state = ReadyState::ready;
  } else if (status == "BUSY") {
    result.state = ReadyState::busy;
  } else if (status != "NOT_FOUND") {
    return std::nullopt;
  }
  result.indexed = number_member(answer, "index_len");
  result.reason = printable(text_member(answer, "reason"));
  return result;
}

bool asks_to_slow_down(std::string_view json) { return text_member(parsed(json), "status") == "slow_down"; }

std::optional<std::uint64_t> acknowledged_rows(std::string_view json) {
  const Json answer = parsed(json);
  const auto rows = number_member(answer, "rows");
  if (text_member(answer, "status") != "acked" || !rows || *rows < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*rows);
}

void check_filters(const std::vector<RowFilter>& filters, const StoredSchema& schema, const std::string& dataset) {
  for (const RowFilter& filter : filters) {
    const auto column = std::ranges::find(schema.columns, filter.field, &ColumnInfo::name);
    if (column == schema.columns.end()) {
      fail(ErrorKind::bad_input, "the dataset '{}' has no column '{}' to filter by", printable(dataset),
           printable(filter.field));
    }
    const std::string& type = column->type;
    const bool real = type == "float" || type == "double";
    if (type != "string" && type != "int64" && !real) {
      fail(ErrorKind::bad_input, "the column '{}' of type {} cannot be filtered by", printable(filter.field), type);
    }
    if ((type == "int64" && !is_number<std::int64_t>(filter.value)) || (real && !is_number<double>(filter.value))) {
      fail(ErrorKind::bad_input, "the column '{}' holds numbers, and '{}' is none of type {}", printable(filter.field),
           printable(filter.value), type);
    }
  }
}

}  // namespace quarrel
