#include "store/ollama_store.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <system_error>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/lower_case.h"
#include "base/printable.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kMostEntries = 10'000;
constexpr std::uint64_t kMostManifestBytes = 4 << 20;
constexpr std::uint64_t kMostLayerBytes = 4 << 20;
constexpr int kMostDepth = 32;
constexpr std::string_view kLayerPrefix = "application/vnd.ollama.image.";
constexpr std::string_view kDefaultTag = "latest";
constexpr std::string_view kDefaultSpace = "library";

bool is_alphanumeric(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// One level of a name. `extra` is what may stand in it besides letters, digits, - and _.
bool is_part(std::string_view text, std::string_view extra, std::size_t longest = 80) {
  if (text.empty() || text.size() > longest) return false;
  if (!is_alphanumeric(text[0]) && text[0] != '_') return false;
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return is_alphanumeric(c) || c == '-' || c == '_' || extra.find(c) != std::string_view::npos;
  });
}

bool is_host(std::string_view text) { return is_part(text, ".:", 350); }
bool is_space(std::string_view text) { return is_part(text, ""); }
bool is_model_or_tag(std::string_view text) { return is_part(text, "."); }

// Children of a folder by name; none when it cannot be read.
std::vector<fs::path> children(const fs::path& folder, bool folders) {
  std::vector<fs::path> result;
  std::error_code fault;
  for (fs::directory_iterator it(folder, fault), end; !fault && it != end; it.increment(fault)) {
    std::error_code ignored;
    const bool wanted = folders ? it->is_directory(ignored) : it->is_regular_file(ignored);
    if (wanted) result.push_back(it->path());
    if (result.size() >= kMostEntries) break;
  }
  std::sort(result.begin(), result.end());
  return result;
}

void list_root(const fs::path& root, std::vector<OllamaEntry>& entries) {
  for (const fs::path& host : children(root / "manifests", true)) {
    if (!is_host(host.filename().string())) continue;
    for (const fs::path& space : children(host, true)) {
      if (!is_space(space.filename().string())) continue;
      for (const fs::path& model : children(space, true)) {
        if (!is_model_or_tag(model.filename().string())) continue;
        for (const fs::path& tag : children(model, false)) {
          if (!is_model_or_tag(tag.filename().string()) || entries.size() >= kMostEntries) continue;
          entries.push_back({{host.filename(), space.filename(), model.filename(), tag.filename()}, "", root, tag});
        }
      }
    }
  }
}

std::string without_host(const OllamaName& name) {
  const std::string start = name.space == kDefaultSpace ? "" : name.space + "/";
  return start + name.model + ":" + name.tag;
}

// Letter case aside.
std::vector<const OllamaEntry*> meant_by(const OllamaName& name, const std::vector<OllamaEntry>& entries) {
  const std::string host = lower_case(name.host);
  const std::string space = name.space.empty() ? std::string(kDefaultSpace) : lower_case(name.space);
  const std::string tag = name.tag.empty() ? std::string(kDefaultTag) : lower_case(name.tag);
  std::vector<const OllamaEntry*> matches;
  for (const OllamaEntry& entry : entries) {
    if (lower_case(entry.name.model) != lower_case(name.model) || lower_case(entry.name.tag) != tag) continue;
    if (lower_case(entry.name.space) != space) continue;
    if (!host.empty() && lower_case(entry.name.host) != host) continue;
    matches.push_back(&entry);
  }
  return matches;
}

[[noreturn]] void refuse(const OllamaEntry& entry, const std::string& reason, ErrorKind kind = ErrorKind::bad_file) {
  fail(kind, "model '{}' of the Ollama store: {}", printable(entry.display), reason);
}

// sha256:<64 hex digits>, or with a dash; gives the blob's file name.
std::optional<std::string> blob_name(std::string_view digest) {
  constexpr std::string_view kStart = "sha256";
  if (digest.size() != kStart.size() + 1 + 64 || digest.substr(0, kStart.size()) != kStart) return std::nullopt;
  if (digest[kStart.size()] != ':' && digest[kStart.size()] != '-') return std::nullopt;
  const std::string_view digits = digest.substr(kStart.size() + 1);
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); };
  if (!std::all_of(digits.begin(), digits.end(), is_hex)) return std::nullopt;
  return "sha256-" + lower_case(digits);
}

