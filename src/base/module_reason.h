// How a module that is opened at run time says why it could not do what it was asked: a sentence in memory of the
// caller's, since no exception passes between the two. Any thread may call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace quarrel {

// Cut to what fits before the zero at its end.
inline void put_reason(std::string_view reason, char* place, std::size_t capacity) {
  if (capacity == 0) return;
  const std::size_t length = std::min(reason.size(), capacity - 1);
  std::copy_n(reason.begin(), length, place);
  place[length] = '\0';
}

}  // namespace quarrel
