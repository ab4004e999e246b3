// How much memory the process could still take, for devices that live in main memory. Safe from any thread.
#pragma once

#include <cstddef>

namespace quarrel {

// What the system reports as available, or what the process's control group leaves if that is less. 0 when neither
// says.
std::size_t host_memory_available();

// All that the machine has, or the limit of the process's control group if that is less. 0 when neither says.
std::size_t host_memory_total();

}  // namespace quarrel
