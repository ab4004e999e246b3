// What was watched of a running model, as lines for people.
#pragma once

#include <string>

#include "engine/observations.h"

namespace quarrel {

// What the expert cache did; empty where there is none.
std::string expert_cache_text(const Observations& observations);
// Nothing for a model without experts, recurrent layers and anything remarkable.
std::string observation_text(const Observations& observations);

}  // namespace quarrel
