#include "flight/flight_module.h"

#include <exception>

#include "base/module_reason.h"
#include "flight/arrow/longbow_client.h"

extern "C" __attribute__((visibility("default"))) quarrel::LongbowClient* quarrel_connect_longbow(
    int version, const quarrel::LongbowAddress* address, const quarrel::LongbowOptions* options, char* reason,
    std::size_t capacity) {
  try {
    if (version == quarrel::kFlightModuleVersion) return new quarrel::flight::ArrowLongbowClient(*address, *options);
    quarrel::put_reason("libquarrel_flight.so belongs to another build of quarrel", reason, capacity);
  } catch (const std::exception& error) {
    quarrel::put_reason(error.what(), reason, capacity);
  }
  return nullptr;
}
