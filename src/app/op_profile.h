// Where a model's time went, op by op, and how near each op came to what the machine could do at best: the longer of
// the time that reading its bytes takes and of the time that its multiply-adds take. Used by `bench`. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "app/machine_limits.h"
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

// Why an op of the profile, or all together, is above its limit; empty: it is not.
std::string excess_reason(const OpProfile& profile, const OpShare& share, const MachineSpeed& machine);
// A line for each op above its limit that says why; empty if there is none.
std::string excess_text(const OpProfile& profile, const MachineSpeed& machine);

// Without a machine there are no limits. `floats`: what multiply-adds with float weights are held to. An op's are
// counted without their kind, so for prompts it is the fastest of the model's kinds: where there are several, ops with
// slower ones get too small a share, but none is above 100 % because of its weights. Generated rows are multiplied with
// float weights in F32.
OpProfile profile_of(const std::vector<OpTime>& times, const std::optional<MachineSpeed>& machine,
                     WeightKind floats = WeightKind::f32);

// The parts of a model that ops belong to: attention, feed-forward, recurrent layers, norms, head and sampling, the
// rest. Those without time are left out.
struct PartTime {
  std::string_view name;
  double seconds = 0.0;
  double of_time = 0.0;
};
std::vector<PartTime> parts_of(const OpProfile& profile);

std::string profile_text(std::string_view title, const OpProfile& profile);
nlohmann::ordered_json parts_json(const OpProfile& profile);
// What is above its limit has a `share_of_limit_reason`.
nlohmann::ordered_json profile_json(const OpProfile& profile, const std::optional<MachineSpeed>& machine);

}  // namespace quarrel
