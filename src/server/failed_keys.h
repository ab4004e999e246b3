// How often each address came with a wrong key. After ten in a minute it has to wait until the minute is over. Of fixed
// size, however many addresses there are: two that fall into one place share it. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace quarrel {

class FailedKeys {
 public:
  using Now = std::function<Clock::time_point()>;
  explicit FailedKeys(Now now = Clock::now);

  static constexpr std::int32_t kMostAMinute = 10;

  // One more. How long the address has to wait now; nullopt: it may try again.
  std::optional<Clock::duration> count(std::string_view address);
  // The same without counting.
  std::optional<Clock::duration> wait(std::string_view address);

 private:
  struct Place {
    Clock::time_point begun = {};
    std::int32_t failures = 0;
  };
  Place& place_of(std::string_view address, Clock::time_point now);

  const Now now_;
  const std::uint64_t seed_;  // nobody can choose addresses that fall together
  std::mutex mutex_;
  std::vector<Place> places_;  // guarded
};

}  // namespace quarrel
