// What was watched of a running model, as lines for people.
#pragma once

#include <string>

#include "engine/observations.h"

namespace quarrel {

// Nothing for a model without experts, recurrent layers and anything remarkable.
std::string observation_text(const Observations& observations);

}  // namespace quarrel
