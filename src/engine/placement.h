// Where a model runs: on the device that was asked for, or on the one that this falls back to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "engine/memory_plan.h"
#include "gguf/file.h"

namespace quarrel {

struct Placement {
  std::shared_ptr<Device> device;
  ExecutorOptions options;  // with the budget that holds there
  MemoryPlan memory;
  std::string moved = {};  // why it is not where it was asked for, in a sentence; empty: it is
};

// What models may take of a device together, bytes; 0: there is no bound.
using BudgetOf = std::function<std::uint64_t(const Device&)>;

// On `device`, unless that falls back to another (Device::fallback) and has too little memory for the model, has not
// what the options ask for, or has room only for a short context where the other has more; within `budget_of`. Throws
// what plan_memory() throws.
Placement place_model(const GgufFile& file, std::shared_ptr<Device> device, const ExecutorOptions& options,
                      const BudgetOf& budget_of = {});

}  // namespace quarrel
