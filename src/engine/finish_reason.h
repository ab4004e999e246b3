// Why an answer ended, as whoever asked for it is told: the one place that knows it from how the engine ends a branch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "sched/request.h"

namespace quarrel {

enum class FinishReason : std::uint8_t { stop, length, context, cancelled, timeout };

// Of a branch that ended for `reason` with so many tokens, of at most `max_tokens` (-1: what the context leaves). None:
// it failed, which is an error and no answer.
std::optional<FinishReason> finish_reason(EndReason reason, std::size_t tokens, std::int32_t max_tokens) noexcept;

}  // namespace quarrel
