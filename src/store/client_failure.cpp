#include "store/client_failure.h"

#include <array>

#include "base/printable.h"

namespace quarrel {
namespace {

constexpr std::string_view kDiskFull = "there is no space left on the disk";
constexpr std::string_view kNoPip = "python3 has no pip (on Debian: apt install python3-pip)";
constexpr std::string_view kNotTrusted = "the package index's certificate is not trusted: is a proxy in between?";
constexpr std::string_view kProxy = "the proxy refuses the connection";
constexpr std::string_view kNoNetwork = "the package index cannot be reached: is there a network?";
constexpr std::string_view kNotThere = "the package index does not have it";
constexpr std::string_view kNotThereOrNoNetwork = "the package index cannot be reached, or does not have it";

struct Sign {
  std::string_view text;  // in the output
  std::string_view cause;
};

// What causes other failures stands first: a package that "cannot be found" often is not found because nothing can.
constexpr std::array<Sign, 23> kSigns{{
    {"No space left on device", kDiskFull},
    {"[Errno 28]", kDiskFull},
    {"Disk quota exceeded", kDiskFull},
    {"No module named pip", kNoPip},
    {"CERTIFICATE_VERIFY_FAILED", kNotTrusted},
    {"ProxyError", kProxy},
    {"Cannot connect to proxy", kProxy},
    {"Tunnel connection failed", kProxy},
    {"NewConnectionError", kNoNetwork},
    {"Failed to establish a new connection", kNoNetwork},
    {"Temporary failure in name resolution", kNoNetwork},
    {"Name or service not known", kNoNetwork},
    {"NameResolutionError", kNoNetwork},
    {"Network is unreachable", kNoNetwork},
    {"Connection refused", kNoNetwork},
    {"Connection reset", kNoNetwork},
    {"ConnectTimeoutError", kNoNetwork},
    {"ReadTimeoutError", kNoNetwork},
    {"Read timed out", kNoNetwork},
    {"RemoteDisconnected", kNoNetwork},
    {"(from versions: none)", kNotThereOrNoNetwork},
    {"No matching distribution found", kNotThere},
    {"Could not find a version", kNotThere},
}};

// The last line that says something, or the last one that pip marks as an error.
std::string_view last_line(std::string_view output) {
  std::string_view last;
  std::string_view error;
  while (!output.empty()) {
    const auto end = output.find('\n');
    std::string_view line = output.substr(0, end);
    output = end == std::string_view::npos ? std::string_view() : output.substr(end + 1);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (!line.empty()) last = line;
    constexpr std::string_view kMark = "ERROR: ";
    if (line.starts_with(kMark)) error = line.substr(kMark.size());
  }
  return error.empty() ? last : error;
}

}  // namespace

std::string client_failure(std::string_view output) {
  for (const Sign& sign : kSigns) {
    if (output.find(sign.text) != std::string_view::npos) return std::string(sign.cause);
  }
  const std::string_view line = last_line(output);
  return line.empty() ? "it failed without a message" : printable(line, 300);
}

}  // namespace quarrel
