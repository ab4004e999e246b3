#include "convert/json_file.h"

#include <cmath>

#include "base/error.h"
#include "base/json_depth.h"
#include "base/mapped_file.h"
#include "base/printable.h"

namespace quarrel {
namespace {

constexpr int kMaxDepth = 64;

void check_depth(std::string_view text, const std::string& name) {
  if (!nests_deeper(text, kMaxDepth)) return;
  fail(ErrorKind::bad_file, "'{}' nests deeper than {} levels", name, kMaxDepth);
}

}  // namespace

std::string read_text_file(const std::filesystem::path& path) {
  const MappedFile file = MappedFile::open(path);
  const std::size_t size = file.bytes().size();
  if (size > kMaxJsonFileBytes) {
    fail(ErrorKind::bad_file, "'{}' has {} bytes; {} are the most", printable(path.string(), 512), size,
         kMaxJsonFileBytes);
  }
  std::string text(size, '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

nlohmann::json read_json_file(const std::filesystem::path& path) {
  const std::string text = read_text_file(path);
  const std::string name = printable(path.string(), 512);
  check_depth(text, name);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    fail(ErrorKind::bad_file, "'{}' is not valid JSON: the error is at byte {}", name, error.byte);
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::bad_file, "'{}' is not usable JSON: {}", name, printable(error.what(), 160));
  }
}

nlohmann::json read_json_file_if_any(const std::filesystem::path& path) {
  std::error_code fault;
  if (!std::filesystem::exists(path, fault)) return nlohmann::json::object();
  return read_json_file(path);
}

JsonFields::JsonFields(const nlohmann::json& object, std::string what) : object_(&object), what_(std::move(what)) {
  if (!object.is_object()) fail(ErrorKind::bad_file, "{} must be a JSON object", what_);
}

const nlohmann::json* JsonFields::find(std::string_view name) const {
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

void JsonFields::refuse(std::string_view name, std::string_view reason) const {
  fail(ErrorKind::bad_file, "{}: {} {}", what_, name, reason);
}

std::int64_t JsonFields::integer(std::string_view name, std::int64_t least, std::int64_t most) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) refuse(name, "is missing");
  if (!value->is_number_integer()) refuse(name, "must be a whole number");
  const bool too_large = value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(most);
  if (too_large || value->get<std::int64_t>() < least || value->get<std::int64_t>() > most) {
    refuse(name, fmt::format("is {}, which is not between {} and {}", value->dump(), least, most));
  }
  return value->get<std::int64_t>();
}

std::int64_t JsonFields::integer_or(std::string_view name, std::int64_t fallback, std::int64_t least,
                                    std::int64_t most) const {
  return find(name) == nullptr ? fallback : integer(name, least, most);
}

double JsonFields::number(std::string_view name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) refuse(name, "is missing");
  if (!value->is_number() || !std::isfinite(value->get<double>())) refuse(name, "must be a number");
  return value->get<double>();
}

double JsonFields::number_or(std::string_view name, double fallback) const {
  return find(name) == nullptr ? fallback : number(name);
}

std::optional<bool> JsonFields::boolean(std::string_view name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(name, "must be true or false");
  return value->get<bool>();
}

std::optional<std::string> JsonFields::string(std::string_view name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(name, "must be a string");
  return value->get<std::string>();
}

std::optional<JsonFields> JsonFields::object(std::string_view name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  return JsonFields(*value, fmt::format("{}: {}", what_, name));
}

}  // namespace quarrel
