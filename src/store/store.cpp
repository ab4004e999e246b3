#include "store/store.h"

#include <algorithm>
#include <system_error>

#include "base/environment.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "store/model_description.h"
#include "store/ollama_store.h"
#include "store/own_store.h"
#include "store/pull.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kServiceHome = "/usr/share/ollama";

// As Ollama reads it: white space around it falls away, then quotes.
std::string trimmed(std::string_view text) {
  const auto strip = [&](std::string_view unwanted) {
    const auto first = text.find_first_not_of(unwanted);
    text = first == std::string_view::npos ? std::string_view() : text.substr(first);
    const auto last = text.find_last_not_of(unwanted);
    text = text.substr(0, last == std::string_view::npos ? 0 : last + 1);
  };
  strip(" \t\r\n");
  strip("\"'");
  return std::string(text);
}

// A directory is a likely mistake; say what lies in it.
[[noreturn]] void refuse_directory(const std::string& name) {
  std::string files;
  auto found = gguf_files(name);
  std::erase_if(found, is_gone);
  for (std::size_t i = 0; i < std::min<std::size_t>(found.size(), 5); ++i) {
    files += fmt::format("{}'{}'", i == 0 ? "" : ", ", printable(found[i].string(), 512));
  }
  if (found.empty()) fail(ErrorKind::usage, "'{}' is a folder without GGUF files, not a model", printable(name, 512));
  fail(ErrorKind::usage, "'{}' is a folder, not a model; it contains {}{}", printable(name, 512), files,
       found.size() > 5 ? " and others" : "");
}

// Everything a name could have meant. Ollama's default tag may be left out, so both spellings are known.
std::vector<std::string> known_names(const std::vector<StoredFile>& files, const std::vector<OllamaEntry>& entries) {
  constexpr std::string_view kLatest = ":latest";
  std::vector<std::string> names;
  names.reserve(files.size() + entries.size() + pullables().size());
  for (const StoredFile& file : files) names.push_back(file.name);
  for (const OllamaEntry& entry : entries) {
    names.push_back(entry.display);
    if (entry.display.ends_with(kLatest)) names.back().resize(entry.display.size() - kLatest.size());
  }
  for (const Pullable& row : pullables()) names.emplace_back(row.name);
  return names;
}

[[noreturn]] void refuse_unknown(const std::string& name, const StorePaths& paths,
                                 const std::vector<OllamaEntry>& entries) {
  if (find_pullable(name) != nullptr) {
    fail(ErrorKind::not_found, "the model '{}' is not here yet: run `quarrel pull {}`", name, name);
  }
  const auto names = known_names(stored_files(paths.quarrel), entries);
  std::string meant;
  for (const std::string& near : nearest(name, names)) {
    meant += fmt::format("{}'{}'", meant.empty() ? "" : ", ", printable(near));
  }
  if (!meant.empty()) meant = "; did you mean " + meant + "?";
  fail(ErrorKind::not_found,
       "there is no file and no model '{}'{} (`quarrel list` shows the models on this machine, `quarrel pull {}` "
       "fetches a small one)",
       printable(name, 512), meant, pullables().front().name);
}

void describe(const fs::path& path, ListedModel& model) {
  ModelDescription said = describe_file(path);
  model.bytes = said.bytes;
  model.parameters = std::move(said.parameters);
  model.quantisation = std::move(said.quantisation);
  model.problem = std::move(said.problem);
}

// A model of Quarrel's own store.
ListedModel listed_file(const StoredFile& file, const fs::path& folder, const ModelStore::Verify& verify) {
  ListedModel model{.name = file.name, .modified = modified_time(file.path())};
  if (const Pullable* row = file_row(file.path())) model.alias = row->name;
  if (auto lost = lost_file(file)) {
    model.problem = std::move(*lost);
    model.usable = false;
    return model;
  }
  describe(file.path(), model);
  try {
    read_settings(settings_path(folder, file.name));
  } catch (const Error& error) {
    model.problem = error.what();
  }
  model.usable = model.problem.empty();
  if (auto change = verify ? verify(file) : change_of(file)) model.problem = std::move(*change);
  return model;
}

}  // namespace

