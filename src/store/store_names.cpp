// Removing models of Quarrel's own store and giving them further names.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <system_error>

#include "base/error.h"
#include "base/lower_case.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "gguf/file.h"
#include "store/model_description.h"
#include "store/ollama_store.h"
#include "store/own_store.h"
#include "store/store.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestName = 200;  // with a part's number and the extension still a file name

std::string shown(const fs::path& path) { return printable(path.string(), 512); }

// A name that is a file name, visible, and means nothing else. Those with a slash or a colon are Ollama's.
void check_name(const std::string& name) {
  const auto refuse = [&](std::string_view why) {
    fail(ErrorKind::usage, "a model cannot have the name '{}': {}", printable(name), why);
  };
  if (name.empty()) refuse("the name is empty");
  if (name.size() > kLongestName) refuse(fmt::format("the name is longer than {} bytes", kLongestName));
  if (name[0] == '.' || name[0] == '-') refuse("the name begins with a dot or a dash");
  const auto is_bad = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  if (std::ranges::any_of(name, is_bad)) refuse("the name holds a control character");
  if (name.find_first_of("/:") != std::string::npos && !OllamaName::parse(name)) {
    refuse("with a slash or a colon it has to be of the form namespace/model:tag, in letters, digits, -, _ and .");
  }
  if (name.find("://") != std::string::npos) refuse("that is an address");
  const std::string without_extension = ModelStore::further_name(name);
  if (names_a_part(without_extension)) refuse("it ends like the name of a part of another model");
  if (find_pullable(without_extension) != nullptr) refuse("that is a name reserved for `quarrel pull`");
}

void check_new_name(const std::string& name, const fs::path& store) {
  check_name(name);
  const std::optional<StoredFile> there = find_stored(store, name);
  if (!there) return;
  if (!lost_file(*there)) fail(ErrorKind::usage, "the model '{}' already exists", printable(name));
  // Where its file was is nothing for a server's clients.
  fail(ErrorKind::usage, "the model '{}' already exists, but its file is gone: run `quarrel rm {}` first",
       printable(name), printable(there->name, 512));
}

constexpr int kAttempts = 16;

// A hard link where that can be, so that it does not depend on the other name; else a symbolic one. It takes the place
// of what was there at once.
void link_file(const fs::path& source, const fs::path& target, bool hard) {
  const fs::path pending = target.parent_path() / fmt::format(".{}.link", target.filename().string());
  std::error_code fault;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    fs::remove(pending, fault);
    fault.clear();
    if (hard) fs::create_hard_link(source, pending, fault);
    if (!hard || fault) {
      fault.clear();
      fs::create_symlink(fs::absolute(source), pending, fault);
    }
    if (!fault) fs::rename(pending, target, fault);
    // Somebody else links to the same name at the same time: one of both comes first.
    if (fault != std::errc::file_exists && fault != std::errc::no_such_file_or_directory) break;
  }
  if (fault) {
    const std::string why = fault.message();
    fs::remove(pending, fault);
    fail(ErrorKind::io, "cannot link '{}': {}", shown(target), why);
  }
  fs::remove(pending, fault);  // two names of one file: then nothing was renamed
}

// What is known of a file is known of its further name.
void copy_stamp(const fs::path& source, const fs::path& target) {
  if (const std::string digest = known_digest(source); !digest.empty()) {
    write_stamp(target, digest);
  } else {
    carry_stamp(source, target);
  }
}

// All files of a model that is to be linked. Throws Error as GgufFile::open does: what is no model, or lacks a part,
// gets no name.
std::vector<fs::path> whole_model(const fs::path& path) {
  GgufFile::open(path);
  return parts_of(path);
}

// The path of the first part.
fs::path link_parts(const std::vector<fs::path>& parts, bool hard, const fs::path& store, const std::string& name) {
  fs::path path;
  // The first part last: a split model is there once that is.
  for (std::size_t i = parts.size(); i-- > 0;) {
    path = store / (file_stem(name) + file_ending(i + 1, parts.size()));
    remove_stamp(path);
    link_file(parts[i], path, hard);
    copy_stamp(parts[i], path);
  }
  return path;
}

// The file of a model that another has taken the place of, under a name of its own: found by its name, it would still
// be there.
void remove_replaced(const fs::path& old, const fs::path& made) {
  if (old == made) return;
  remove_stamp(old);
  std::error_code fault;
  fs::remove(old, fault);
  if (fault) fail(ErrorKind::io, "cannot remove '{}', which was replaced: {}", shown(old), fault.message());
}

[[noreturn]] void refuse_absent(const std::string& name, const fs::path& store) {
  std::vector<std::string> names;
  for (const StoredFile& file : stored_files(store)) names.push_back(file.name);
  const std::vector<std::string> near = nearest(name, names, 1);
  fail(ErrorKind::not_found, "there is no model '{}' in Quarrel's store{}", printable(name, 512),
       near.empty() ? "" : fmt::format("; did you mean '{}'?", printable(near.front())));
}

}  // namespace

std::optional<std::string> change_warning(const ResolvedModel& model) {
  if (model.place != ModelPlace::quarrel) return std::nullopt;
  return change_of({.name = model.name, .parts = parts_of(model.path)});
}

