#include "flight/flight_module.h"

#include <algorithm>
#include <exception>
#include <string_view>

#include "flight/arrow/longbow_client.h"

namespace {

void put_reason(std::string_view reason, char* place, std::size_t capacity) {
  if (capacity == 0) return;
  const std::size_t length = std::min(reason.size(), capacity - 1);
  std::copy_n(reason.begin(), length, place);
  place[length] = '\0';
}

}  // namespace

extern "C" __attribute__((visibility("default"))) quarrel::LongbowClient* quarrel_connect_longbow(
    int version, const quarrel::LongbowAddress* address, const quarrel::LongbowOptions* options, char* reason,
    std::size_t capacity) {
  try {
    if (version == quarrel::kFlightModuleVersion) return new quarrel::flight::ArrowLongbowClient(*address, *options);
    put_reason("libquarrel_flight.so belongs to another build of quarrel", reason, capacity);
  } catch (const std::exception& error) {
    put_reason(error.what(), reason, capacity);
  }
  return nullptr;
}
