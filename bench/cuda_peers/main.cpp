// cuda_peers [--check] [--seed N] [subject …]: ours beside FlashInfer's and CUTLASS's kernels, on the same data in the
// same run. Without --check everything is timed too.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <random>
#include <set>
#include <string>

#include "cuda_peers/subjects.h"

namespace {

constexpr int kSkipped = 77;
constexpr int kHopper = 9;

struct Subject {
  const char* name;
  void (*run)(quarrel::cuda::Fixture&);
};

// The first one says what the others' shares of a GEMM are shares of.
constexpr Subject kSubjects[] = {
    {"gemms", quarrel::cuda::compare_gemms},
    {"prompts", quarrel::cuda::compare_prompts},
    {"rows", quarrel::cuda::compare_rows},
    {"draws", quarrel::cuda::compare_draws},
};

bool has_hopper() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device (%s)\n", cudaGetErrorString(status));
    return false;
  }
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  if (major != kHopper) {
    std::printf("skipped: what is compared is compiled for Hopper, and this device is not one\n");
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  bool times = true;
  std::uint64_t seed = std::random_device{}();
  std::set<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--check") == 0) {
      times = false;
    } else if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (std::ranges::any_of(kSubjects,
                                   [&](const Subject& each) { return std::strcmp(each.name, argv[i]) == 0; })) {
      wanted.insert(argv[i]);
    } else {
      std::printf("error: there is no option and no subject '%s'\n", argv[i]);
      return 2;
    }
  }
  if (!has_hopper()) return kSkipped;
  try {
    quarrel::cuda::Fixture fixture(times, seed);
    if (times) fixture.report("copy: " + std::to_string(fixture.copy_rate() * 1e-9) + " GB/s, read and written");
    for (const Subject& subject : kSubjects) {
      if (!wanted.empty() && !wanted.contains(subject.name)) continue;
      std::printf("%s\n", subject.name);
      subject.run(fixture);
    }
    return fixture.finish() == 0 ? 0 : 1;
  } catch (const std::exception& error) {  // ours, and those that FlashInfer throws
    std::printf("FAILED: %s\n", error.what());
    return 1;
  }
}
