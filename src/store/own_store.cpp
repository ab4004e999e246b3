#include "store/own_store.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <system_error>

#include "base/error.h"
#include "base/lower_case.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "store/stored_settings.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFiles = 10'000;
// A d in the pattern stands for a digit.
constexpr std::string_view kPartPattern = "-ddddd-of-ddddd";
constexpr int kMostLinks = 40;      // that lead to one another, as for the system itself
constexpr int kVerifyAttempts = 3;  // at a file that is replaced each time while it is read

struct PartNumber {
  std::size_t number = 0;  // from 1 on
  std::size_t count = 0;
};

// "-00002-of-00003" at the end of a name. A number that cannot be makes it an ordinary name, as for GgufFile.
std::optional<PartNumber> part_number(std::string_view stem) {
  if (stem.size() <= kPartPattern.size()) return std::nullopt;
  const std::string_view tail = stem.substr(stem.size() - kPartPattern.size());
  for (std::size_t i = 0; i < kPartPattern.size(); ++i) {
    const bool fits = kPartPattern[i] == 'd' ? tail[i] >= '0' && tail[i] <= '9' : tail[i] == kPartPattern[i];
    if (!fits) return std::nullopt;
  }
  PartNumber part;
  std::from_chars(tail.data() + 1, tail.data() + 6, part.number);
  std::from_chars(tail.data() + 10, tail.data() + 15, part.count);
  if (part.number == 0 || part.number > part.count) return std::nullopt;
  return part;
}

// What `file_stem` made a file's name of.
std::string model_name(std::string_view stem) {
  std::string name;
  for (std::size_t i = 0; i < stem.size(); ++i) {
    const std::string_view code = stem.substr(i, 3);
    if (code == "%2F" || code == "%25") {
      name.push_back(code == "%2F" ? '/' : '%');
      i += 2;
    } else {
      name.push_back(stem[i]);
    }
  }
  return name;
}

// What a file of the store is called. A name of the table means what `pull` gets and no other file: one of that name is
// called as it is spelled, with the extension.
std::string stored_name(std::string_view stem, const fs::path& path) {
  std::string name = model_name(stem);
  return find_pullable(name) == nullptr ? name : path.filename().string();
}

std::string shown(const fs::path& path) { return printable(path.string(), 512); }

// The row of the table whose model has this digest: one that was given a further name.
const Pullable* origin(const fs::path& folder, const std::string& digest) {
  for (const Pullable& row : pullables()) {
    const fs::path file = folder / row.file;
    if (digest == (row.converted ? stamp_digest(read_stamp(file)) : std::string(row.member_sha256))) return &row;
  }
  return nullptr;
}

// Where a link leads, by way of others too.
fs::path link_target(fs::path path) {
  std::error_code fault;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(path, fault)); ++i) {
    path = path.parent_path() / fs::read_symlink(path, fault);
  }
  return path;
}

// A failure is no error: see write_stamp.
void write_stamp_line(const fs::path& model, const std::string& line) {
  try {
    OutputFile file(stamp_path(model));
    file.write(std::as_bytes(std::span(line)));
    file.commit();
  } catch (const Error&) {
  }
}

// The digest that a file should have and does not; nothing where it has it, or nobody knows which. To read a large file
// takes minutes, in which a pull may put another one in its place, with a stamp of its own: what was found counts only
// if file and stamp are still what they were before.
std::optional<std::string> missed_digest(const fs::path& part, const Pullable* row, const HashProgress& progress,
                                         const std::stop_token& stop) {
  for (int attempt = 0; attempt < kVerifyAttempts; ++attempt) {
    const std::string stamp = read_stamp(part);
    std::string expected = row != nullptr && !row->converted ? std::string(row->member_sha256) : stamp_digest(stamp);
    if (expected.empty()) {
      if (!stamp.empty()) remove_stamp(part);  // one that says nothing
      return std::nullopt;
    }
    const std::string line = stamp_line(part, expected);
    const bool whole = sha256_file(part, progress, stop) == expected;
    if (stamp_line(part, expected) != line || read_stamp(part) != stamp) continue;
    if (!whole) return expected;
    if (stamp != line) write_stamp_line(part, line);
    return std::nullopt;
  }
  return std::nullopt;
}

