// Reads the model store that Ollama keeps: which models are there, and what belongs to one of them. Nothing is written.
// Called by ModelStore. What the store's files say is checked before use: a digest only becomes part of a path when it
// is 64 hexadecimal digits, and a user's name is compared with names found on disk, never joined into a path.
// Stateless between calls: any thread may call.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quarrel {

// host/namespace/model:tag. Parts that a user left out are empty.
struct OllamaName {
  std::string host;
  std::string space;
  std::string model;
  std::string tag;

  // Empty when the text cannot be such a name.
  static std::optional<OllamaName> parse(std::string_view text);
  std::string full() const;
};

// A manifest's place in the store.
struct OllamaEntry {
  OllamaName name;      // complete
  std::string display;  // the shortest name that means this entry alone
  std::filesystem::path root;
  std::filesystem::path manifest;
};

// What a manifest says, with the small layers read.
struct OllamaModel {
  std::filesystem::path path;  // of the GGUF file
  std::uint64_t bytes = 0;
  std::string parameters;    // "7B"; empty if the store does not say
  std::string quantisation;  // "Q4_0"; empty if the store does not say
  std::optional<std::string> template_text;
  std::optional<std::string> system;
  std::optional<std::string> params;  // the text of a JSON object
  std::string license;
};

// All models below the roots, sorted by name; an earlier root hides the same name in a later one. A root that is absent
// or may not be read has none.
std::vector<OllamaEntry> list_ollama(const std::vector<std::filesystem::path>& roots);

// The entry that `name` means, letter case aside: the default tag is latest, the default namespace library, and a name
// without a host matches any. Empty when there is none; throws Error(usage) when there are several.
std::optional<OllamaEntry> find_ollama(const std::vector<OllamaEntry>& entries, const OllamaName& name);

// How the store spells `name`, once for each entry that it means: with the parts that it has and no others.
std::vector<std::string> ollama_spellings(const std::vector<OllamaEntry>& entries, const OllamaName& name);

// Throws Error: bad_file for a damaged manifest or blob, not_found for an absent one, unsupported for a model that is
// not a GGUF file on this machine.
OllamaModel read_ollama(const OllamaEntry& entry);

}  // namespace quarrel
