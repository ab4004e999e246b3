// libFuzzer's entry, compiled once a target. An exception that leaves it ends the process where it was thrown, so the
// report shows that place.
#include <cstdint>
#include <span>

#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  quarrel::fuzz::QUARREL_FUZZ_TARGET(std::as_bytes(std::span(data, size)));
  return 0;
}
