// Removing models of Quarrel's own store and giving them further names.
#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/printable.h"
#include "store/own_store.h"
#include "store/store.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestName = 200;  // with a part's number and the extension still a file name

std::string shown(const fs::path& path) { return printable(path.string(), 512); }

// A name that is a file name, visible, and means nothing else.
void check_new_name(const std::string& name, const fs::path& store) {
  const auto refuse = [&](std::string_view why) {
    fail(ErrorKind::usage, "a model cannot be called '{}': {}", printable(name), why);
  };
  if (name.empty()) refuse("the name is empty");
  if (name.size() > kLongestName) refuse(fmt::format("the name is longer than {} bytes", kLongestName));
  if (name[0] == '.' || name[0] == '-') refuse("the name begins with a dot or a dash");
  const auto is_bad = [](unsigned char c) { return c < 0x20 || c == 0x7F || c == '/' || c == ':'; };
  if (std::ranges::any_of(name, is_bad)) refuse("the name holds a slash, a colon or a control character");
  if (find_pullable(name) != nullptr) refuse("that is the name of a model to be pulled");
  if (find_stored(store, name)) fail(ErrorKind::usage, "the model '{}' already exists", printable(name));
}

// A hard link where that can be, so that it does not depend on the other name; else a symbolic one.
void link_file(const fs::path& source, const fs::path& target, bool hard) {
  std::error_code fault;
  if (hard) {
    fs::create_hard_link(source, target, fault);
    if (!fault) return;
  }
  if (fault != std::errc::file_exists) fs::create_symlink(fs::absolute(source), target, fault);
  if (fault) fail(ErrorKind::io, "cannot link '{}': {}", shown(target), fault.message());
}

// The other parts of a split model beside its first one.
std::vector<fs::path> parts_of(const fs::path& first) {
  for (StoredFile& file : stored_files(first.parent_path())) {
    if (file.path().filename() == first.filename()) return std::move(file.parts);
  }
  return {first};
}

}  // namespace

std::optional<std::string> change_warning(const ResolvedModel& model) {
  return model.place == ModelPlace::quarrel ? changed_since_pull(model.path) : std::nullopt;
}

RemovedModel ModelStore::remove(const std::string& name) const {
  const auto found = name.find('/') == std::string::npos ? find_stored(paths_.quarrel, name) : std::nullopt;
  if (!found) {
    const ResolvedModel other = resolve(name);
    if (other.place == ModelPlace::ollama) {
      fail(ErrorKind::usage, "'{}' is a model of Ollama's store, which Quarrel never writes: `ollama rm` removes it",
           printable(other.name));
    }
    fail(ErrorKind::usage, "'{}' is a file and not a model of Quarrel's store", printable(name, 512));
  }
  RemovedModel result{.name = found->name};
  for (const fs::path& part : found->parts) {
    std::error_code fault;
    const bool is_link = fs::is_symlink(fs::symlink_status(part, fault));
    if (!is_link) result.bytes += fs::file_size(part, fault);
    fs::remove(stamp_path(part), fault);
    fs::remove(part, fault);
    if (fault) fail(ErrorKind::io, "cannot remove '{}': {}", shown(part), fault.message());
  }
  return result;
}

LinkedModel ModelStore::add_name(const std::string& name, const std::string& further) const {
  if (paths_.quarrel.empty()) {
    fail(ErrorKind::usage, "there is no place for a model store: set QUARREL_MODELS to a folder");
  }
  std::string given = further;
  if (given.ends_with(kModelExtension)) given.resize(given.size() - kModelExtension.size());
  check_new_name(given, paths_.quarrel);
  const ResolvedModel model = resolve(name);
  std::error_code fault;
  fs::create_directories(paths_.quarrel, fault);
  if (fault) fail(ErrorKind::io, "cannot create the model store '{}': {}", shown(paths_.quarrel), fault.message());

  const std::vector<fs::path> parts =
      model.place == ModelPlace::ollama ? std::vector{model.path} : parts_of(model.path);
  LinkedModel result{.path = {}, .settings_left = model.system || model.template_text || model.params};
  // The first part last: a split model is there once that is.
  for (std::size_t i = parts.size(); i-- > 0;) {
    const std::string number = parts.size() == 1 ? "" : fmt::format("-{:05}-of-{:05}", i + 1, parts.size());
    result.path = paths_.quarrel / fmt::format("{}{}{}", given, number, kModelExtension);
    link_file(parts[i], result.path, model.place == ModelPlace::quarrel);
  }
  return result;
}

}  // namespace quarrel
