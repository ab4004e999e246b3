// Where a model's time went, op by op, and how near each op came to what the machine could do at best: the longer of
// the time that reading its bytes takes and of the time that its multiply-adds take. Used by `bench`. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "app/machine_speed.h"
#include "backend/backend.h"

namespace quarrel {

enum class Bound { none, reading, arithmetic };

struct OpShare {
  OpTime op;
  double of_time = 0.0;        // of all ops together
  double limit_seconds = 0.0;  // what the machine needs at best; 0: nothing was counted
  Bound bound = Bound::none;   // which of the two that is

  double of_limit() const noexcept { return op.seconds > 0.0 ? limit_seconds / op.seconds : 0.0; }
};

struct OpProfile {
  std::vector<OpShare> ops;  // as they were given
  OpShare all;               // the sum; its limit is the sum of theirs
};

// How long these bytes and multiply-adds take at best. Quantised weights are held to the fastest integer arithmetic,
// the others to F32.
double read_seconds(double bytes, const MachineSpeed& machine);
double arithmetic_seconds(double macs, double quantised_macs, const MachineSpeed& machine);

// Why reading these bytes again and again may go beyond the read bandwidth of memory: the cache that holds them, or
// part of them, as the end of a sentence: "the L3 cache (32.0 MB) holds the 20.1 MB that a step reads".
std::string cache_reason(double step_bytes, const MachineSpeed& machine);

// The same for multiply-adds beyond the measured peak.
std::string_view arithmetic_reason() noexcept;

// Why an op of the profile, or all together, is above its limit; empty: it is not.
std::string excess_reason(const OpProfile& profile, const OpShare& share, const MachineSpeed& machine);
// A line for each op above its limit that says why; empty if there is none.
std::string excess_text(const OpProfile& profile, const MachineSpeed& machine);

// Without a machine there are no limits.
OpProfile profile_of(const std::vector<OpTime>& times, const std::optional<MachineSpeed>& machine);

std::string profile_text(std::string_view title, const OpProfile& profile);
// What is above its limit has a `share_of_limit_reason`.
nlohmann::ordered_json profile_json(const OpProfile& profile, const std::optional<MachineSpeed>& machine);

}  // namespace quarrel
