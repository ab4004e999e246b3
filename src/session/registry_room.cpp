// Memory: what is taken, what can be given up, and who has to wait. Runs under the lock.
#include <new>
#include <utility>

#include "base/error.h"
#include "engine/memory_plan.h"
#include "session/registry_core.h"

namespace quarrel {

std::uint64_t RegistryCore::used_beside(const Plan& plan) const {
  std::uint64_t bytes = 0;
  for_each_plan([&](const Plan& each) {
    if (each.device == plan.device) bytes += each.bytes;
  });
  return bytes;
}

bool RegistryCore::fits(const Plan& plan) const {
  const std::uint64_t budget = budget_of(plan);
  return budget == 0 || used_beside(plan) + plan.bytes <= budget;
}

// Whether there is room for it. If not, unused models go for it, as far as that is enough.
RegistryCore::Room RegistryCore::find_room(Job& job) {
  Slot& slot = slots_[job.name];
  Room room = Room::none;
  if (fits(job.plan)) {
    room = Room::now;
  } else if (make_room(job)) {
    room = Room::soon;
  }
  if (job.kind != Job::Kind::exchange || slot.resident == nullptr) return room;
  // Without room for both the old model ends what it has begun, and new requests wait: where it stands in the way.
  const bool blocked = room == Room::none && slot.resident->plan.device == job.plan.device;
  if (std::exchange(slot.blocked, blocked) && !blocked) signal();
  if (!blocked || slot.resident->leases > 0) return room;
  try {
    job.old = slot.resident->plan;
  } catch (const std::bad_alloc&) {
    return Room::none;  // what could not be loaded again is not given up
  }
  detach(*slot.resident);
  return Room::soon;
}

// Gives up unused models, the oldest first, until what is asked for will fit when they have ended. False: it would not,
// and nobody goes for nothing.
bool RegistryCore::make_room(const Job& job) {
  std::uint64_t ending = 0, unused = 0;
  const auto is_beside = [&](const Resident& each) { return each.plan.device == job.plan.device; };
  const auto can_go = [&](const Resident& each) {
    return is_beside(each) && !each.detached && each.leases == 0 && each.name != job.name && !has_active_job(each.name);
  };
  for (const Resident& each : residents_) {
    if (is_beside(each) && each.detached && each.leases == 0) ending += each.plan.bytes;
    if (can_go(each)) unused += each.plan.bytes;
  }
  const std::uint64_t wanted = used_beside(job.plan) + job.plan.bytes;
  const std::uint64_t budget = budget_of(job.plan);
  if (wanted - ending - unused > budget) return false;
  while (wanted - ending > budget) {
    Resident* oldest = nullptr;
    for (Resident& each : residents_) {
      if (can_go(each) && (oldest == nullptr || each.last_used < oldest->last_used)) oldest = &each;
    }
    if (oldest == nullptr) return false;
    ending += oldest->plan.bytes;
    detach(*oldest);
  }
  return true;
}

std::exception_ptr RegistryCore::no_room(const Job& job) const noexcept {
  try {
    std::uint64_t in_use = 0;
    for (const Resident& each : residents_) {
      if (each.leases > 0 && each.plan.device == job.plan.device) in_use += each.plan.bytes;
    }
    fail(ErrorKind::out_of_memory,
         "'{}' needs {:.0f} MiB, but {:.0f} of {:.0f} are taken by models in use; try again when they are done",
         job.name, mebibytes(job.plan.bytes), mebibytes(in_use), mebibytes(budget_of(job.plan)));
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace quarrel
