// What a store keeps beside a model's weights: a system prompt, a chat template, parameters, a licence. Quarrel's own
// store has them in a JSON file `NAME.settings.json` beside `NAME.gguf`:
//
//   {"from": "toy", "system": "Be brief.", "template": "{% for …", "parameters": {"temperature": 0.2}, "license": "…"}
//
// Every key may be missing. Called by ModelStore and by what creates models; stateless, any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace quarrel {

inline constexpr std::string_view kSettingsExtension = ".settings.json";

struct StoredSettings {
  std::string from = {};  // the model that it was made of; empty: none
  std::optional<std::string> system = {};
  std::optional<std::string> template_text = {};  // Jinja
  std::optional<std::string> params = {};         // the text of a JSON object, with Ollama's names
  std::string license = {};

  bool empty() const noexcept { return from.empty() && !system && !template_text && !params && license.empty(); }
};

// None where the file is absent. Throws Error: bad_file for one that is damaged or too large, io.
StoredSettings read_settings(const std::filesystem::path& path);
// Whole or not at all; without settings there is no file. Throws Error(io).
void write_settings(const std::filesystem::path& path, const StoredSettings& settings);

// Whether a template is written for Go's template engine, as Ollama's are, and not in Jinja.
bool is_go_template(std::string_view text);

}  // namespace quarrel
