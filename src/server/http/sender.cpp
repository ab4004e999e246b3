#include "server/http/sender.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

namespace quarrel::http {

std::string sender_of(std::string_view address) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  const std::string text(address.substr(0, address.find('%')));
  if (::inet_pton(AF_INET6, text.c_str(), bytes.data()) != 1) return text;
  constexpr std::array<unsigned char, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const bool mapped = std::equal(kMapped.begin(), kMapped.end(), bytes.begin());
  const auto first = bytes.begin() + (mapped ? 12 : 0);
  const auto last = mapped ? bytes.end() : bytes.begin() + 8;
  if (!mapped) return "v6:" + std::string(first, last);
  return std::to_string(first[0]) + '.' + std::to_string(first[1]) + '.' + std::to_string(first[2]) + '.' +
         std::to_string(first[3]);
}

}  // namespace quarrel::http
