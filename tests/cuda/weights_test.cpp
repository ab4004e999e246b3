// Upload and repacking: what comes back is bit for bit what quant/ decodes.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstring>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/repack.h"
#include "backend/cuda/upload.h"
#include "base/as_size.h"
#include "cuda/fixture.h"
#include "cuda/random_weights.h"
#include "quant/half.h"

namespace quarrel::cuda {
namespace {

void test_round_trip(Fixture& fixture, WeightFormat format, int rows, int columns) {
  const std::string name = fmt::format("{} {}x{}", type_info(quant_type(format)).name, rows, columns);
  const RandomMatrix matrix(format, rows, columns, fixture.random());
  std::vector<std::int32_t> ids;
  for (int i = rows - 1; i >= 0; --i) ids.push_back(i);
  ids.push_back(-1);
  ids.push_back(rows);
  const DeviceBuffer device_ids = to_device(ids);
  const DeviceBuffer out = poisoned(ids.size() * as_size(columns) * sizeof(float));
  decode_rows(fixture.context(), matrix.packed, device_ids.as<std::int32_t>(), static_cast<int>(ids.size()), 1.0f,
              out.as<float>(), columns);
  const DeviceBuffer halves = poisoned(as_size(rows) * as_size(columns) * 2);
  decode_to_f16(fixture.context(), matrix.packed, halves.as<std::uint16_t>());
  const auto values = to_host(out.as<float>(), ids.size() * as_size(columns));
  const auto half_values = to_host(halves.as<std::uint16_t>(), as_size(rows) * as_size(columns));
  bool same = true;
  bool same_halves = true;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::vector<float> exact(as_size(columns));
    const bool exists = ids[i] >= 0 && ids[i] < rows;
    if (exists) exact = matrix.row(ids[i]);
    same = same && std::memcmp(exact.data(), values.data() + i * as_size(columns), exact.size() * sizeof(float)) == 0;
    for (std::size_t c = 0; exists && c < as_size(columns); ++c) {
      same_halves = same_halves && half_values[as_size(ids[i]) * as_size(columns) + c] == f32_to_f16(exact[c]);
    }
  }
  fixture.check("repack and decode rows " + name, same, "the bits that quant/ decodes");
  fixture.check("decode to f16 " + name, same_halves, "the same, rounded once");
}

void time_upload(Fixture& fixture) {
  constexpr int kRows = 65536;
  constexpr int kColumns = 14336;
  std::mt19937_64 random(1);
  PackedMatrix target{.data = nullptr, .format = WeightFormat::q4_k, .rows = kRows, .columns = kColumns};
  const DeviceBuffer memory(target.bytes(), "weights");
  target.data = memory.data();
  const std::size_t bytes = row_bytes(type_info(QuantType::q4_k), kColumns);
  std::vector<std::byte> source(bytes * kRows, std::byte{0x35});
  WeightUploader uploader(0);
  const auto begin = std::chrono::steady_clock::now();
  uploader.upload(target, source.data(), bytes);
  uploader.finish();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  fixture.report(fmt::format("{:<58} {:9.0f} ms {:8.2f} GB/s", "upload and repack Q4_K, one thread",
                             seconds.count() * 1e3, static_cast<double>(source.size()) * 1e-9 / seconds.count()));
}

}  // namespace

void test_weights(Fixture& fixture) {
  for (int format = 0; format <= static_cast<int>(WeightFormat::mxfp4); ++format) {
    const auto f = static_cast<WeightFormat>(format);
    test_round_trip(fixture, f, 64, 512);
    test_round_trip(fixture, f, 37, 256);
    if (!is_k_format(f)) test_round_trip(fixture, f, 32, 352);
  }
  if (fixture.times()) time_upload(fixture);
}

}  // namespace quarrel::cuda
