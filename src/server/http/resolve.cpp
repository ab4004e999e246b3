#include "server/http/resolve.h"

#include <netdb.h>

#include <boost/asio/ip/address.hpp>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

namespace quarrel::http {
namespace {

using boost::asio::ip::tcp;

struct LookUp {
  std::mutex mutex;
  std::condition_variable_any came;
  bool done = false;
  std::vector<tcp::endpoint> found;
};

std::vector<tcp::endpoint> look_up(const std::string& host, std::uint16_t port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_ADDRCONFIG;
  addrinfo* first = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &wanted, &first) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(first, &::freeaddrinfo);
  std::vector<tcp::endpoint> found;
  for (const addrinfo* next = first; next != nullptr; next = next->ai_next) {
    tcp::endpoint endpoint;
    if (next->ai_addrlen > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), next->ai_addr, next->ai_addrlen);
    endpoint.resize(next->ai_addrlen);
    endpoint.port(port);
    found.push_back(endpoint);
  }
  return found;
}

}  // namespace

std::vector<tcp::endpoint> resolve(const std::string& host, std::uint16_t port, std::chrono::seconds limit,
                                   const std::stop_token& stop) {
  boost::system::error_code not_numbers;
  const auto address = boost::asio::ip::make_address(host, not_numbers);
  if (!not_numbers) return {tcp::endpoint(address, port)};
  const auto state = std::make_shared<LookUp>();
  std::thread([state, host, port] {
    std::vector<tcp::endpoint> found = look_up(host, port);
    const std::scoped_lock lock(state->mutex);
    state->found = std::move(found);
    state->done = true;
    state->came.notify_all();
  }).detach();
  std::unique_lock lock(state->mutex);
  state->came.wait_for(lock, stop, limit, [&] { return state->done; });
  return std::move(state->found);
}

}  // namespace quarrel::http
