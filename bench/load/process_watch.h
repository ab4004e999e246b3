// What a process uses, from /proc: its memory and the processor time of its threads by their names. Linux only.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace quarrel::load {

struct ProcessUse {
  std::uint64_t resident = 0;             // bytes now
  std::uint64_t anonymous = 0;            // of those, not a mapped file's
  std::map<std::string, double> threads;  // seconds of processor time by name
};

// All zeros for a process that is not there, or for 0.
ProcessUse process_use(int pid);

// The difference in processor time.
std::map<std::string, double> used_between(const ProcessUse& before, const ProcessUse& after);

}  // namespace quarrel::load
