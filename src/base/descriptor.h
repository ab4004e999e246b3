// An open file by its number, and all that can be read from it. One thread.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace quarrel {

// Closes it.
class Descriptor {
 public:
  explicit Descriptor(int number) noexcept : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const noexcept { return number_; }

 private:
  int number_;
};

// Until its end. Throws Error, in which `what` names it: io, cancelled where a signal comes first, bad_input beyond
// `limit` bytes.
std::string read_all(int descriptor, std::string_view what, std::size_t limit);

}  // namespace quarrel
