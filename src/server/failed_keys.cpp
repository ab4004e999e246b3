#include "server/failed_keys.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/random_seed.h"

namespace quarrel {
namespace {

constexpr std::size_t kPlaces = std::size_t{1} << 16;
constexpr std::chrono::minutes kWindow{1};

}  // namespace

FailedKeys::FailedKeys(Now now) : now_(std::move(now)), seed_(random_seed()), places_(kPlaces) {}

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

// Of the mutex's owner.
FailedKeys::Place& FailedKeys::place_of(std::string_view address, Clock::time_point now) {
  const std::string name = std::to_string(seed_) + sender_of(address);
  Place& place = places_[std::hash<std::string>{}(name) % kPlaces];
  if (now - place.begun >= kWindow) place = {.begun = now, .failures = 0};
  return place;
}

std::optional<Clock::duration> FailedKeys::count(std::string_view address) {
  const std::scoped_lock lock(mutex_);
  const Clock::time_point now = now_();
  Place& place = place_of(address, now);
  place.failures = std::min(place.failures + 1, kMostAMinute + 1);
  if (place.failures <= kMostAMinute) return std::nullopt;
  return place.begun + kWindow - now;
}

std::optional<Clock::duration> FailedKeys::wait(std::string_view address) {
  const std::scoped_lock lock(mutex_);
  const Clock::time_point now = now_();
  const Place& place = place_of(address, now);
  if (place.failures < kMostAMinute) return std::nullopt;
  return place.begun + kWindow - now;
}

}  // namespace quarrel
