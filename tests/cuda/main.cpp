// cuda_kernels [--check] [--seed N] [--shared KIB] [subject …]: tests every kernel against sums in double and, without
// --check, times it. Random numbers are others in every run, unless the seed that a run has printed is given again.
// --shared 99 is what GPUs other than Hopper and A100 have: no thread block may ask for more, and none of Hopper's own
// kernels runs.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <string>

#include "base/error.h"
#include "cuda/fixture.h"

namespace {

constexpr int kSkipped = 77;

struct Subject {
  const char* name;
  void (*run)(quarrel::cuda::Fixture&);
};

constexpr Subject kSubjects[] = {
    {"weights", quarrel::cuda::test_weights}, {"rowwise", quarrel::cuda::test_rowwise},
    {"gemv", quarrel::cuda::test_gemv},       {"attention", quarrel::cuda::test_attention},
    {"prefill", quarrel::cuda::test_prefill}, {"gemm", quarrel::cuda::test_gemm},
    {"layer", quarrel::cuda::test_layer},     {"packed", quarrel::cuda::test_packed_gemm},
    {"experts", quarrel::cuda::test_experts}, {"sampling", quarrel::cuda::test_sampling},
    {"edits", quarrel::cuda::test_edits},     {"scan", quarrel::cuda::test_scan},
};

}  // namespace

int main(int argc, char** argv) {
  bool times = true;
  std::uint64_t seed = std::random_device{}();
  int shared_kib = 0;
  std::set<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--check") == 0) {
      times = false;
    } else if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (std::strcmp(argv[i], "--shared") == 0 && i + 1 < argc) {
      shared_kib = std::atoi(argv[++i]);
    } else if (std::ranges::any_of(kSubjects,
                                   [&](const Subject& each) { return std::strcmp(each.name, argv[i]) == 0; })) {
      wanted.insert(argv[i]);
    } else {
      std::printf("error: there is no option and no subject '%s'\n", argv[i]);
      return 2;
    }
  }
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device (%s)\n", cudaGetErrorString(status));
    return kSkipped;
  }
  try {
    quarrel::cuda::Fixture fixture(times, seed, shared_kib);
    if (times) fixture.report("copy: " + std::to_string(fixture.copy_rate() * 1e-9) + " GB/s, read and written");
    for (const Subject& subject : kSubjects) {
      if (!wanted.empty() && !wanted.contains(subject.name)) continue;
      std::printf("%s\n", subject.name);
      subject.run(fixture);
    }
    return fixture.finish() == 0 ? 0 : 1;
  } catch (const quarrel::Error& error) {
    std::printf("FAILED: %s\n", error.what());
    return 1;
  }
}