std::string read_small(const OllamaEntry& entry, const fs::path& path, std::uint64_t limit, std::string_view what) {
  std::error_code fault;
  const bool regular = fs::is_regular_file(path, fault);
  if (!regular) refuse(entry, fmt::format("its {} is missing or cannot be read", what), ErrorKind::not_found);
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(entry, fmt::format("its {} cannot be read", what), ErrorKind::io);
  std::string text(limit + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > limit) refuse(entry, fmt::format("its {} is larger than {} bytes", what, limit));
  return text;
}

// Looked at before any parser sees the text: a document nested without end must not cost a stack.
bool is_shallow(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMostDepth) return false;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return true;
}

Json parse_object(const OllamaEntry& entry, const std::string& text, std::string_view what) {
  if (!is_shallow(text)) refuse(entry, fmt::format("its {} is nested more than {} deep", what, kMostDepth));
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) refuse(entry, fmt::format("its {} is not a JSON object", what));
  return json;
}

// A member that is a text; empty otherwise.
std::string text_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

fs::path blob_path(const OllamaEntry& entry, const Json& layer, std::string_view what) {
  const auto name = blob_name(text_of(layer, "digest"));
  if (!name) {
    refuse(entry, fmt::format("the digest of its {} is '{}', not sha256 and 64 hexadecimal digits", what,
                              printable(text_of(layer, "digest"))));
  }
  fs::path path = entry.root / "blobs" / *name;
  std::error_code fault;
  if (fs::exists(path, fault)) return path;
  // How old stores spell it.
  const fs::path old = entry.root / "blobs" / ("sha256:" + name->substr(7));
  if (fs::exists(old, fault)) path = old;
  return path;
}

// The layers that matter here, by kind; a later layer of the same kind replaces an earlier one.
std::map<std::string, Json> layers_of(const OllamaEntry& entry, const Json& manifest) {
  const auto layers = manifest.find("layers");
  if (layers == manifest.end() || !layers->is_array()) refuse(entry, "its manifest has no list of layers");
  std::map<std::string, Json> result;
  for (const Json& layer : *layers) {
    if (!layer.is_object()) refuse(entry, "a layer in its manifest is not a JSON object");
    const std::string type = text_of(layer, "mediaType");
    if (type.rfind(kLayerPrefix, 0) == 0) result[type.substr(kLayerPrefix.size())] = layer;
  }
  return result;
}

void read_model_layer(const OllamaEntry& entry, const Json& layer, OllamaModel& model) {
  model.path = blob_path(entry, layer, "model layer");
  std::error_code fault;
  const bool regular = fs::is_regular_file(model.path, fault);
  const std::uint64_t size = regular ? fs::file_size(model.path, fault) : 0;
  if (!regular || fault) {
    refuse(entry, fmt::format("its weights '{}' are missing or cannot be read", printable(model.path.string(), 512)),
           ErrorKind::not_found);
  }
  const auto announced = layer.find("size");
  if (announced != layer.end() && announced->is_number_unsigned() && announced->get<std::uint64_t>() != size) {
    refuse(entry, fmt::format("its weights have {} bytes instead of {}", size, announced->get<std::uint64_t>()));
  }
  model.bytes = size;
}

}  // namespace

std::optional<OllamaName> OllamaName::parse(std::string_view text) {
  if (const auto scheme = text.find("://"); scheme != std::string_view::npos) text.remove_prefix(scheme + 3);
  OllamaName name;
  const auto last_slash = text.rfind('/');
  const auto colon = text.rfind(':');
  if (colon != std::string_view::npos && (last_slash == std::string_view::npos || colon > last_slash)) {
    name.tag = text.substr(colon + 1);
    if (!is_model_or_tag(name.tag)) return std::nullopt;
    text = text.substr(0, colon);
  }
  if (last_slash != std::string_view::npos) {
    std::string_view rest = text.substr(0, last_slash);
    text = text.substr(last_slash + 1);
    if (const auto slash = rest.rfind('/'); slash != std::string_view::npos) {
      name.host = rest.substr(0, slash);
      if (!is_host(name.host)) return std::nullopt;
      rest = rest.substr(slash + 1);
    }
    name.space = rest;
    if (!is_space(name.space)) return std::nullopt;
  }
  name.model = text;
  if (!is_model_or_tag(name.model)) return std::nullopt;
  return name;
}

