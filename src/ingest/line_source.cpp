#include "ingest/line_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/printable.h"

namespace quarrel {
namespace {

constexpr std::size_t kReadAtOnce = std::size_t{64} << 10;
constexpr std::size_t kDeepestJson = 64;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

int open_lines(const std::string& path) {
  if (path == "-") return ::dup(STDIN_FILENO);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor >= 0) return descriptor;
  const int error = errno;
  if (error == ENOENT) fail(ErrorKind::not_found, "there is no file '{}'", printable(path));
  fail(ErrorKind::io, "cannot open '{}': {}", printable(path), std::generic_category().message(error));
}

std::string source_name(const std::string& path) {
  if (path == "-") return "-";
  const std::string name = std::filesystem::path(path).filename().string();
  return is_utf8(name) ? name : printable(name);
}

// A member as a column has it: texts as they are, everything else as JSON writes it.
std::string column_text(const nlohmann::ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : value.is_null() ? std::string() : value.dump();
}

// Of the library's sentence what follows the place, which would count from the line's beginning.
std::string reason_of(std::string_view message) {
  const std::size_t column = message.find("column ");
  const std::size_t colon = column == std::string_view::npos ? column : message.find(": ", column);
  return printable(colon == std::string_view::npos ? message : message.substr(colon + 2), 120);
}

std::string wrong_with(const JsonFault& fault) {
  switch (fault.flaw) {
    case JsonFlaw::nesting: return fmt::format("it nests deeper than {} levels", kDeepestJson);
    case JsonFlaw::syntax: return fmt::format("it is not valid JSON: column {}: {}", fault.at, reason_of(fault.detail));
    default: return fmt::format("it is not usable JSON: {}", printable(fault.detail, 120));
  }
}

}  // namespace

LineSource::LineSource(const std::string& path, LineSourceOptions options, UnusableText unusable)
    : options_(std::move(options)),
      unusable_(std::move(unusable)),
      name_(source_name(path)),
      file_(open_lines(path)),
      rewinds_(::lseek(file_.get(), 0, SEEK_CUR) == 0) {
  struct stat status{};
  if (::fstat(file_.get(), &status) != 0) {
    fail(ErrorKind::io, "cannot read {}: {}", printable(path), std::generic_category().message(errno));
  }
  if (S_ISDIR(status.st_mode)) fail(ErrorKind::usage, "cannot read '{}': it is a folder", printable(path));
  if (S_ISREG(status.st_mode)) counts_.total_bytes = static_cast<std::uint64_t>(status.st_size);
}

bool LineSource::rewind() {
  if (!rewinds_ || ::lseek(file_.get(), 0, SEEK_SET) != 0) return false;
  buffer_.clear();
  read_ = 0;
  number_ = 0;
  ids_.clear();
  counts_ = {.total_bytes = counts_.total_bytes};
  return true;
}

std::string LineSource::place() const { return fmt::format("{}, line {}", printable(name_), number_); }

// Gives false, so that the next line is looked at.
bool LineSource::refuse(const std::string& why) {
  ++counts_.unusable;
  unusable_(fmt::format("{}: {}", place(), why));
  return false;
}

bool LineSource::fill() {
  buffer_.resize(kReadAtOnce);
  read_ = 0;
  const ssize_t got = ::read(file_.get(), buffer_.data(), buffer_.size());
  if (got < 0) {
    const int error = errno;
    if (error == EINTR) fail(ErrorKind::cancelled, "reading {} was interrupted", printable(name_));
    fail(ErrorKind::io, "cannot read {}: {}", printable(name_), std::generic_category().message(error));
  }
  buffer_.resize(static_cast<std::size_t>(got));
  return got > 0;
}

// What is beyond the limit is passed over, and never in memory.
LineSource::Line LineSource::read_line() {
  line_.clear();
  bool any = false;
  bool too_long = false;
  for (;;) {
    if (read_ == buffer_.size() && !fill()) break;
    any = true;
    const std::string_view rest = std::string_view(buffer_).substr(read_);
    const std::size_t end = rest.find('\n');
    const std::string_view part = rest.substr(0, end);
    too_long = too_long || line_.size() + part.size() > options_.longest_line;
    if (!too_long) line_ += part;
    const std::size_t taken = part.size() + (end == std::string_view::npos ? 0 : 1);
    read_ += taken;
    counts_.bytes += taken;
    if (end != std::string_view::npos) break;
  }
  if (!any) return Line::end;
  ++number_;
  if (line_.ends_with('\r')) line_.pop_back();
  if (number_ == 1 && line_.starts_with(kByteOrderMark)) line_.erase(0, kByteOrderMark.size());
  return too_long ? Line::too_long : Line::text;
}

bool LineSource::next(TextRecord& record) {
  for (;;) {
    const Line line = read_line();
    if (line == Line::end) return false;
    if (line == Line::too_long) {
      refuse(fmt::format("it is longer than {} bytes", options_.longest_line));
      continue;
    }
    if (is_blank(line_)) {
      ++counts_.blank;
      continue;
    }
    if (!is_utf8(line_)) {
      refuse("it is not UTF-8");
      continue;
    }
    record = {.source = name_, .columns = std::vector<std::string>(options_.columns.size()), .place = place()};
    if (options_.format == LineFormat::text ? take_text(record) : take_object(record)) {
      ++counts_.texts;
      return true;
    }
  }
}

bool LineSource::take_text(TextRecord& record) {
  record.text = line_;
  record.position = fmt::format("{{\"line\":{}}}", number_);
  return true;
}

bool LineSource::take_object(TextRecord& record) {
  JsonReading read = read_json(line_, {.levels = kDeepestJson});
  if (read.fault) return refuse(wrong_with(*read.fault));
  if (!read_object(read.value, record)) return false;
  if (record.id.empty()) return true;
  const auto [found, is_new] = ids_.emplace(key_of({.id = record.id}), number_);
  if (is_new) return true;
  return refuse(fmt::format("its id '{}' is that of line {} too", printable(record.id), found->second));
}

bool LineSource::read_object(nlohmann::ordered_json& object, TextRecord& record) {
  if (!object.is_object()) return refuse("it is not a JSON object");
  const auto text = object.find("text");
  if (text == object.end() || !text->is_string()) return refuse("it has no member \"text\" that is a string");
  record.text = text->get<std::string>();
  if (is_blank(record.text)) return refuse("its text is empty");
  object.erase(text);
  if (const auto id = object.find("id"); id != object.end()) {
    if (!id->is_string() && !id->is_number_integer()) return refuse("its id is neither a string nor a whole number");
    record.id = column_text(*id);
    object.erase(id);
  }
  for (std::size_t i = 0; i < options_.columns.size(); ++i) {
    const auto member = object.find(options_.columns[i]);
    if (member == object.end()) continue;
    record.columns[i] = column_text(*member);
    object.erase(member);
  }
  if (!object.empty()) record.metadata = object.dump();
  return true;
}

}  // namespace quarrel
