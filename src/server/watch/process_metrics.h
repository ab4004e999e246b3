// What this process takes of its machine, under the names that Prometheus' own clients use. Any thread.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

namespace quarrel {

std::vector<prometheus::MetricFamily> process_families();

}  // namespace quarrel
