// What every user of a device owes the others: that they hear of its loss.
#pragma once

#include "backend/backend.h"
#include "base/error.h"

namespace quarrel {

// What `call` gives. A device that is lost on the way is marked so, for all who use it.
template <typename Call>
auto marking_loss(Device& device, const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::device_lost) device.mark_lost();
    throw;
  }
}

}  // namespace quarrel