// What helps a damaged model.
std::string remedy(const StoredFile& model, const Pullable* row, const std::string& digest) {
  if (row != nullptr) return fmt::format("run `quarrel pull {}`", row->name);
  const std::string name = printable(model.name, 512);
  const Pullable* source = origin(model.path().parent_path(), digest);
  if (source == nullptr) return fmt::format("run `quarrel rm {}`, then fetch or copy it again", name);
  return fmt::format("run `quarrel pull {0}`, `quarrel rm {1}` and `quarrel cp {0} {1}`", source->name, name);
}

}  // namespace

std::string file_stem(std::string_view name) {
  std::string stem;
  for (const char c : name) {
    if (c == '/') {
      stem += "%2F";
    } else if (c == '%') {
      stem += "%25";
    } else {
      stem.push_back(c);
    }
  }
  return stem;
}

fs::path settings_path(const fs::path& folder, std::string_view name) {
  return folder / fmt::format("{}{}", file_stem(name), kSettingsExtension);
}

std::vector<fs::path> gguf_files(const fs::path& folder) {
  std::vector<fs::path> result;
  std::error_code fault;
  for (fs::directory_iterator it(folder, fault), end; !fault && it != end; it.increment(fault)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (!name.ends_with(kModelExtension) || name[0] == '.') continue;
    if (!it->is_regular_file(ignored) && !is_gone(it->path())) continue;
    result.push_back(it->path());
    if (result.size() >= kMostFiles) break;
  }
  std::sort(result.begin(), result.end());
  return result;
}

bool is_gone(const fs::path& path) {
  std::error_code ignored;
  return fs::is_symlink(fs::symlink_status(path, ignored)) &&
         fs::status(path, ignored).type() == fs::file_type::not_found;
}

std::vector<StoredFile> stored_files(const fs::path& folder) {
  std::vector<StoredFile> result;
  if (folder.empty()) return result;
  std::map<std::string, std::size_t> split;  // by name and number of parts: where in `result`
  for (const fs::path& path : gguf_files(folder)) {
    const std::string stem = path.stem().string();
    const std::optional<PartNumber> part = part_number(stem);
    if (!part) {
      result.push_back({stored_name(stem, path), {path}});
      continue;
    }
    const std::string start = stem.substr(0, stem.size() - kPartPattern.size());
    const std::string key = fmt::format("{}/{}", start, part->count);  // no file's name holds a slash
    if (part->number == 1) {
      split[key] = result.size();
      result.push_back({stored_name(start, path), {path}});
    } else if (const auto known = split.find(key); known != split.end()) {  // sorted: the first part came before
      result[known->second].parts.push_back(path);
    }
  }
  return result;
}

bool names_a_part(std::string_view stem) { return part_number(stem).has_value(); }

std::string file_ending(std::size_t number, std::size_t count) {
  if (count == 1) return std::string(kModelExtension);
  return fmt::format("-{:05}-of-{:05}{}", number, count, kModelExtension);
}

std::vector<fs::path> parts_of(const fs::path& path) {
  const std::string stem = path.stem().string();
  const std::optional<PartNumber> part = part_number(stem);
  if (!part || part->count == 1 || path.extension().string() != kModelExtension) return {path};
  const std::string start = stem.substr(0, stem.size() - kPartPattern.size());
  std::vector<fs::path> parts;
  for (std::size_t number = 1; number <= part->count; ++number) {
    parts.push_back(path.parent_path() / (start + file_ending(number, part->count)));
  }
  return parts;
}