std::string OllamaName::full() const { return host + "/" + space + "/" + model + ":" + tag; }

std::vector<OllamaEntry> list_ollama(const std::vector<fs::path>& roots) {
  std::map<std::string, OllamaEntry> by_name;
  for (const fs::path& root : roots) {
    std::vector<OllamaEntry> found;
    list_root(root, found);
    for (OllamaEntry& entry : found) {
      std::string full = lower_case(entry.name.full());
      by_name.emplace(std::move(full), std::move(entry));
    }
  }
  std::map<std::string, int> uses;
  for (const auto& [full, entry] : by_name) ++uses[lower_case(without_host(entry.name))];
  std::vector<OllamaEntry> entries;
  for (auto& [full, entry] : by_name) {
    const bool alone = uses[lower_case(without_host(entry.name))] == 1;
    entry.display = alone ? without_host(entry.name) : entry.name.full();
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.display < b.display; });
  return entries;
}

std::optional<OllamaEntry> find_ollama(const std::vector<OllamaEntry>& entries, const OllamaName& name) {
  const std::vector<const OllamaEntry*> matches = meant_by(name, entries);
  if (matches.empty()) return std::nullopt;
  if (matches.size() == 1) return *matches[0];
  std::string names;
  for (const OllamaEntry* match : matches) names += (names.empty() ? "" : ", ") + match->display;
  fail(ErrorKind::usage, "the name means several models of the Ollama store; say which of them: {}", names);
}

std::vector<std::string> ollama_spellings(const std::vector<OllamaEntry>& entries, const OllamaName& name) {
  std::vector<std::string> spellings;
  for (const OllamaEntry* entry : meant_by(name, entries)) {
    std::string text = name.host.empty() ? "" : entry->name.host + "/";
    if (!name.space.empty()) text += entry->name.space + "/";
    text += entry->name.model;
    if (!name.tag.empty()) text += ":" + entry->name.tag;
    spellings.push_back(std::move(text));
  }
  return spellings;
}

OllamaModel read_ollama(const OllamaEntry& entry) {
  const Json manifest =
      parse_object(entry, read_small(entry, entry.manifest, kMostManifestBytes, "manifest"), "manifest");
  const auto layers = layers_of(entry, manifest);
  OllamaModel model;
  Json config = Json::object();
  if (const auto it = manifest.find("config"); it != manifest.end() && it->is_object()) {
    const fs::path path = blob_path(entry, *it, "configuration");
    config = parse_object(entry, read_small(entry, path, kMostLayerBytes, "configuration"), "configuration");
  }
  model.parameters = text_of(config, "model_type");
  model.quantisation = text_of(config, "file_type");

  const auto weights = layers.find("model");
  if (weights == layers.end()) {
    if (!text_of(config, "remote_host").empty() || !text_of(config, "remote_model").empty()) {
      refuse(entry, "it runs on a remote server and has no weights on this machine", ErrorKind::unsupported);
    }
    if (text_of(config, "model_format") == "safetensors" || layers.count("tensor") != 0) {
      refuse(entry, "its weights are in the safetensors format; only GGUF models can be run", ErrorKind::unsupported);
    }
    refuse(entry, "its manifest has no layer with weights");
  }
  const std::string format = text_of(config, "model_format");
  if (!format.empty() && format != "gguf") {
    refuse(entry, fmt::format("its weights are in the format '{}'; only GGUF models can be run", printable(format)),
           ErrorKind::unsupported);
  }
  read_model_layer(entry, weights->second, model);

  const auto read_layer = [&](const char* kind) -> std::optional<std::string> {
    const auto it = layers.find(kind);
    if (it == layers.end()) return std::nullopt;
    const std::string what = fmt::format("{} layer", kind);
    return read_small(entry, blob_path(entry, it->second, what), kMostLayerBytes, what);
  };
  model.template_text = read_layer("template");
  if (!model.template_text) model.template_text = read_layer("prompt");
  model.system = read_layer("system");
  model.params = read_layer("params");
  model.license = read_layer("license").value_or("");
  if (model.params) parse_object(entry, *model.params, "params layer");
  return model;
}

}  // namespace quarrel
