// Cuts a connection of a server that is not ours to ask: gRPC's, which offers Arrow's users no way to end a call. Any
// thread; a few system calls for each file that is open.
#pragma once

#include <cstdint>
#include <string>

namespace quarrel::flight {

// "ipv4:127.0.0.1:40000", "ipv6:[::1]:40000" or "ipv6:%5B::1%5D:40000": what gRPC calls a peer.
struct PeerAddress {
  std::string address = {};
  std::uint16_t port = 0;
};
PeerAddress read_peer(std::string peer);

// Shuts this process's end of the connection from that peer to the local port, both ways, so that whoever waits for it
// is told so. Nothing where there is none.
void cut_connection(const PeerAddress& peer, std::uint16_t local_port);

}  // namespace quarrel::flight
