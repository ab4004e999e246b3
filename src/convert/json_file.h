// The JSON files that lie beside a model's weights, read with bounds: size, nesting, and the kind and range of every
// value that is asked for. Messages name the file and the field. Stateless: any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace quarrel {

inline constexpr std::size_t kMaxJsonFileBytes = 256u << 20;

// Throws Error: not_found, io, bad_file with the place of the fault.
nlohmann::json read_json_file(const std::filesystem::path& path);
// The same, but an object without members where there is no such file.
nlohmann::json read_json_file_if_any(const std::filesystem::path& path);
// A text file of at most `kMaxJsonFileBytes`. Throws Error: not_found, io, bad_file.
std::string read_text_file(const std::filesystem::path& path);

// The fields of one JSON object, which must outlive this. A field that is null counts as absent, as the writers of
// these files mean it.
class JsonFields {
 public:
  // `what` names the object in messages: "config.json". Throws Error(bad_file) unless it is an object.
  JsonFields(const nlohmann::json& object, std::string what);

  const std::string& what() const noexcept { return what_; }
  // Null when absent.
  const nlohmann::json* find(std::string_view name) const;

  // Without a value and without a fallback, or with a value of another kind or range: Error(bad_file).
  std::int64_t integer(std::string_view name, std::int64_t least, std::int64_t most) const;
  std::int64_t integer_or(std::string_view name, std::int64_t fallback, std::int64_t least, std::int64_t most) const;
  double number(std::string_view name) const;
  double number_or(std::string_view name, double fallback) const;
  std::optional<bool> boolean(std::string_view name) const;
  std::optional<std::string> string(std::string_view name) const;
  // The object of that name, or nothing.
  std::optional<JsonFields> object(std::string_view name) const;

 private:
  [[noreturn]] void refuse(std::string_view name, std::string_view reason) const;

  const nlohmann::json* object_;
  std::string what_;
};

}  // namespace quarrel
