#include "server/json_body.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <set>
#include <string>
#include <vector>

#include "base/printable.h"
#include "server/api_error.h"

namespace quarrel {
namespace {

constexpr int kDeepest = 64;
// Members keep their order, so each new one is compared with all before it.
constexpr std::size_t kMostKeys = 4096;
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
      auto& made = to.get_ref<Json::object_t&>();
      for (const simdjson::dom::key_value_pair member : members) {
        if (made.size() >= kMostKeys) return false;
        Json value;
        if (!convert(member.value, depth + 1, value)) return false;
        if (!made.emplace(std::string(member.key), std::move(value)).second) return false;  // it comes twice
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
  std::optional<std::string> twice;                        // a name
  std::vector<std::set<std::string>> names(kDeepest + 2);  // of the object that is open at each depth
  const Json::parser_callback_t watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    too_deep = too_deep || depth > kDeepest;
    if (too_deep || too_many || twice) return false;
    if (event == Json::parse_event_t::object_start) names[static_cast<std::size_t>(depth) + 1].clear();
    if (event != Json::parse_event_t::key) return true;
    std::set<std::string>& known = names[static_cast<std::size_t>(depth)];
    const auto [name, is_new] = known.insert(parsed.get<std::string>());
    if (!is_new) twice = *name;
    too_many = known.size() > kMostKeys;
    return !twice && !too_many;
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
  if (twice) throw invalid_request("invalid_json", fmt::format("an object has two members '{}'", printable(*twice)));
  if (!value.is_object()) throw invalid_request("invalid_json", "the body is JSON, but not an object");
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
