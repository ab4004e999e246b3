#include "cuda_peers/subjects.h"

#include <algorithm>

#include "quant/half.h"

namespace quarrel::cuda {

std::vector<std::uint16_t> to_halves(std::span<const float> values) {
  std::vector<std::uint16_t> halves(values.size());
  std::ranges::transform(values, halves.begin(), f32_to_f16);
  return halves;
}

std::vector<float> results_of(const DeviceBuffer& halves) {
  const auto bits = to_host(halves.as<std::uint16_t>(), halves.size() / 2);
  std::vector<float> values(bits.size());
  std::ranges::transform(bits, values.begin(), f16_to_f32);
  return values;
}

void check_peer(Fixture& fixture, const std::string& name, const PeerCall& call, const DeviceBuffer& out,
                std::span<const float> ours) {
  poison(out);
  call(fixture.context());
  fixture.check(name, difference(results_of(out), std::vector<double>(ours.begin(), ours.end())), kPeerBound);
}

}  // namespace quarrel::cuda
