#include "server/watch/families.h"

#include <algorithm>

namespace quarrel {

FamilyMaker::FamilyMaker(std::string name, std::string help, prometheus::MetricType type) {
  family_.name = std::move(name);
  family_.help = std::move(help);
  family_.type = type;
}

prometheus::ClientMetric& FamilyMaker::member(const LabelValues& labels) {
  prometheus::ClientMetric& metric = family_.metric.emplace_back();
  for (const auto& [name, value] : labels) metric.label.push_back({name, value});
  return metric;
}

void FamilyMaker::counter(const LabelValues& labels, double value) { member(labels).counter.value = value; }

void FamilyMaker::gauge(const LabelValues& labels, double value) { member(labels).gauge.value = value; }

void FamilyMaker::histogram(const LabelValues& labels, const SizeCounts& sizes, double sum, double unit,
                            std::size_t buckets) {
  prometheus::ClientMetric::Histogram& histogram = member(labels).histogram;
  histogram.sample_sum = sum;
  for (std::size_t i = 0; i < sizes.counts.size(); ++i) {
    histogram.sample_count += sizes.counts[i];
    // The last one counts what is larger, too.
    if (i < buckets && i + 1 < sizes.counts.size()) {
      histogram.bucket.push_back({histogram.sample_count, static_cast<double>(SizeCounts::bound(i)) * unit});
    }
  }
}

void FamilyMaker::add_to(std::vector<prometheus::MetricFamily>& families) {
  if (!family_.metric.empty()) families.push_back(std::move(family_));
}

}  // namespace quarrel
