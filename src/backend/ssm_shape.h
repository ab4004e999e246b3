// Where things lie in a recurrent layer, and whether an op fits its input, output, projections and state: what every
// backend's `ssm` begins with. Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <span>

#include "backend/backend.h"

namespace quarrel {

struct SsmShape {
  std::size_t heads = 0;  // version 1: every channel is a head of its own
  std::size_t dim = 0;    // of a head
  std::size_t state = 0;
  std::size_t inner = 0;                      // heads * dim
  std::size_t ssm_groups = 1;                 // heads of one share B and C
  std::size_t channels = 0;                   // that the convolution runs over: x, and in version 2 B and C
  std::size_t history = 0;                    // inputs that the convolution remembers: its width less one
  std::size_t z_at = 0, x_at = 0, dt_at = 0;  // in a row of the input; dt in version 2 alone
};

// Throws Error(internal) for an op that is malformed or does not fit `layers`, the state that slots were made for.
SsmShape ssm_shape(const SsmOp& op, std::span<const StateLayer> layers);

}  // namespace quarrel
