// How much may wait for a client that does not read. One piece is taken whatever its size, and takes no room from those
// behind it: a client that reads well must not lose an answer's end to a long line.
#pragma once

#include <cstddef>

namespace quarrel::http {

class Backlog {
 public:
  explicit Backlog(std::size_t most) noexcept : most_(most) {}

  // Whether so many bytes may be added to those that wait. False: the client is too slow.
  bool takes(std::size_t waiting, std::size_t piece) noexcept {
    if (waiting > 0) return waiting - long_piece_ + piece <= most_;
    long_piece_ = piece > most_ ? piece : 0;
    return true;
  }

 private:
  const std::size_t most_;
  std::size_t long_piece_ = 0;  // bytes of the first that waits, where it alone is more
};

}  // namespace quarrel::http
