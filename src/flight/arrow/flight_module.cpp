#include "flight/flight_module.h"

#include <exception>

#include "base/module_reason.h"
#include "flight/arrow/listener.h"
#include "flight/arrow/longbow_client.h"

namespace {

// What `make` gives, unless the two sides are of different builds or it throws.
template <typename Make>
auto made(int version, char* reason, std::size_t capacity, const Make& make) -> decltype(make()) {
  try {
    if (version == quarrel::kFlightModuleVersion) return make();
    quarrel::put_reason("libquarrel_flight.so belongs to another build of quarrel", reason, capacity);
  } catch (const std::exception& error) {
    quarrel::put_reason(error.what(), reason, capacity);
  }
  return nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) quarrel::LongbowClient* quarrel_connect_longbow(
    int version, const quarrel::LongbowAddress* address, const quarrel::LongbowOptions* options, char* reason,
    std::size_t capacity) {
  return made(version, reason, capacity,
              [&]() -> quarrel::LongbowClient* { return new quarrel::flight::ArrowLongbowClient(*address, *options); });
}

extern "C" __attribute__((visibility("default"))) quarrel::FlightListener* quarrel_listen_flight(
    int version, const quarrel::FlightListenerOptions* options, const std::shared_ptr<quarrel::FlightHandler>* handler,
    char* reason, std::size_t capacity) {
  return made(version, reason, capacity, [&] { return quarrel::flight::make_listener(*options, *handler).release(); });
}
