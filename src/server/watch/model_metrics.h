// What can be watched of the models in memory, as metric families: read off the engines when somebody asks, counted by
// them all the time. Plain values; any thread.
#pragma once

#include <prometheus/metric_family.h>

#include <span>
#include <vector>

#include "server/watch/figures.h"
#include "session/model_registry.h"

namespace quarrel {

std::vector<prometheus::MetricFamily> model_families(std::span<const ModelRegistry::Watched> models);

// Of them those that are broadcast.
ModelFigures model_figures(const ModelRegistry::Watched& model);

}  // namespace quarrel
