#include "flight/arrow/peer_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace quarrel::flight {
namespace {

// An address of either kind as one of IPv6, so that an IPv4 peer of an IPv6 socket is the same.
struct SocketEnd {
  std::array<std::uint8_t, 16> address = {};
  std::uint16_t port = 0;
  bool operator==(const SocketEnd&) const = default;
};

std::array<std::uint8_t, 16> mapped(const in_addr& four) {
  std::array<std::uint8_t, 16> address{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  std::memcpy(address.data() + 12, &four, 4);
  return address;
}

SocketEnd end_of(const PeerAddress& peer) {
  SocketEnd end{.port = peer.port};
  const std::string address = peer.address.substr(0, peer.address.find('%'));  // without the name of an interface
  in_addr four{};
  if (inet_pton(AF_INET, address.c_str(), &four) == 1) {
    end.address = mapped(four);
  } else {
    inet_pton(AF_INET6, address.c_str(), end.address.data());
  }
  return end;
}

// All zeros for what is no socket of the internet.
SocketEnd end_of(int file, int (*name)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (name(file, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
  SocketEnd end;
  if (storage.ss_family == AF_INET) {
    sockaddr_in four{};
    std::memcpy(&four, &storage, sizeof four);
    end = {.address = mapped(four.sin_addr), .port = ntohs(four.sin_port)};
  } else if (storage.ss_family == AF_INET6) {
    sockaddr_in6 six{};
    std::memcpy(&six, &storage, sizeof six);
    std::memcpy(end.address.data(), &six.sin6_addr, end.address.size());
    end.port = ntohs(six.sin6_port);
  }
  return end;
}

bool is_connection(int file, const SocketEnd& peer, std::uint16_t local_port) {
  return end_of(file, getpeername) == peer && end_of(file, getsockname).port == local_port;
}

}  // namespace

PeerAddress read_peer(std::string peer) {
  PeerAddress read;
  if (const std::size_t kind = peer.find(':'); kind != std::string::npos) peer.erase(0, kind + 1);
  if (const std::size_t colon = peer.rfind(':'); colon != std::string::npos) {
    std::from_chars(peer.data() + colon + 1, peer.data() + peer.size(), read.port);
    peer.erase(colon);
  }
  for (const std::string_view bracket : {"%5B", "%5D", "[", "]"}) {
    if (const std::size_t place = peer.find(bracket); place != std::string::npos) peer.erase(place, bracket.size());
  }
  read.address = std::move(peer);
  return read;
}

void cut_connection(const PeerAddress& peer, std::uint16_t local_port) {
  const SocketEnd wanted = end_of(peer);
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int file = -1;
    std::from_chars(name.data(), name.data() + name.size(), file);
    if (file < 0 || !is_connection(file, wanted, local_port)) continue;
    // The number may be another file's by now; what is held here stays what it is.
    const int held = fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (held < 0) continue;
    if (is_connection(held, wanted, local_port)) shutdown(held, SHUT_RDWR);
    close(held);
  }
}

}  // namespace quarrel::flight
