#include "engine/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"

namespace quarrel {
namespace {

Placement place_on(const GgufFile& file, std::shared_ptr<Device> device, ExecutorOptions options,
                   const BudgetOf& budget_of) {
  if (budget_of) {
    const std::uint64_t budget = budget_of(*device);
    if (budget > 0) options.memory_budget = std::min(options.memory_budget.value_or(budget), budget);
  }
  MemoryPlan memory = plan_memory(file, *device, options);
  return {.device = std::move(device), .options = std::move(options), .memory = std::move(memory)};
}

bool is_short(const Placement& placement) {
  const MemoryPlan& memory = placement.memory;
  return placement.options.context == 0 && memory.context < std::min(memory.trained_context, kUsualContext);
}

// Another device may have what this one lacks.
bool is_the_devices(const Error& error) {
  return error.kind() == ErrorKind::out_of_memory || error.kind() == ErrorKind::unsupported;
}

}  // namespace

Placement place_model(const GgufFile& file, std::shared_ptr<Device> device, const ExecutorOptions& options,
                      const BudgetOf& budget_of) {
  if (!device->has_fallback()) return place_on(file, std::move(device), options, budget_of);
  std::optional<Placement> here;
  std::optional<Error> refusal;
  try {
    here = place_on(file, device, options, budget_of);
    if (!is_short(*here)) return std::move(*here);
  } catch (const Error& error) {
    if (!is_the_devices(error)) throw;
    refusal = error;
  }
  const std::shared_ptr<Device> other = device->fallback();
  std::optional<Placement> there;
  try {
    there = place_on(file, other, options, budget_of);
  } catch (const Error& error) {
    if (!is_the_devices(error)) throw;
    if (here) return std::move(*here);
    // What neither can is the model's or the request's own.
    if (refusal->kind() == ErrorKind::unsupported && error.kind() == ErrorKind::unsupported) throw *refusal;
    fail(error.kind(), "{}: {}; {}: {}", device->name(), refusal->what(), other->name(), error.what());
  }
  if (here && there->memory.context <= here->memory.context) return std::move(*here);
  const std::string why = refusal ? std::string(refusal->what())
                                  : fmt::format("there is room for a context of only {} tokens", here->memory.context);
  there->moved = fmt::format("the model runs on the {}, not on {}: {}", other->name(), device->description(), why);
  return std::move(*there);
}

}  // namespace quarrel
