// Memory: what is taken, what can be given up, and who has to wait. Runs under the lock.
#include <new>
#include <utility>

#include "base/error.h"
#include "engine/memory_plan.h"
#include "session/registry_core.h"

namespace quarrel {

std::uint64_t RegistryCore::used() const {
  std::uint64_t bytes = 0;
  for (const Resident& resident : residents_) bytes += resident.plan.bytes;
  for (const Job& job : jobs_) {
    if (job.phase >= Job::Phase::loading) bytes += job.plan.bytes;
  }
  return bytes;
}

// Whether there is room for it. If not, unused models go for it, as far as that is enough.
RegistryCore::Room RegistryCore::find_room(Job& job) {
  Slot& slot = slots_[job.name];
  Room room = Room::none;
  if (fits(job.plan.bytes)) {
    room = Room::now;
  } else if (make_room(job)) {
    room = Room::soon;
  }
  if (job.kind != Job::Kind::exchange || slot.resident == nullptr) return room;
  // Without room for both the old model ends what it has begun, and new requests wait.
  const bool blocked = room == Room::none;
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
  const auto can_go = [&](const Resident& each) {
    return !each.detached && each.leases == 0 && each.name != job.name && !has_active_job(each.name);
  };
  for (const Resident& each : residents_) {
    if (each.detached && each.leases == 0) ending += each.plan.bytes;
    if (can_go(each)) unused += each.plan.bytes;
  }
  const std::uint64_t wanted = used() + job.plan.bytes;
  if (wanted - ending - unused > budget_) return false;
  while (wanted - ending > budget_) {
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
    for (const Resident& each : residents_) in_use += each.leases > 0 ? each.plan.bytes : 0;
    fail(ErrorKind::out_of_memory,
         "'{}' needs {:.0f} MiB, but {:.0f} of {:.0f} are taken by models in use; try again when they are done",
         job.name, mebibytes(job.plan.bytes), mebibytes(in_use), mebibytes(budget_));
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace quarrel
