#include "store/stored_settings.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <span>
#include <system_error>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"
#include "base/output_file.h"
#include "base/printable.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMostBytes = 8u << 20;
constexpr int kDeepest = 32;

[[noreturn]] void refuse(const fs::path& path, std::string_view why) {
  fail(ErrorKind::bad_file, "the settings '{}' {}", printable(path.string(), 512), why);
}

std::string read_whole(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorKind::io, "the settings '{}' cannot be read", printable(path.string(), 512));
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMostBytes) refuse(path, "are too large");
  return text;
}

std::optional<std::string> text_of(const Json& json, const char* key, const fs::path& path) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return std::nullopt;
  if (!found->is_string()) refuse(path, "have a value that should be a string and is not");
  return found->get<std::string>();
}

}  // namespace

StoredSettings read_settings(const fs::path& path) {
  std::error_code fault;
  if (!fs::is_regular_file(path, fault)) return {};
  const std::string text = read_whole(path);
  if (nests_deeper(text, kDeepest)) refuse(path, "are nested too deep");
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) refuse(path, "are not a JSON object");
  StoredSettings settings{.from = text_of(json, "from", path).value_or(""),
                          .system = text_of(json, "system", path),
                          .template_text = text_of(json, "template", path),
                          .license = text_of(json, "license", path).value_or("")};
  if (const auto params = json.find("parameters"); params != json.end() && !params->is_null()) {
    if (!params->is_object()) refuse(path, "have parameters that are not a JSON object");
    settings.params = params->dump();
  }
  return settings;
}

void write_settings(const fs::path& path, const StoredSettings& settings) {
  if (settings.empty()) {
    std::error_code fault;
    fs::remove(path, fault);
    if (fault) fail(ErrorKind::io, "cannot remove '{}': {}", printable(path.string(), 512), fault.message());
    return;
  }
  Json json = Json::object();
  if (!settings.from.empty()) json["from"] = settings.from;
  if (settings.system) json["system"] = *settings.system;
  if (settings.template_text) json["template"] = *settings.template_text;
  if (settings.params) json["parameters"] = Json::parse(*settings.params, nullptr, false);
  if (!settings.license.empty()) json["license"] = settings.license;
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  OutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

// In Jinja no expression begins with a dot, a dollar sign or the name of a statement.
bool is_go_template(std::string_view text) {
  static constexpr std::array<std::string_view, 10> kStatements = {"if",     "else",  "end",      "range", "with",
                                                                   "define", "block", "template", "break", "continue"};
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (std::size_t open = text.find("{{"); open != std::string_view::npos; open = text.find("{{", open + 2)) {
    std::string_view rest = text.substr(open + 2);
    if (rest.starts_with('-')) rest.remove_prefix(1);
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t\r\n"), rest.size()));
    if (rest.size() > 1 && rest[0] == '.' && (is_letter(rest[1]) || rest[1] == ' ')) return true;
    if (rest.starts_with('$') || rest.starts_with("/*")) return true;
    const std::string_view word =
        rest.substr(0, static_cast<std::size_t>(std::ranges::find_if_not(rest, is_letter) - rest.begin()));
    if (std::ranges::find(kStatements, word) != kStatements.end()) return true;
  }
  return false;
}

}  // namespace quarrel
