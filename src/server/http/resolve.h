// Addresses of a host's name. The system's own look-up knows no time limit and cannot be stopped, so it runs on a
// thread that nobody waits for: who asks goes on when the time is over or when it is told to stop.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

namespace quarrel::http {

// Empty where there are none, or none was told in time. An address in numbers is itself.
std::vector<boost::asio::ip::tcp::endpoint> resolve(const std::string& host, std::uint16_t port,
                                                    std::chrono::seconds limit, const std::stop_token& stop);

}  // namespace quarrel::http
