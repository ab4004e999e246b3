#include "server/fields.h"

#include <fmt/format.h>

#include <cmath>

#include "base/nearest.h"
#include "base/printable.h"

namespace quarrel {
namespace {

constexpr int kDeepest = 64;
// Members keep their order, so each new one is compared with all before it.
constexpr int kMostKeys = 4096;

// Exact for whole numbers, of which a double has only those up to 2^53.
long double value_of(const Json& number) {
  if (number.is_number_unsigned()) return static_cast<long double>(number.get<std::uint64_t>());
  if (number.is_number_integer()) return static_cast<long double>(number.get<std::int64_t>());
  return static_cast<long double>(number.get<double>());
}

}  // namespace

Json parse_body(std::string_view body) {
  if (body.empty()) throw invalid_request("invalid_json", "the request has no body; a JSON object is expected");
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

bool is_neutral(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_array() || value.is_object()) return value.empty();
  return value.is_string() && (value.get_ref<const std::string&>().empty() || value == "text");
}

void check_field(std::string_view name, FieldKind kind, double least, double most, std::string_view help,
                 const Json& value) {
  const auto refuse = [&](std::string_view expected) {
    throw invalid_field(std::string(name), fmt::format("'{}' must be {}", name, expected));
  };
  switch (kind) {
    case FieldKind::boolean:
      if (!value.is_boolean()) refuse("true or false");
      break;
    case FieldKind::integer:
      // A whole number may be written as 5.0.
      if (!value.is_number() || value.get<double>() != std::floor(value.get<double>())) refuse("a whole number");
      [[fallthrough]];
    case FieldKind::number:
      if (!value.is_number()) refuse("a number");
      if (!(value_of(value) >= static_cast<long double>(least) && value_of(value) <= static_cast<long double>(most))) {
        refuse(fmt::format("between {} and {}", least, most));
      }
      break;
    case FieldKind::text:
      if (!value.is_string()) refuse("a string");
      break;
    case FieldKind::refused:
      if (!is_neutral(value)) {
        throw unsupported_field(std::string(name), fmt::format("'{}' is not supported: {}", name, help));
      }
      break;
    case FieldKind::any:
    case FieldKind::no_effect: break;
  }
}

void refuse_unknown(std::string_view name, std::span<const std::string_view> known) {
  std::string message = fmt::format("'{}' is no field of this request", printable(name));
  const std::vector<std::string> names(known.begin(), known.end());
  const std::vector<std::string> close = nearest(name, names, 1);
  if (!close.empty()) message += fmt::format("; did you mean '{}'?", close.front());
  throw unsupported_field(printable(name), message);
}

void append_json_string(std::string& out, std::string_view text) {
  out.push_back('"');
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text.substr(begin, i - begin));
    begin = i + 1;
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default: fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c)); break;
    }
  }
  out.append(text.substr(begin));
  out.push_back('"');
}

}  // namespace quarrel
