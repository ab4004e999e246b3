#include "server/json_body.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <vector>

#include "server/api_error.h"

namespace quarrel {
namespace {

constexpr int kDeepest = 64;
// Members keep their order, so each new one is compared with all before it.
constexpr int kMostKeys = 4096;
// Below it there is nothing to gain.
constexpr std::size_t kLargeBody = 4096;

// A document of simdjson becomes one of ours. False: there is something in it for the other reader to judge.
bool convert(const simdjson::dom::element& from, int depth, Json& to) {
  using Type = simdjson::dom::element_type;
  switch (from.type()) {
    case Type::NULL_VALUE: return true;
    case Type::BOOL: to = bool(from); return true;
    case Type::INT64: {
      // As nlohmann has them: unsigned if not below zero.
      const std::int64_t value = from;
      if (value >= 0) {
        to = static_cast<std::uint64_t>(value);
      } else {
        to = value;
      }
      return true;
    }
    case Type::UINT64: to = std::uint64_t(from); return true;
    case Type::DOUBLE: to = double(from); return true;
    case Type::STRING: to = std::string(std::string_view(from)); return true;
    case Type::ARRAY: {
      if (depth >= kDeepest) return false;
      const simdjson::dom::array list = from;
      to = Json::array();
      auto& elements = to.get_ref<Json::array_t&>();
      for (const simdjson::dom::element each : list) {
        if (!convert(each, depth + 1, elements.emplace_back())) return false;
      }
      return true;
    }
    case Type::OBJECT: {
      if (depth >= kDeepest) return false;
      const simdjson::dom::object members = from;
      to = Json::object();
      int keys = 0;
      for (const simdjson::dom::key_value_pair member : members) {
        if (++keys > kMostKeys) return false;
        Json value;
        if (!convert(member.value, depth + 1, value)) return false;
        to[std::string(member.key)] = std::move(value);
      }
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<Json> read_by_simdjson(std::string_view body) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (parser.parse(body.data(), body.size()).get(root) != simdjson::SUCCESS) return std::nullopt;
  Json value;
  if (!root.is_object() || !convert(root, 0, value)) return std::nullopt;
  return value;
}

Json read_by_nlohmann(std::string_view body) {
  // nlohmann's lexer takes this byte for the end, whatever comes behind it.
  if (const std::size_t at = body.find('\0'); at != std::string_view::npos) {
    throw invalid_request("invalid_json", fmt::format("the body is not JSON: something is wrong at byte {}", at + 1));
  }
  bool too_deep = false;
  bool too_many = false;
  std::vector<int> keys;  // of the object that is open at each depth
  const Json::parser_callback_t watch = [&](int depth, Json::parse_event_t event, Json&) {
    too_deep = too_deep || depth > kDeepest;
    if (too_deep) return false;
    keys.resize(kDeepest + 2);
    if (event == Json::parse_event_t::object_start) keys[static_cast<std::size_t>(depth) + 1] = 0;
    if (event == Json::parse_event_t::key) too_many = too_many || ++keys[static_cast<std::size_t>(depth)] > kMostKeys;
    return !too_many;
  };
  Json value;
  try {
    value = Json::parse(body, watch);
  } catch (const Json::parse_error& error) {
    throw invalid_request("invalid_json",
                          fmt::format("the body is not JSON: something is wrong at byte {}", error.byte));
  } catch (const Json::out_of_range&) {
    throw invalid_request("invalid_json", "the body has a number that is too large for any use");
  }
  if (too_deep) throw invalid_request("invalid_json", fmt::format("the body is nested deeper than {}", kDeepest));
  if (too_many) throw invalid_request("invalid_json", fmt::format("an object has more than {} members", kMostKeys));
  if (!value.is_object()) throw invalid_request("invalid_json", "the body is JSON, but no object");
  return value;
}

Json parse_body(std::string_view body) {
  if (body.empty()) throw invalid_request("invalid_json", "the request has no body; a JSON object is expected");
  if (body.size() >= kLargeBody) {
    if (std::optional<Json> value = read_by_simdjson(body)) return std::move(*value);
  }
  return read_by_nlohmann(body);
}

}  // namespace quarrel
