#include "app/op_profile.h"

#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "app/progress_bar.h"
#include "app/text_table.h"

namespace quarrel {
namespace {

double ratio(double part, double whole) { return whole > 0.0 ? part / whole : 0.0; }

std::string_view name_of(Bound bound) {
  switch (bound) {
    case Bound::reading: return "reading";
    case Bound::arithmetic: return "arithmetic";
    case Bound::none: break;
  }
  return "";
}

void add_row(TextTable& table, const OpShare& share) {
  const OpTime& op = share.op;
  const auto rate = [&](std::uint64_t count) {
    return count == 0 ? std::string() : fmt::format("{:.1f}", ratio(static_cast<double>(count), op.seconds) / 1e9);
  };
  const bool limited = share.bound != Bound::none;
  table.add_row({std::string(op.name), fmt::format("{:.4f}", op.seconds),
                 fmt::format("{:.1f} %", 100.0 * share.of_time), fmt::format("{}", op.calls), rate(op.bytes),
                 rate(op.macs), limited ? fmt::format("{:.1f} %", 100.0 * share.of_limit()) : std::string(),
                 std::string(name_of(share.bound))});
}

}  // namespace

double read_seconds(double bytes, const MachineSpeed& machine) { return ratio(bytes, machine.read.bytes_per_s); }

double arithmetic_seconds(double macs, double quantised_macs, const MachineSpeed& machine) {
  return ratio(macs - quantised_macs, machine.f32.macs_per_s) +
         ratio(quantised_macs, machine.fastest_integer().macs_per_s);
}

OpProfile profile_of(const std::vector<OpTime>& times, const std::optional<MachineSpeed>& machine) {
  OpProfile profile;
  profile.all.op.name = "all";
  profile.all.of_time = times.empty() ? 0.0 : 1.0;
  double reading = 0.0;
  double total = 0.0;
  for (const OpTime& op : times) total += op.seconds;
  profile.ops.reserve(times.size());
  for (const OpTime& op : times) {
    OpShare share{.op = op, .of_time = ratio(op.seconds, total)};
    if (machine) {
      const double read = read_seconds(static_cast<double>(op.bytes), *machine);
      const double multiply =
          arithmetic_seconds(static_cast<double>(op.macs), static_cast<double>(op.quantised_macs), *machine);
      share.limit_seconds = std::max(read, multiply);
      if (share.limit_seconds > 0.0) share.bound = read >= multiply ? Bound::reading : Bound::arithmetic;
      if (share.bound == Bound::reading) reading += share.limit_seconds;
    }
    OpShare& all = profile.all;
    all.op.seconds += op.seconds;
    all.op.calls += op.calls;
    all.op.bytes += op.bytes;
    all.op.macs += op.macs;
    all.op.quantised_macs += op.quantised_macs;
    all.limit_seconds += share.limit_seconds;
    profile.ops.push_back(share);
  }
  if (profile.all.limit_seconds > 0.0) {
    profile.all.bound = 2.0 * reading >= profile.all.limit_seconds ? Bound::reading : Bound::arithmetic;
  }
  return profile;
}

std::string cache_reason(double step_bytes, const MachineSpeed& machine) {
  if (machine.caches.empty()) return "a cache holds part of what a step reads";
  const std::string read = human_bytes(static_cast<std::uint64_t>(step_bytes));
  for (const CacheLevel& cache : machine.caches) {
    if (step_bytes > static_cast<double>(cache.bytes)) continue;
    return fmt::format("the {} cache ({}) holds the {} that a step reads", cache.name, human_bytes(cache.bytes), read);
  }
  const CacheLevel& largest = machine.caches.back();
  return fmt::format("the {} cache ({}) holds part of the {} that a step reads", largest.name,
                     human_bytes(largest.bytes), read);
}

std::string_view arithmetic_reason() noexcept { return "the processor ran faster than while its peak was measured"; }

std::string excess_reason(const OpProfile& profile, const OpShare& share, const MachineSpeed& machine) {
  if (share.of_limit() <= 1.0) return {};
  if (share.bound != Bound::reading) return std::string(arithmetic_reason());
  // There is an op that comes once a step.
  std::uint64_t steps = 0;
  for (const OpShare& each : profile.ops) steps = steps == 0 ? each.op.calls : std::min(steps, each.op.calls);
  return cache_reason(ratio(static_cast<double>(profile.all.op.bytes), static_cast<double>(steps)), machine);
}

std::string excess_text(const OpProfile& profile, const MachineSpeed& machine) {
  std::string text;
  const auto add = [&](const OpShare& share) {
    const std::string reason = excess_reason(profile, share, machine);
    if (!reason.empty()) text += fmt::format("{} is above its limit: {}\n", share.op.name, reason);
  };
  for (const OpShare& share : profile.ops) add(share);
  add(profile.all);
  return text;
}

std::string profile_text(std::string_view title, const OpProfile& profile) {
  using Side = TextTable::Side;
  TextTable table({{std::string(title), Side::left},
                   {"seconds", Side::right},
                   {"share", Side::right},
                   {"calls", Side::right},
                   {"GB/s", Side::right},
                   {"GMAC/s", Side::right},
                   {"of the limit", Side::right},
                   {"set by", Side::left}});
  for (const OpShare& share : profile.ops) add_row(table, share);
  add_row(table, profile.all);
  return table.text();
}

nlohmann::ordered_json profile_json(const OpProfile& profile, const std::optional<MachineSpeed>& machine) {
  auto list = nlohmann::ordered_json::array();
  for (const OpShare& share : profile.ops) {
    nlohmann::ordered_json op{{"op", share.op.name},
                              {"seconds", share.op.seconds},
                              {"share", share.of_time},
                              {"calls", share.op.calls},
                              {"bytes", share.op.bytes},
                              {"macs", share.op.macs},
                              {"quantised_macs", share.op.quantised_macs},
                              {"share_of_limit", nullptr},
                              {"limit", nullptr}};
    if (share.bound != Bound::none) {
      op["share_of_limit"] = share.of_limit();
      op["limit"] = name_of(share.bound);
    }
    if (machine && share.of_limit() > 1.0) op["share_of_limit_reason"] = excess_reason(profile, share, *machine);
    list.push_back(std::move(op));
  }
  return list;
}

}  // namespace quarrel
