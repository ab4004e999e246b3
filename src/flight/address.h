// Where a dataset of Longbow is, as people write it: longbow://host[:3000]/dataset[?meta=3001]. Pure functions for
// commands, routes and settings.
//
// `longbow+tls://` asks for TLS on both ports: it stands in the scheme, as in https, so that nothing that shortens or
// joins addresses can lose it. A host is a name, an IPv4 address, or an IPv6 address in brackets; each has one form
// here, however it was written, since journals and lists of hosts go by it. The dataset is the whole path after the
// first slash, percent-decoded; slashes within it belong to its name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace quarrel {

inline constexpr std::uint16_t kLongbowDataPort = 3000;
inline constexpr std::uint16_t kLongbowMetaPort = 3001;

struct LongbowAddress {
  std::string host = {};                       // in small letters, IPv6 in its shortest form, without brackets
  std::uint16_t data_port = kLongbowDataPort;  // DoPut, DoGet, DoExchange, DoAction
  std::uint16_t meta_port = kLongbowMetaPort;  // GetFlightInfo, ListFlights, GetSchema
  std::string dataset = {};                    // empty: the server as a whole
  bool tls = false;

  bool operator==(const LongbowAddress&) const = default;
};

enum class DatasetPart { required, optional };

// Throws Error(usage) that says what is wrong with it.
LongbowAddress read_longbow_address(std::string_view text, DatasetPart dataset = DatasetPart::required);

// The same as text, in full: both ports are named, what has to be encoded is. Reading it gives the same address.
std::string longbow_address_text(const LongbowAddress& address);

// host:port, an IPv6 host in brackets: for messages, and for lists of hosts that may be reached.
std::string host_and_port(std::string_view host, std::uint16_t port);

}  // namespace quarrel
