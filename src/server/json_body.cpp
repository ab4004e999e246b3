#include "server/json_body.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <string>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "base/printable.h"
#include "server/api_error.h"

namespace quarrel {
namespace {

constexpr std::size_t kDeepest = 64;
// Who looks for a member compares its name with all of them. The widest object that means anything is a `logit_bias`.
constexpr std::size_t kMostKeys = 1100;
// Below it there is nothing to gain.
constexpr std::size_t kLargeBody = 4096;

// An object's members as a plain list: what is put there is compared with nothing. Before, it is made sure that
// names differ.
using Members = Json::object_t::Container;

// A document of simdjson becomes one of ours. False: there is something in it for the other reader to judge. `names` is
// room for one object's at a time.
bool convert(const simdjson::dom::element& from, std::size_t depth, std::vector<std::string_view>& names, Json& to) {
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
        if (!convert(each, depth + 1, names, elements.emplace_back())) return false;
      }
      return true;
    }
    case Type::OBJECT: {
      if (depth >= kDeepest) return false;
      const simdjson::dom::object members = from;
      if (members.size() > kMostKeys) return false;
      names.clear();
      for (const simdjson::dom::key_value_pair member : members) names.push_back(member.key);
      if (repeated_name(names)) return false;
      to = Json::object();
      Members& made = to.get_ref<Json::object_t&>();
      made.reserve(members.size());
      for (const simdjson::dom::key_value_pair member : members) {
        if (!convert(member.value, depth + 1, names, made.emplace_back(std::string(member.key), Json()).second)) {
          return false;
        }
      }
      return true;
    }
  }
  return false;
}

ApiError refusal(const JsonFault& fault) {
  const auto invalid = [](const std::string& message) { return invalid_request("invalid_json", message); };
  switch (fault.flaw) {
    case JsonFlaw::number: return invalid("the body has a number that is too large for any use");
    case JsonFlaw::nesting: return invalid(fmt::format("the body is nested deeper than {}", kDeepest));
    case JsonFlaw::members: return invalid(fmt::format("an object has more than {} members", kMostKeys));
    case JsonFlaw::repeated: return invalid(fmt::format("an object has two members '{}'", printable(fault.detail)));
    case JsonFlaw::syntax: break;
  }
  return invalid(fmt::format("the body is not JSON: something is wrong at byte {}", fault.at));
}

}  // namespace

std::optional<Json> read_by_simdjson(std::string_view body) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (parser.parse(body.data(), body.size()).get(root) != simdjson::SUCCESS) return std::nullopt;
  std::vector<std::string_view> names;
  Json value;
  if (!root.is_object() || !convert(root, 0, names, value)) return std::nullopt;
  return value;
}

Json read_by_nlohmann(std::string_view body) {
  JsonReading read = read_json(body, {.levels = kDeepest, .members = kMostKeys, .repeated = RepeatedNames::refused});
  if (read.fault) throw ApiError(refusal(*read.fault));
  if (!read.value.is_object()) throw invalid_request("invalid_json", "the body is JSON, but not an object");
  return std::move(read.value);
}

Json parse_body(std::string_view body) {
  if (body.empty()) throw invalid_request("invalid_json", "the request has no body; a JSON object is expected");
  if (body.size() >= kLargeBody) {
    if (std::optional<Json> value = read_by_simdjson(body)) return std::move(*value);
  }
  return read_by_nlohmann(body);
}

}  // namespace quarrel
