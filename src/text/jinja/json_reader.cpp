#include <nlohmann/json.hpp>

#include "text/jinja/json.h"

namespace quarrel::jinja {
namespace {

using Json = nlohmann::ordered_json;

Value number_of(std::uint64_t value) {
  if (value <= static_cast<std::uint64_t>(INT64_MAX)) return Value::integer(static_cast<std::int64_t>(value));
  return Value::floating(static_cast<double>(value));
}

// Builds values from the parser's events with a stack of its own, so that nesting is bounded before it happens.
class ValueBuilder : public nlohmann::json_sax<Json> {
 public:
  ValueBuilder(Runtime& runtime, Origin origin) : runtime_(runtime), origin_(origin) {}

  bool null() override { return add(Value::none()); }
  bool boolean(bool value) override { return add(Value::boolean(value)); }
  bool number_integer(number_integer_t value) override { return add(Value::integer(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(number_of(value)); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(Value::floating(value)); }
  bool string(string_t& value) override { return add(runtime_.text_value(value, origin_)); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*count*/) override {
    DictObject* dict = runtime_.dict();
    dict->from_variables = origin_ == Origin::of_variables;
    return open(Value::dict(dict));
  }
  bool key(string_t& name) override {
    key_ = runtime_.text_value(name, origin_);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*count*/) override {
    ListObject* list = runtime_.list();
    list->from_variables = origin_ == Origin::of_variables;
    return open(Value::list(list));
  }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string& /*token*/, const Json::exception& /*error*/) override {
    fault("from_json finds no JSON (byte {})", position);
  }

  const Value& result() const { return result_; }

 private:
  bool add(const Value& value) {
    runtime_.spend(1);
    if (open_.empty()) {
      result_ = value;
    } else if (open_.back().is(Kind::list)) {
      open_.back().as_list().push(runtime_.heap(), value);
    } else {
      open_.back().as_dict().set(runtime_, key_, value);
    }
    return true;
  }

  bool open(const Value& value) {
    if (open_.size() >= kMaxValueDepth) fault("values are nested more than {} deep", kMaxValueDepth);
    add(value);
    open_.push_back(value);
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  Runtime& runtime_;
  Origin origin_;
  std::vector<Value> open_;
  Value key_;
  Value result_;
};

}  // namespace

Value read_json(Runtime& runtime, Text text) {
  runtime.spend_bytes(4 * text.size);
  ValueBuilder builder(runtime, origin_of(text.from_variables()));
  if (!Json::sax_parse(text.view(), &builder)) fault("from_json finds no JSON");
  return builder.result();
}

Value value_of_json(Runtime& runtime, const Json& json, Origin origin, std::size_t depth) {
  if (depth > kMaxValueDepth) fault("the variables are nested more than {} deep", kMaxValueDepth);
  switch (json.type()) {
    case Json::value_t::null: return Value::none();
    case Json::value_t::boolean: return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer: return Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_unsigned: return number_of(json.get<std::uint64_t>());
    case Json::value_t::number_float: return Value::floating(json.get<double>());
    case Json::value_t::string: return Value::text(runtime.borrowed(json.get_ref<const std::string&>(), origin));
    case Json::value_t::array: {
      ListObject* list = runtime.list();
      list->from_variables = true;
      for (const Json& element : json) list->push(runtime.heap(), value_of_json(runtime, element, origin, depth + 1));
      return Value::list(list);
    }
    case Json::value_t::object: {
      DictObject* dict = runtime.dict();
      dict->from_variables = true;
      for (auto it = json.begin(); it != json.end(); ++it) {
        const Value name = Value::text(runtime.borrowed(it.key(), origin));
        dict->set(runtime, name, value_of_json(runtime, it.value(), origin, depth + 1));
      }
      return Value::dict(dict);
    }
    default: fault("the variables hold something that is not JSON text");
  }
}

}  // namespace quarrel::jinja
