#include "server/failed_keys.h"

#include <algorithm>
#include <string>

#include "base/random_seed.h"
#include "server/http/sender.h"

namespace quarrel {
namespace {

constexpr std::size_t kPlaces = std::size_t{1} << 16;
constexpr std::chrono::minutes kWindow{1};

}  // namespace

FailedKeys::FailedKeys(Now now) : now_(std::move(now)), seed_(random_seed()), places_(kPlaces) {}

// Of the mutex's owner.
FailedKeys::Place& FailedKeys::place_of(std::string_view address, Clock::time_point now) {
  const std::string name = std::to_string(seed_) + http::sender_of(address);
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