RemovedModel ModelStore::remove(const std::string& name) const {
  const auto found = find_stored(paths_.quarrel, name);
  if (!found) {
    std::error_code ignored;
    if (fs::is_regular_file(name, ignored)) {
      fail(ErrorKind::usage, "'{}' is a file and not a model of Quarrel's store", printable(name, 512));
    }
    if (const auto other = find_named(name, list_ollama(paths_.ollama))) {
      fail(ErrorKind::usage, "'{}' is a model of Ollama's store, which Quarrel never writes: `ollama rm` removes it",
           printable(other->name));
    }
    refuse_absent(name, paths_.quarrel);
  }
  RemovedModel result{.name = found->name, .was_lost = lost_file(*found).has_value()};
  for (const fs::path& part : found->parts) {
    std::error_code fault;
    const bool is_link = fs::is_symlink(fs::symlink_status(part, fault));
    if (!is_link && fs::hard_link_count(part, fault) == 1) result.bytes += fs::file_size(part, fault);
    remove_stamp(part);
    fs::remove(part, fault);
    if (fault) fail(ErrorKind::io, "cannot remove '{}': {}", shown(part), fault.message());
  }
  write_settings(settings_path(paths_.quarrel, found->name), {});
  return result;
}

LinkedModel ModelStore::add_name(const std::string& name, const std::string& further) const {
  require_folder();
  check_new_name(further_name(further), paths_.quarrel);
  return add_name(resolve(name), further);
}

LinkedModel ModelStore::add_name(const ResolvedModel& model, const std::string& further) const {
  require_folder();
  const std::string given = further_name(further);
  check_new_name(given, paths_.quarrel);
  const std::vector<fs::path> parts = whole_model(model.path);
  make_folder();
  write_settings(settings_path(paths_.quarrel, given), kept_settings(model));
  return {.path = link_parts(parts, model.place == ModelPlace::quarrel, paths_.quarrel, given),
          .template_left = model.place == ModelPlace::ollama && model.template_text};
}

std::filesystem::path ModelStore::create(const std::string& name, const ResolvedModel& from,
                                         const StoredSettings& settings) const {
  const auto [given, replaced] = to_make(name);
  const std::vector<fs::path> parts = whole_model(from.path);
  write_settings(settings_path(paths_.quarrel, given), settings);
  std::error_code fault;
  if (replaced && parts.size() == 1 && fs::equivalent(*replaced, from.path, fault)) return *replaced;
  fs::path made = link_parts(parts, from.place == ModelPlace::quarrel, paths_.quarrel, given);
  if (replaced) remove_replaced(*replaced, made);
  return made;
}

std::filesystem::path ModelStore::adopt(const std::string& name, const fs::path& file, const std::string& digest,
                                        const StoredSettings& settings) const {
  const auto [given, replaced] = to_make(name);
  write_settings(settings_path(paths_.quarrel, given), settings);
  const fs::path target = paths_.quarrel / fmt::format("{}{}", file_stem(given), kModelExtension);
  remove_stamp(target);
  std::error_code fault;
  fs::rename(file, target, fault);
  if (fault) fail(ErrorKind::io, "cannot put '{}' into the model store: {}", shown(target), fault.message());
  write_stamp(target, digest);
  if (replaced) remove_replaced(*replaced, target);
  return target;
}

ModelStore::ModelToMake ModelStore::to_make(const std::string& name) const {
  require_folder();
  check_name(name);
  make_folder();
  std::optional<StoredFile> before = find_stored(paths_.quarrel, name);
  if (before && before->name != name) {  // it was called by its file's name; by its own another one may be meant
    check_name(before->name);
    before = find_stored(paths_.quarrel, before->name);
  }
  if (!before) return {.name = name, .replaced = {}};
  if (before->parts.size() > 1) {
    fail(ErrorKind::usage, "the model '{}' exists in several parts: remove it first", printable(before->name));
  }
  return {.name = before->name, .replaced = before->path()};
}

std::vector<std::string> ModelStore::replaced_names(const std::string& name) const {
  std::vector<std::string> names;
  const std::optional<StoredFile> before = find_stored(paths_.quarrel, name);
  if (before) names.push_back(before->name);
  const fs::path file =
      before ? before->path() : paths_.quarrel / fmt::format("{}{}", file_stem(name), kModelExtension);
  for (const Pullable& row : pullables()) {
    if (lower_case(row.file) != lower_case(file.filename().string())) continue;
    const std::optional<StoredFile> pulled = find_stored(paths_.quarrel, std::string(row.name));
    if (!pulled || pulled->path() == file) names.emplace_back(row.name);
  }
  if (const auto parsed = OllamaName::parse(name)) {
    std::ranges::move(ollama_spellings(list_ollama(paths_.ollama), *parsed), std::back_inserter(names));
  }
  return names;
}

std::string ModelStore::further_name(std::string further) {
  // All of them: what is allowed under a name must not become another name when it is read once more.
  while (further.ends_with(kModelExtension)) further.resize(further.size() - kModelExtension.size());
  return further;
}

void ModelStore::check_model_name(const std::string& name) { check_name(name); }

void ModelStore::require_folder() const {
  if (!paths_.quarrel.empty()) return;
  fail(ErrorKind::usage, "there is no place for a model store: set QUARREL_MODELS to a folder");
}

void ModelStore::make_folder() const {
  std::error_code fault;
  fs::create_directories(paths_.quarrel, fault);
  if (fault) fail(ErrorKind::io, "cannot create the model store '{}': {}", shown(paths_.quarrel), fault.message());
}

StoredSettings kept_settings(const ResolvedModel& model) {
  StoredSettings settings{.system = model.system, .params = model.params, .license = model.license};
  if (model.place == ModelPlace::quarrel) settings.template_text = model.template_text;
  return settings;
}

}  // namespace quarrel
