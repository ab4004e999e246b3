#include "app/op_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "app/text_table.h"

namespace quarrel {
namespace {

// Ops that multiply no weights, and the router: they compute in F32 on every machine (docs/numerics.md).
constexpr std::array<std::string_view, 4> kAlwaysF32 = {"attend", "conv", "router", "scan"};

struct PartOf {
  std::string_view op;
  std::string_view part;
};
constexpr std::array<PartOf, 20> kParts = {{{"qkv", "attention"},
                                            {"attend", "attention"},
                                            {"attention out", "attention"},
                                            {"glu", "feed-forward"},
                                            {"down", "feed-forward"},
                                            {"router", "feed-forward"},
                                            {"experts", "feed-forward"},
                                            {"shared experts", "feed-forward"},
                                            {"ssm in", "recurrent"},
                                            {"conv", "recurrent"},
                                            {"scan inputs", "recurrent"},
                                            {"scan", "recurrent"},
                                            {"ssm out", "recurrent"},
                                            {"projections", "recurrent"},
                                            {"norms", "norms"},
                                            {"norms and int8", "norms"},
                                            {"head", "head and sampling"},
                                            {"sampling", "head and sampling"},
                                            {"embedding", "rest"},
                                            {"other", "rest"}}};

MultiplyAdds macs_of(const OpTime& op, WeightKind floats) {
  const bool always_f32 = std::ranges::find(kAlwaysF32, op.name) != kAlwaysF32.end();
  MultiplyAdds macs;
  macs[always_f32 ? WeightKind::f32 : floats] = static_cast<double>(op.macs - op.quantised_macs);
  macs[WeightKind::quantised] = static_cast<double>(op.quantised_macs);
  return macs;
}

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
    return count == 0 ? std::string() : fmt::format("{:.1f}", quotient(static_cast<double>(count), op.seconds) / 1e9);
  };
  const bool limited = share.bound != Bound::none;
  table.add_row({std::string(op.name), fmt::format("{:.4f}", op.seconds),
                 fmt::format("{:.1f} %", 100.0 * share.of_time), fmt::format("{}", op.calls), rate(op.bytes),
                 rate(op.macs), limited ? fmt::format("{:.1f} %", 100.0 * share.of_limit()) : std::string(),
                 std::string(name_of(share.bound))});
}

}  // namespace

OpProfile profile_of(const std::vector<OpTime>& times, const std::optional<MachineSpeed>& machine, WeightKind floats) {
  OpProfile profile;
  profile.all.op.name = "all";
  profile.all.of_time = times.empty() ? 0.0 : 1.0;
  double reading = 0.0;
  double total = 0.0;
  for (const OpTime& op : times) total += op.seconds;
  profile.ops.reserve(times.size());
  for (const OpTime& op : times) {
    OpShare share{.op = op, .of_time = quotient(op.seconds, total)};
    if (machine) {
      const double read = read_seconds(static_cast<double>(op.bytes), *machine);
      const double multiply = arithmetic_seconds(macs_of(op, floats), *machine);
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

std::string excess_reason(const OpProfile& profile, const OpShare& share, const MachineSpeed& machine) {
  if (share.of_limit() <= 1.0) return {};
  if (share.bound != Bound::reading) return std::string(arithmetic_reason());
  // There is an op that comes once a step.
  std::uint64_t steps = 0;
  for (const OpShare& each : profile.ops) steps = steps == 0 ? each.op.calls : std::min(steps, each.op.calls);
  return cache_reason(quotient(static_cast<double>(profile.all.op.bytes), static_cast<double>(steps)), machine);
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

std::vector<PartTime> parts_of(const OpProfile& profile) {
  std::vector<PartTime> parts{{.name = "attention"}, {.name = "feed-forward"},      {.name = "recurrent"},
                              {.name = "norms"},     {.name = "head and sampling"}, {.name = "rest"}};
  for (const OpShare& share : profile.ops) {
    const auto* const known = std::ranges::find(kParts, share.op.name, &PartOf::op);
    const std::string_view name = known == kParts.end() ? "rest" : known->part;
    PartTime& part = *std::ranges::find(parts, name, &PartTime::name);
    part.seconds += share.op.seconds;
    part.of_time += share.of_time;
  }
  std::erase_if(parts, [](const PartTime& part) { return part.seconds <= 0.0; });
  return parts;
}

nlohmann::ordered_json parts_json(const OpProfile& profile) {
  auto json = nlohmann::ordered_json::object();
  for (const PartTime& part : parts_of(profile)) {
    json[part.name] = {{"seconds", part.seconds}, {"share", part.of_time}};
  }
  return json;
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
  std::string parts;
  for (const PartTime& part : parts_of(profile)) {
    parts += fmt::format("{}{} {:.1f} %", parts.empty() ? "" : ", ", part.name, 100.0 * part.of_time);
  }
  return table.text() + (parts.empty() ? "" : parts + "\n");
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
