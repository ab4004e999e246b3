// Small makers of Prometheus' metric families, for what is read off when somebody asks. Plain values; any thread.
#pragma once

#include <prometheus/metric_family.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/observations.h"

namespace quarrel {

using LabelValues = std::vector<std::pair<std::string, std::string>>;

class FamilyMaker {
 public:
  FamilyMaker(std::string name, std::string help, prometheus::MetricType type);

  void counter(const LabelValues& labels, double value);
  void gauge(const LabelValues& labels, double value);
  // `unit`: what one of the counted sizes is in the metric's own unit; of `buckets` bounds the first ones are told.
  void histogram(const LabelValues& labels, const SizeCounts& sizes, double sum, double unit, std::size_t buckets);

  // Adds the family to the list if it has any member.
  void add_to(std::vector<prometheus::MetricFamily>& families);

 private:
  prometheus::ClientMetric& member(const LabelValues& labels);
  prometheus::MetricFamily family_;
};

}  // namespace quarrel
