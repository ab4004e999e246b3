#include "app/input.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/json_depth.h"
#include "base/printable.h"

namespace quarrel {
namespace {

constexpr int kMaxJsonDepth = 128;

void check_depth(std::string_view text, std::string_view what) {
  if (!nests_deeper(text, kMaxJsonDepth)) return;
  fail(ErrorKind::bad_input, "{} nests deeper than {} levels", what, kMaxJsonDepth);
}

// Of the library's sentence only what follows the place, which is told in our own words.
std::string parser_reason(std::string_view message) {
  const std::size_t column = message.find("column ");
  const std::size_t colon = column == std::string_view::npos ? column : message.find(": ", column);
  return printable(colon == std::string_view::npos ? message : message.substr(colon + 2), 160);
}

}  // namespace

std::string read_standard_input(std::size_t limit) { return read_all(STDIN_FILENO, "standard input", limit); }

std::string read_input(const std::string& path, std::size_t limit) {
  if (path == "-") return read_standard_input(limit);
  const std::string name = printable(path);
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    const int error = errno;
    if (error == ENOENT) fail(ErrorKind::not_found, "there is no file '{}'", name);
    fail(ErrorKind::io, "cannot open '{}': {}", name, std::generic_category().message(error));
  }
  struct stat status{};
  if (::fstat(file.get(), &status) == 0 && S_ISDIR(status.st_mode)) {
    fail(ErrorKind::usage, "cannot read '{}': it is a folder", name);
  }
  return read_all(file.get(), name, limit);
}

nlohmann::ordered_json parse_json(std::string_view text, std::string_view what) {
  check_depth(text, what);
  try {
    return nlohmann::ordered_json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    // `byte` counts from 1 and points just behind what could not be read.
    const std::string_view before = text.substr(0, std::min(text.size(), error.byte > 0 ? error.byte - 1 : 0));
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t line_start = before.rfind('\n');
    const std::size_t column = before.size() - (line_start == std::string_view::npos ? 0 : line_start + 1) + 1;
    fail(ErrorKind::bad_input, "{} is not valid JSON: line {}, column {}: {}", what, line, column,
         parser_reason(error.what()));
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::bad_input, "{} is not usable JSON: {}", what, printable(error.what(), 160));
  }
}

std::string dump_json(const nlohmann::ordered_json& value, bool indented) {
  return value.dump(indented ? 2 : -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace quarrel
