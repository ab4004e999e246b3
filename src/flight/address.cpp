#include "flight/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/lower_case.h"
#include "base/printable.h"

namespace quarrel {
namespace {

constexpr std::string_view kScheme = "longbow://";
constexpr std::string_view kSchemeWithTls = "longbow+tls://";
// A name in the DNS has 253 at most.
constexpr std::size_t kLongestHost = 253;
constexpr std::size_t kLongestDataset = 255;

[[noreturn]] void refuse(std::string_view address, std::string_view why) {
  fail(ErrorKind::usage, "'{}' is not a Longbow address: {} (longbow://host[:3000]/dataset[?meta=3001])",
       printable(address, 200), why);
}

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

bool is_host_name(std::string_view host) {
  return !host.empty() && host.size() <= kLongestHost && host.front() != '-' &&
         std::ranges::all_of(host, [](char c) { return is_letter_or_digit(c) || c == '-' || c == '.' || c == '_'; });
}

// In the form that every way to write it comes to; nothing: it is no IPv6 address.
std::optional<std::string> canonical_ipv6(std::string_view host) {
  in6_addr address{};
  if (inet_pton(AF_INET6, std::string(host).c_str(), &address) != 1) return std::nullopt;
  std::array<char, INET6_ADDRSTRLEN> text{};
  return inet_ntop(AF_INET6, &address, text.data(), text.size());
}

std::uint16_t read_port(std::string_view address, std::string_view text) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value == 0 || value > 65535) {
    refuse(address, fmt::format("'{}' is not a port, a number from 1 to 65535", printable(text)));
  }
  return static_cast<std::uint16_t>(value);
}

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
  return std::nullopt;
}

std::string percent_decoded(std::string_view address, std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const std::string_view digits = text.substr(i + 1, 2);
    const auto high = digits.size() == 2 ? hex_digit(digits[0]) : std::nullopt;
    const auto low = digits.size() == 2 ? hex_digit(digits[1]) : std::nullopt;
    if (!high || !low) refuse(address, "a percent sign must be followed by two hexadecimal digits");
    decoded += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return decoded;
}

std::string percent_encoded(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = is_letter_or_digit(c) || std::string_view("-._~/!$'()*+,;=:@").find(c) != std::string_view::npos;
    encoded += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return encoded;
}

void read_host(std::string_view address, std::string_view authority, LongbowAddress& result) {
  std::string_view port;
  bool has_port = false;
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    if (end == std::string_view::npos) refuse(address, "the bracket around its IPv6 address is not closed");
    const std::optional<std::string> host = canonical_ipv6(authority.substr(1, end - 1));
    if (!host) refuse(address, "what is in brackets is not an IPv6 address");
    result.host = *host;
    const std::string_view rest = authority.substr(end + 1);
    has_port = rest.starts_with(':');
    if (!rest.empty() && !has_port) refuse(address, "only a port can follow the bracket");
    if (has_port) port = rest.substr(1);
  } else {
    const std::size_t colon = authority.find(':');
    has_port = colon != std::string_view::npos;
    result.host = lower_case(authority.substr(0, colon));
    if (has_port) port = authority.substr(colon + 1);
    if (port.find(':') != std::string_view::npos) refuse(address, "an IPv6 address must be in brackets");
    if (result.host.find('@') != std::string::npos || port.find('@') != std::string_view::npos) {
      refuse(address, "it cannot name a user");
    }
    if (result.host.empty()) refuse(address, "it has no host");
    if (!is_host_name(result.host)) {
      refuse(address, fmt::format("'{}' is not the name of a host", printable(result.host)));
    }
  }
  if (has_port) result.data_port = read_port(address, port);
}

void read_query(std::string_view address, std::string_view query, LongbowAddress& result) {
  bool seen = false;
  while (true) {
    const std::size_t end = query.find('&');
    const std::string_view pair = query.substr(0, end);
    const std::size_t sign = pair.find('=');
    if (pair.substr(0, sign) != "meta" || sign == std::string_view::npos) {
      refuse(address, fmt::format("after the question mark only meta=PORT has a meaning, not '{}'", printable(pair)));
    }
    if (seen) refuse(address, "it names the meta port twice");
    seen = true;
    result.meta_port = read_port(address, pair.substr(sign + 1));
    if (end == std::string_view::npos) return;
    query.remove_prefix(end + 1);
  }
}

void check_dataset(std::string_view address, const std::string& dataset) {
  if (dataset.size() > kLongestDataset) {
    refuse(address, fmt::format("its dataset's name has more than {} bytes", kLongestDataset));
  }
  // Text that is fit for a message as it stands has neither control characters nor broken UTF-8.
  if (printable(dataset, dataset.size()) != dataset) {
    refuse(address, "its dataset's name has control characters or is not UTF-8");
  }
}

}  // namespace

LongbowAddress read_longbow_address(std::string_view text, DatasetPart dataset) {
  LongbowAddress result;
  std::string_view rest = text;
  result.tls = rest.starts_with(kSchemeWithTls);
  if (!result.tls && !rest.starts_with(kScheme)) refuse(text, "it begins with neither longbow:// nor longbow+tls://");
  rest.remove_prefix(result.tls ? kSchemeWithTls.size() : kScheme.size());
  if (rest.find('#') != std::string_view::npos) refuse(text, "a number sign in a name is written %23");

  const std::size_t question = rest.find('?');
  if (question != std::string_view::npos) read_query(text, rest.substr(question + 1), result);
  rest = rest.substr(0, question);
  const std::size_t slash = rest.find('/');
  read_host(text, rest.substr(0, slash), result);
  if (slash != std::string_view::npos) result.dataset = percent_decoded(text, rest.substr(slash + 1));
  if (result.dataset.empty() && dataset == DatasetPart::required) refuse(text, "it names no dataset");
  check_dataset(text, result.dataset);
  return result;
}

std::string host_and_port(std::string_view host, std::uint16_t port) {
  return host.find(':') == std::string_view::npos ? fmt::format("{}:{}", host, port)
                                                  : fmt::format("[{}]:{}", host, port);
}

std::string longbow_address_text(const LongbowAddress& address) {
  return fmt::format("{}{}/{}?meta={}", address.tls ? kSchemeWithTls : kScheme,
                     host_and_port(address.host, address.data_port), percent_encoded(address.dataset),
                     address.meta_port);
}

}  // namespace quarrel
