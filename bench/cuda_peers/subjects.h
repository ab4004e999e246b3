// What is measured beside others' kernels, one file each. A subject times ours and theirs on the same data, and checks
// that the results are the same but for rounding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cuda/fixture.h"
#include "cuda_peers/peers.h"

namespace quarrel::cuda {

void compare_gemms(Fixture& fixture);
void compare_prompts(Fixture& fixture);
void compare_rows(Fixture& fixture);
void compare_draws(Fixture& fixture);

// As NMSE. Rounding queries, weights of values and results to F16 is about 1e-7 together.
inline constexpr double kPeerBound = 1e-5;

std::vector<std::uint16_t> to_halves(std::span<const float> values);
std::vector<float> results_of(const DeviceBuffer& halves);
// The first call's results against ours.
void check_peer(Fixture& fixture, const std::string& name, const PeerCall& call, const DeviceBuffer& out,
                std::span<const float> ours);

}  // namespace quarrel::cuda
