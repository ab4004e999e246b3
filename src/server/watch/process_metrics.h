// What this process takes of its machine, under the names that Prometheus' own clients use. Any thread.
#pragma once

#include <prometheus/metric_family.h>

#include <optional>
#include <vector>

namespace quarrel {

std::vector<prometheus::MetricFamily> process_families();

// Memory in use, in bytes; none: the system does not say.
std::optional<double> resident_bytes();

}  // namespace quarrel