std::optional<StoredFile> find_stored(const fs::path& folder, const std::string& name) {
  const Pullable* row = find_pullable(name);  // which knows its file, and no model of that name
  const std::string wanted(row != nullptr ? row->file : name);
  std::vector<StoredFile> files = stored_files(folder);
  const auto spelled = [&](const auto& spelling) {
    const std::string key = spelling(wanted);
    auto found = files.end();
    if (row == nullptr) found = std::ranges::find(files, key, [&](const auto& file) { return spelling(file.name); });
    if (found != files.end()) return found;
    return std::ranges::find(files, key, [&](const auto& file) { return spelling(file.path().filename().string()); });
  };
  auto found = spelled([](std::string_view text) { return std::string(text); });
  if (found == files.end()) found = spelled([](std::string_view text) { return lower_case(text); });
  return found == files.end() ? std::nullopt : std::optional(std::move(*found));
}

const Pullable* find_pullable(std::string_view name) {
  for (const Pullable& row : pullables()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

const Pullable* file_row(const fs::path& path) {
  const std::string name = path.filename().string();
  for (const Pullable& row : pullables()) {
    if (row.file == name) return &row;
  }
  return nullptr;
}

fs::path stamp_path(const fs::path& model) {
  return model.parent_path() / fmt::format(".{}.verified", model.filename().string());
}

std::string stamp_line(const fs::path& model, std::string_view digest) {
  struct stat status{};
  if (::stat(model.c_str(), &status) != 0) return {};
  return fmt::format("{} {}.{:09} {}\n", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec, digest);
}

std::string read_stamp(const fs::path& model) {
  std::ostringstream text;
  text << std::ifstream(stamp_path(model)).rdbuf();
  return text.str();
}

std::string stamp_digest(std::string_view stamp) {
  while (stamp.ends_with('\n')) stamp.remove_suffix(1);
  const std::size_t blank = stamp.rfind(' ');
  return std::string(blank == std::string_view::npos ? std::string_view() : stamp.substr(blank + 1));
}

void write_stamp(const fs::path& model, std::string_view digest) { write_stamp_line(model, stamp_line(model, digest)); }

void carry_stamp(const fs::path& model, const fs::path& further) {
  const std::string stamp = read_stamp(model);
  if (!stamp_digest(stamp).empty()) write_stamp_line(further, stamp);
}

void remove_stamp(const fs::path& model) {
  std::error_code ignored;
  fs::remove(stamp_path(model), ignored);
}

std::optional<std::string> lost_file(const StoredFile& model) {
  const auto gone = std::ranges::find_if(model.parts, is_gone);
  if (gone == model.parts.end()) return std::nullopt;
  const Pullable* row = file_row(model.path());
  const std::string command =
      row != nullptr ? fmt::format("pull {}", row->name) : fmt::format("rm {}", printable(model.name, 512));
  return fmt::format("its file '{}' is gone: run `quarrel {}`", shown(link_target(*gone)), command);
}

std::optional<std::string> change_of(const StoredFile& model) {
  const Pullable* row = file_row(model.path());
  for (const fs::path& part : model.parts) {
    std::error_code fault;
    const auto size = fs::file_size(part, fault);
    if (fault) continue;
    const std::string stamp = read_stamp(part);
    const bool wrong_size = row != nullptr && !row->converted && size != row->member_bytes;
    const bool touched = !stamp.empty() && stamp != stamp_line(part, stamp_digest(stamp));
    if (!wrong_size && !touched) continue;
    if (row != nullptr) {
      return fmt::format("'{}' has changed since it was pulled: run `quarrel pull {}`", shown(part), row->name);
    }
    return fmt::format(
        "'{}' has changed since it was put into the store: `quarrel list --verify` says whether it is whole",
        shown(part));
  }
  return std::nullopt;
}

std::optional<std::string> verify_stored(const StoredFile& model, const HashProgress& progress,
                                         const std::stop_token& stop) {
  const Pullable* row = file_row(model.path());
  for (const fs::path& part : model.parts) {
    const std::optional<std::string> expected = missed_digest(part, row, progress, stop);
    if (!expected) continue;
    return fmt::format("'{}' is damaged, its SHA-256 is not {}: {}", shown(part), *expected,
                       remedy(model, row, *expected));
  }
  return std::nullopt;
}

}  // namespace quarrel
