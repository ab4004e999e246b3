#include "server/json_body.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <string>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "server/api_error.h"

namespace quarrel {
namespace {

constexpr std::size_t kDeepest = 64;
// Who looks for a member compares its name with all of them. The widest object that means anything is a `logit_bias`.
constexpr std::size_t kMostKeys = 1100;
// Below it there is nothing to gain.
constexpr std::size_t kLargeBody = 4096;

// An object's members as a plain list: what is put there is compared with nothing. Both readers have made sure before
// that names differ.
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

// Builds a body from the events of nlohmann's parser. The library's own builder, where it asks a callback, looks at a
// whole list again for each object in it, and compares the name of each member with all before it.
class BodyBuilder final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*count*/) override { return open(); }
  bool key(string_t& name) override {
    std::vector<std::string>& names = open_.back().names;
    if (names.size() >= kMostKeys) {
      throw invalid_request("invalid_json", fmt::format("an object has more than {} members", kMostKeys));
    }
    names.push_back(std::move(name));
    return true;
  }
  bool end_object() override {
    Open ended = close();
    names_.assign(ended.names.begin(), ended.names.end());
    if (const std::optional<std::string_view> twice = repeated_name(names_)) {
      throw invalid_request("invalid_json", fmt::format("an object has two members '{}'", printable(*twice)));
    }
    Json object = Json::object();
    Members& members = object.get_ref<Json::object_t&>();
    members.reserve(ended.names.size());
    for (std::size_t i = 0; i < ended.names.size(); ++i) {
      members.emplace_back(std::move(ended.names[i]), std::move(ended.values[i]));
    }
    return add(std::move(object));
  }
  bool start_array(std::size_t /*count*/) override { return open(); }
  bool end_array() override {
    Json list = Json::array();
    list.get_ref<Json::array_t&>() = close().values;
    return add(std::move(list));
  }
  bool parse_error(std::size_t position, const std::string& /*token*/, const Json::exception& error) override {
    if (dynamic_cast<const Json::out_of_range*>(&error) != nullptr) {
      throw invalid_request("invalid_json", "the body has a number that is too large for any use");
    }
    throw invalid_request("invalid_json", fmt::format("the body is not JSON: something is wrong at byte {}", position));
  }

  // What was read, once the parser has returned.
  Json take() { return std::move(root_); }

 private:
  // An object or a list that has not ended; a list has no names.
  struct Open {
    std::vector<std::string> names = {};
    std::vector<Json> values = {};
  };

  bool add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else {
      open_.back().values.push_back(std::move(value));
    }
    return true;
  }

  bool open() {
    if (open_.size() >= kDeepest) {
      throw invalid_request("invalid_json", fmt::format("the body is nested deeper than {}", kDeepest));
    }
    open_.emplace_back();
    return true;
  }

  Open close() {
    Open ended = std::move(open_.back());
    open_.pop_back();
    return ended;
  }

  std::vector<Open> open_;
  std::vector<std::string_view> names_;  // of the object that is checked
  Json root_;
};

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
  // nlohmann's lexer takes this byte for the end, whatever comes behind it.
  if (const std::size_t at = body.find('\0'); at != std::string_view::npos) {
    throw invalid_request("invalid_json", fmt::format("the body is not JSON: something is wrong at byte {}", at + 1));
  }
  BodyBuilder builder;
  Json::sax_parse(body, &builder);
  Json value = builder.take();
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
