// The most shared memory that a thread block of any kernel had, static and dynamic: the linker puts our function in the
// place of the one that launches kernels (see CMakeLists.txt). One thread at a time.
#pragma once

#include <cstddef>
#include <string>

namespace quarrel::cuda {

struct SharedUse {
  std::size_t launches = 0;
  std::size_t bytes = 0;
  std::string kernel;  // which had it
};

const SharedUse& largest_shared_use();

}  // namespace quarrel::cuda
