// How often a thread that waits for the engine looks whether its caller has cancelled.
#pragma once

#include <chrono>

namespace quarrel {

inline constexpr std::chrono::milliseconds kCancelCheck{20};

}  // namespace quarrel
