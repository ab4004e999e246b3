#include "base/json_reader.h"

#include <map>
#include <utility>

namespace quarrel {
namespace {

using Json = nlohmann::ordered_json;

// An object's members as a plain list: what is put there is compared with nothing.
using Members = Json::object_t::Container;

// Builds a value from the events of the library's parser, with a stack of its own.
class JsonBuilder final : public nlohmann::json_sax<Json> {
 public:
  explicit JsonBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return refuse({.flaw = JsonFlaw::syntax}); }
  bool start_object(std::size_t /*count*/) override { return open(); }
  bool key(string_t& name) override {
    std::vector<std::string>& names = open_.back().names;
    if (names.size() >= limits_.members) return refuse({.flaw = JsonFlaw::members});
    names.push_back(std::move(name));
    return true;
  }
  bool end_object() override {
    Open ended = close();
    names_.assign(ended.names.begin(), ended.names.end());
    if (const std::optional<std::string_view> twice = repeated_name(names_)) {
      if (limits_.repeated == RepeatedNames::refused) {
        return refuse({.flaw = JsonFlaw::repeated, .detail = std::string(*twice)});
      }
      keep_last_values(ended);
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
    const bool is_number = dynamic_cast<const Json::out_of_range*>(&error) != nullptr;
    return refuse(
        {.flaw = is_number ? JsonFlaw::number : JsonFlaw::syntax, .at = position, .detail = std::string(error.what())});
  }

  // What was read, once the parser has returned.
  JsonReading take() {
    if (fault_) return {.fault = std::move(fault_)};
    return {.value = std::move(root_)};
  }

 private:
  // An object or a list that has not ended; a list has no names.
  struct Open {
    std::vector<std::string> names = {};
    std::vector<Json> values = {};
  };

  // Where a name was first, as the library's own builder has it.
  static void keep_last_values(Open& object) {
    std::map<std::string, std::size_t> places;
    Open kept;
    for (std::size_t i = 0; i < object.names.size(); ++i) {
      const auto [place, is_new] = places.try_emplace(object.names[i], kept.names.size());
      if (is_new) {
        kept.names.push_back(std::move(object.names[i]));
        kept.values.push_back(std::move(object.values[i]));
      } else {
        kept.values[place->second] = std::move(object.values[i]);
      }
    }
    object = std::move(kept);
  }

  bool add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else {
      open_.back().values.push_back(std::move(value));
    }
    return true;
  }

  bool open() {
    if (open_.size() >= limits_.levels) return refuse({.flaw = JsonFlaw::nesting});
    open_.emplace_back();
    return true;
  }

  Open close() {
    Open ended = std::move(open_.back());
    open_.pop_back();
    return ended;
  }

  // Gives false, which ends the parser.
  bool refuse(JsonFault fault) {
    fault_ = std::move(fault);
    return false;
  }

  const JsonLimits limits_;
  std::vector<Open> open_;
  std::vector<std::string_view> names_;  // of the object that is checked
  Json root_;
  std::optional<JsonFault> fault_;
};

}  // namespace

JsonReading read_json(std::string_view text, const JsonLimits& limits) {
  // The library's lexer takes this byte for the end, whatever comes behind it.
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos) {
    return {.fault = JsonFault{.flaw = JsonFlaw::syntax, .at = at + 1, .detail = "JSON may not contain a zero byte"}};
  }
  JsonBuilder builder(limits);
  Json::sax_parse(text, &builder);
  return builder.take();
}

}  // namespace quarrel
