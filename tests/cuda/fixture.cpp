#include "cuda/fixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <thread>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/device_speed.h"
#include "backend/cuda/register_gemm.h"
#include "base/as_size.h"
#include "cuda/shared_use.h"

namespace quarrel::cuda {

Difference difference(std::span<const float> results, std::span<const double> exact) {
  Difference found;
  double squares = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double distance = static_cast<double>(results[i]) - exact[i];
    if (!std::isfinite(distance)) {
      const double infinity = std::numeric_limits<double>::infinity();
      return {.nmse = infinity, .largest = infinity};
    }
    squares += distance * distance;
    norm += exact[i] * exact[i];
    found.largest = std::max(found.largest, std::abs(distance));
  }
  found.nmse = norm > 0.0 ? squares / norm : squares;
  return found;
}

void parallel_for(int count, const std::function<void(int)>& body) {
  std::atomic<int> next = 0;
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      for (int index = next++; index < count; index = next++) body(index);
    });
  }
}

std::vector<float> random_values(std::size_t count, float deviation, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

void copy_to_device(void* to, const void* from, std::size_t bytes) {
  cuda::check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copy of test data");
}

void copy_to_host(void* to, const void* from, std::size_t bytes) {
  cuda::check(cudaDeviceSynchronize(), "kernels before a copy");
  cuda::check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copy of results");
}

DeviceBuffer poisoned(std::size_t bytes) {
  DeviceBuffer buffer(bytes, "results");
  poison(buffer);
  return buffer;
}

void poison(const DeviceBuffer& buffer) {
  cuda::check(cudaMemset(buffer.data(), 0xff, buffer.size()), "poison");
  cuda::check(cudaDeviceSynchronize(), "poison");
}

std::vector<std::uint16_t> rows_of_image(const std::vector<std::uint16_t>& image, int rows, int columns) {
  const int places = image_rows(rows);
  const std::size_t chunk_numbers = register_image_numbers(rows, kChunkColumns);
  std::vector<std::uint16_t> halves;
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      const int within = c % 16;
      const int ordered = c % 64 - within + within % 2 * 8 + within / 2;
      const int piece = ordered / 8 ^ r % 8;
      halves.push_back(image[as_size(c / kChunkColumns) * chunk_numbers +
                             as_size((c % kChunkColumns / 64 * places + r) * 64 + piece * 8 + ordered % 8)]);
    }
  }
  return halves;
}

Fixture::Fixture(bool times, std::uint64_t seed, int shared_kib)
    : context_(launch_context(0, stream_)), random_(seed), times_(times), is_limited_(shared_kib > 0) {
  report(fmt::format("seed {}", seed));
  if (is_limited_) {
    context_.shared_bytes = shared_kib * 1024;
    context_.dependent_launch = false;
    context_.has_wgmma = false;
  }
  if (times_) measure_copy_rate();
}

LaunchContext Fixture::context_without_overlap() const {
  LaunchContext context = context_;
  context.dependent_launch = false;
  return context;
}

void Fixture::measure_copy_rate() {
  constexpr std::size_t kBytes = std::size_t{2} << 30;
  const DeviceBuffer from(kBytes, "copy");
  const DeviceBuffer to(kBytes, "copy");
  cuda::check(cudaMemset(from.data(), 0x5a, kBytes), "copy");
  const double time = microseconds(
      4, context_, [&](int, const LaunchContext& context) { copy_on_device(context, to.data(), from.data(), kBytes); });
  copy_rate_ = 2.0 * static_cast<double>(kBytes) / (time * 1e-6);
}

double Fixture::microseconds(int count, const LaunchContext& context,
                             const std::function<void(int, const LaunchContext&)>& launch, int replays) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cuda::check(cudaStreamSynchronize(context.stream), "before a capture");
  cuda::check(cudaStreamBeginCapture(context.stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < count; ++i) launch(i, context);
  cuda::check(cudaStreamEndCapture(context.stream, &graph), "capture");
  cuda::check(cudaGraphInstantiate(&executable, graph, 0), "instantiate a graph");
  const Event begin(true);
  const Event end(true);
  std::vector<double> times;
  // An idle GPU takes a while to raise its clocks.
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(40)) {
    cuda::check(cudaGraphLaunch(executable, context.stream), "launch a graph");
    cuda::check(cudaStreamSynchronize(context.stream), "warm up");
  }
  for (int i = 0; i < replays; ++i) {
    cuda::check(cudaEventRecord(begin.get(), context.stream), "time");
    cuda::check(cudaGraphLaunch(executable, context.stream), "launch a graph");
    cuda::check(cudaEventRecord(end.get(), context.stream), "time");
    end.synchronize();
    times.push_back(static_cast<double>(begin.until(end)) * 1e3 / count);
  }
  cuda::check(cudaGraphExecDestroy(executable), "graph");
  cuda::check(cudaGraphDestroy(graph), "graph");
  std::ranges::sort(times);
  return times[times.size() / 2];
}

void Fixture::check(const std::string& name, const Difference& difference, double bound) {
  ++checks_;
  if (difference.nmse <= bound) {
    std::printf("  %-58s NMSE %.1e, largest %.1e\n", name.c_str(), difference.nmse, difference.largest);
    return;
  }
  ++failures_;
  report(fmt::format("FAILED {}: NMSE {:.3e} (bound {:.1e}), largest difference {:.3e}", name, difference.nmse, bound,
                     difference.largest));
}

void Fixture::check(const std::string& name, bool right, const std::string& what) {
  ++checks_;
  if (right) {
    std::printf("  %-58s %s\n", name.c_str(), what.c_str());
    return;
  }
  ++failures_;
  report(fmt::format("FAILED {}: not {}", name, what));
}

void Fixture::report_bytes(const std::string& name, double microseconds, double bytes) {
  const double rate = bytes / (microseconds * 1e-6);
  report(fmt::format("{:<58} {:9.2f} us {:8.0f} GB/s {:5.1f} % of copy", name, microseconds, rate * 1e-9,
                     100.0 * rate / copy_rate_));
}

void Fixture::report_operations(const std::string& name, double microseconds, double operations) {
  const double rate = operations / (microseconds * 1e-6);
  report(fmt::format("{:<58} {:9.2f} us {:8.1f} TFLOP/s {:5.1f} % of GEMM", name, microseconds, rate * 1e-12,
                     gemm_rate_ > 0.0 ? 100.0 * rate / gemm_rate_ : 0.0));
}

void Fixture::report(const std::string& line) {
  lines_.push_back(line);
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

int Fixture::finish() {
  const SharedUse& use = largest_shared_use();
  check("shared memory of a thread block",
        use.launches > 0 && use.bytes <= static_cast<std::size_t>(context_.shared_bytes),
        fmt::format("within {} bytes: {} in {}", context_.shared_bytes, use.bytes, use.kernel));
  std::printf("\n");
  for (const std::string& line : lines_) std::printf("%s\n", line.c_str());
  std::printf("%d of %d checks passed\n", checks_ - failures_, checks_);
  return failures_;
}

}  // namespace quarrel::cuda