StorePaths StorePaths::from(const Lookup& lookup) {
  const auto folder = [&](std::string_view name) { return trimmed(lookup(name).value_or("")); };
  const fs::path home = folder("HOME");
  StorePaths paths;
  if (const auto own = folder("QUARREL_MODELS"); !own.empty()) {
    paths.quarrel = own;
  } else if (const fs::path data = folder("XDG_DATA_HOME"); data.is_absolute()) {
    paths.quarrel = data / "quarrel" / "models";
  } else if (!home.empty()) {
    paths.quarrel = home / ".local" / "share" / "quarrel" / "models";
  }
  if (const auto theirs = folder("OLLAMA_MODELS"); !theirs.empty()) {
    paths.ollama = {theirs};
    return paths;
  }
  if (!home.empty()) paths.ollama.push_back(home / ".ollama" / "models");
  paths.ollama.push_back(fs::path(kServiceHome) / ".ollama" / "models");
  return paths;
}

StorePaths StorePaths::from_environment() { return from(environment); }

std::string_view place_name(ModelPlace place) noexcept {
  switch (place) {
    case ModelPlace::file: return "file";
    case ModelPlace::quarrel: return "quarrel";
    case ModelPlace::ollama: return "ollama";
  }
  return "unknown";
}

// A name of Quarrel's own store, else of Ollama's.
std::optional<ResolvedModel> ModelStore::find_named(const std::string& name,
                                                    const std::vector<OllamaEntry>& entries) const {
  if (auto found = find_stored(paths_.quarrel, name)) {
    if (const auto lost = lost_file(*found)) {
      fail(ErrorKind::not_found, "the model '{}' cannot be used: {}", printable(found->name, 512), *lost);
    }
    StoredSettings settings = read_settings(settings_path(paths_.quarrel, found->name));
    return ResolvedModel{found->path(),
                         std::move(found->name),
                         ModelPlace::quarrel,
                         std::move(settings.system),
                         std::move(settings.template_text),
                         std::move(settings.params),
                         std::move(settings.license)};
  }
  const auto parsed = OllamaName::parse(name);
  const auto entry = parsed ? find_ollama(entries, *parsed) : std::nullopt;
  if (!entry) return std::nullopt;
  OllamaModel model = read_ollama(*entry);
  return ResolvedModel{model.path,
                       entry->display,
                       ModelPlace::ollama,
                       std::move(model.system),
                       std::move(model.template_text),
                       std::move(model.params),
                       std::move(model.license)};
}

ResolvedModel ModelStore::resolve(const std::string& name) const {
  if (name.empty()) fail(ErrorKind::usage, "no model given");
  if (name.find('\0') != std::string::npos) fail(ErrorKind::usage, "a model's name must not hold a zero byte");
  const fs::path path = name;
  std::error_code fault;
  const fs::file_status status = fs::status(path, fault);
  if (fs::is_regular_file(status)) return {path, path.stem().string(), ModelPlace::file, {}, {}, {}};
  const bool named_like_path = name[0] == '/' || name[0] == '.' || name.ends_with(kModelExtension);
  if (fs::is_directory(status) && named_like_path) refuse_directory(name);

  const auto entries = list_ollama(paths_.ollama);
  if (auto found = find_named(name, entries)) return std::move(*found);
  if (fs::is_directory(status)) refuse_directory(name);
  if (fs::exists(status)) fail(ErrorKind::usage, "'{}' is not a regular file", printable(name, 512));
  refuse_unknown(name, paths_, entries);
}

ResolvedModel ModelStore::resolve_name(const std::string& name) const {
  const auto entries = list_ollama(paths_.ollama);
  if (auto found = find_named(name, entries)) return std::move(*found);
  refuse_unknown(name, paths_, entries);
}

std::vector<ListedModel> ModelStore::list(const Verify& verify) const {
  std::vector<ListedModel> models;
  for (const StoredFile& file : stored_files(paths_.quarrel)) {
    models.push_back(listed_file(file, paths_.quarrel, verify));
  }
  for (const OllamaEntry& entry : list_ollama(paths_.ollama)) {
    ListedModel model{.name = entry.display, .place = ModelPlace::ollama, .modified = modified_time(entry.manifest)};
    try {
      const OllamaModel found = read_ollama(entry);
      model.bytes = found.bytes;
      model.parameters = found.parameters;
      model.quantisation = found.quantisation;
    } catch (const Error& error) {
      model.problem = error.what();
      model.usable = false;
    }
    models.push_back(std::move(model));
  }
  return models;
}

}  // namespace quarrel
