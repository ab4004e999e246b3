#include "ingest/folder_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/printable.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

// Links to files are followed, links to folders are not: they may lead in a circle.
std::vector<fs::path> files_below(const fs::path& folder, std::uint64_t& bytes) {
  std::vector<fs::path> files;
  try {
    for (fs::recursive_directory_iterator entry(folder); entry != fs::recursive_directory_iterator(); ++entry) {
      if (is_hidden(entry->path())) {
        if (entry->is_directory()) entry.disable_recursion_pending();
      } else if (std::error_code error; entry->is_regular_file(error) && !error) {
        bytes += entry->file_size(error);
        files.push_back(entry->path().lexically_relative(folder));
      }
    }
  } catch (const fs::filesystem_error& error) {
    fail(ErrorKind::io, "cannot look into {}: {}", printable(error.path1().string()), error.code().message());
  }
  std::ranges::sort(files, {}, [](const fs::path& path) { return path.generic_string(); });
  return files;
}

}  // namespace

FolderSource::FolderSource(fs::path folder, FolderSourceOptions options, CountTokens count, UnusableText unusable)
    : folder_(std::move(folder)), options_(options), count_(std::move(count)), unusable_(std::move(unusable)) {
  std::error_code error;
  const fs::file_status status = fs::status(folder_, error);
  const std::string name = printable(folder_.string());
  if (!fs::exists(status)) fail(ErrorKind::not_found, "there is no folder '{}'", name);
  if (!fs::is_directory(status)) fail(ErrorKind::usage, "'{}' is not a folder", name);
  rewind();
}

bool FolderSource::rewind() {
  counts_ = {};
  files_ = files_below(folder_, counts_.total_bytes);
  next_file_ = 0;
  text_.clear();
  chunks_.clear();
  next_chunk_ = 0;
  return true;
}

void FolderSource::refuse(const std::string& name, const std::string& why) {
  ++counts_.unusable;
  unusable_(fmt::format("{}: {}", printable(name), why));
}

// The next file that is a text, cut; false: there is none.
bool FolderSource::open_next() {
  while (next_file_ < files_.size()) {
    const fs::path& path = files_[next_file_++];
    source_ = path.generic_string();
    const Descriptor file(::open((folder_ / path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status{};
    if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
      refuse(source_, fmt::format("it cannot be opened: {}", std::generic_category().message(errno)));
      continue;
    }
    counts_.bytes += static_cast<std::uint64_t>(status.st_size);
    if (static_cast<std::uint64_t>(status.st_size) > options_.largest_file) {
      refuse(source_, fmt::format("it is larger than {} bytes", options_.largest_file));
      continue;
    }
    text_ = read_all(file.get(), printable(source_), options_.largest_file);
    if (!is_utf8(source_)) source_ = printable(source_, source_.size() * 4);
    if (text_.find('\0') != std::string::npos || !is_utf8(text_) || is_blank(text_)) {
      ++counts_.blank;
      continue;
    }
    chunks_ = cut_into_chunks(text_, options_.chunks, count_);
    next_chunk_ = 0;
    return true;
  }
  return false;
}

bool FolderSource::next(TextRecord& record) {
  Chunk chunk;
  do {
    while (next_chunk_ == chunks_.size()) {
      if (!open_next()) return false;
    }
    chunk = chunks_[next_chunk_++];
  } while (is_blank(std::string_view(text_).substr(chunk.begin, chunk.end - chunk.begin)));
  record = {.text = text_.substr(chunk.begin, chunk.end - chunk.begin),
            .source = source_,
            .columns = std::vector<std::string>(options_.columns),
            .position = fmt::format("{{\"offset\":{},\"bytes\":{}}}", chunk.begin, chunk.end - chunk.begin),
            .place = fmt::format("{}, offset {}", printable(source_), chunk.begin)};
  ++counts_.texts;
  return true;
}

}  // namespace quarrel
