// What the kernel tests share: a device with a stream, random data, comparison with sums in double, timing by replayed
// graphs, and the table that is printed last.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/device_memory.h"

namespace quarrel::cuda {

// How far results are from exact ones: NMSE = Σ(a-b)² / Σb², infinite if anything is not finite that should be.
struct Difference {
  double nmse = 0.0;
  double largest = 0.0;
};
Difference difference(std::span<const float> results, std::span<const double> exact);

// Calls body(i) for i in [0, count) on all cores.
void parallel_for(int count, const std::function<void(int)>& body);

std::vector<float> random_values(std::size_t count, float deviation, std::mt19937_64& random);

template <typename T>
DeviceBuffer to_device(std::span<const T> values, const char* purpose);
template <typename T>
std::vector<T> to_host(const T* place, std::size_t count);

// Device memory filled with bytes that are NaN as floats: what nobody wrote shows.
DeviceBuffer poisoned(std::size_t bytes);
void poison(const DeviceBuffer& buffer);

// Rows as register_gemm()'s image of them has them, one after the other.
std::vector<std::uint16_t> rows_of_image(const std::vector<std::uint16_t>& image, int rows, int columns);

class Fixture {
 public:
  // All random numbers follow from the seed, which is printed. `shared_kib`: kernels are to do with as much shared
  // memory a thread block, and without what Hopper alone has; 0: as the device is.
  Fixture(bool times, std::uint64_t seed, int shared_kib = 0);

  const LaunchContext& context() const noexcept { return context_; }
  LaunchContext context_without_overlap() const;
  const Stream& stream() const noexcept { return stream_; }
  std::mt19937_64& random() noexcept { return random_; }
  bool times() const noexcept { return times_; }
  // With less shared memory than the device has: what takes more is left out, as the backend leaves it out.
  bool is_limited() const noexcept { return is_limited_; }

  double copy_rate() const noexcept { return copy_rate_; }  // bytes a second, read and written
  double gemm_rate() const noexcept { return gemm_rate_; }  // operations a second
  void set_gemm_rate(double rate) noexcept { gemm_rate_ = rate; }

  // Microseconds of one of `count` calls of `launch(i, context)`, captured as one graph and replayed; the median.
  double microseconds(int count, const LaunchContext& context,
                      const std::function<void(int, const LaunchContext&)>& launch, int replays = 7);

  // A line of the table. A bound that is exceeded fails the run.
  void check(const std::string& name, const Difference& difference, double bound);
  void check(const std::string& name, bool right, const std::string& what);
  void report_bytes(const std::string& name, double microseconds, double bytes);
  void report_operations(const std::string& name, double microseconds, double operations);
  void report(const std::string& line);
  // Prints the table; the number of failures.
  int finish();

 private:
  void measure_copy_rate();

  Stream stream_;
  LaunchContext context_;
  std::mt19937_64 random_;
  bool times_;
  bool is_limited_;
  double copy_rate_ = 0.0;
  double gemm_rate_ = 0.0;
  int failures_ = 0;
  int checks_ = 0;
  std::vector<std::string> lines_;
};

// The subjects, one file each.
void test_weights(Fixture& fixture);
void test_rowwise(Fixture& fixture);
void test_gemv(Fixture& fixture);
void test_attention(Fixture& fixture);
void test_prefill(Fixture& fixture);
void test_gemm(Fixture& fixture);
void test_layer(Fixture& fixture);
void test_packed_gemm(Fixture& fixture);
void test_experts(Fixture& fixture);
void test_sampling(Fixture& fixture);
void test_edits(Fixture& fixture);
void test_scan(Fixture& fixture);

// ---- Templates ----

void copy_to_device(void* to, const void* from, std::size_t bytes);
void copy_to_host(void* to, const void* from, std::size_t bytes);

template <typename T>
DeviceBuffer to_device(std::span<const T> values, const char* purpose) {
  DeviceBuffer buffer(values.size_bytes(), purpose);
  copy_to_device(buffer.data(), values.data(), values.size_bytes());
  return buffer;
}
template <typename T>
DeviceBuffer to_device(const std::vector<T>& values, const char* purpose = "test data") {
  return to_device(std::span<const T>(values), purpose);
}

template <typename T>
std::vector<T> to_host(const T* place, std::size_t count) {
  std::vector<T> values(count);
  copy_to_host(values.data(), place, count * sizeof(T));
  return values;
}

}  // namespace quarrel::cuda
