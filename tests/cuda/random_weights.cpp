#include "cuda/random_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/repack.h"
#include "backend/cuda/upload.h"
#include "base/as_size.h"
#include "base/error.h"
#include "quant/blocks.h"
#include "quant/decode.h"
#include "quant/half.h"

namespace quarrel::cuda {
namespace {

// Where a block has its halves, and how much larger than a scale its values are.
struct BlockScales {
  std::size_t scale_at;
  std::size_t minimum_at;  // 0: none
  float typical;
  float minimum_share;
};

BlockScales block_scales(QuantType type) {
  switch (type) {
    case QuantType::q4_0: return {offsetof(BlockQ4_0, scale), 0, 4.6f, 0.0f};
    case QuantType::q4_1: return {offsetof(BlockQ4_1, scale), offsetof(BlockQ4_1, minimum), 4.6f, -7.5f};
    case QuantType::q5_0: return {offsetof(BlockQ5_0, scale), 0, 9.2f, 0.0f};
    case QuantType::q5_1: return {offsetof(BlockQ5_1, scale), offsetof(BlockQ5_1, minimum), 9.2f, -15.5f};
    case QuantType::q8_0: return {offsetof(BlockQ8_0, scale), 0, 74.0f, 0.0f};
    case QuantType::q4_k: return {offsetof(BlockQ4K, scale), offsetof(BlockQ4K, min_scale), 290.0f, 7.5f};
    case QuantType::q5_k: return {offsetof(BlockQ5K, scale), offsetof(BlockQ5K, min_scale), 590.0f, 15.5f};
    case QuantType::q6_k: return {offsetof(BlockQ6K, scale), 0, 1360.0f, 0.0f};
    default: fail(ErrorKind::internal, "no random blocks for this type");
  }
}

}  // namespace

std::vector<std::byte> random_blocks(QuantType type, int rows, int columns, float deviation, std::mt19937_64& random) {
  const TypeInfo& info = type_info(type);
  const std::size_t bytes = as_size(rows) * row_bytes(info, as_size(columns));
  std::vector<std::byte> blocks(bytes + 8);
  for (std::size_t at = 0; at < bytes; at += 8) {
    const std::uint64_t word = random();
    std::memcpy(blocks.data() + at, &word, 8);
  }
  blocks.resize(bytes);
  if (type == QuantType::mxfp4) {
    // The numbers are 2.7 on the average; exponents are those of scales around the one that is asked for.
    const int exponent = 127 + static_cast<int>(std::lround(std::log2(deviation / 2.7f)));
    for (std::size_t at = 0; at < bytes; at += info.block_bytes) {
      blocks[at] = static_cast<std::byte>(exponent - 1 + static_cast<int>(random() % 3));
    }
    return blocks;
  }
  const BlockScales places = block_scales(type);
  std::uniform_real_distribution<float> uniform(0.5f, 1.5f);
  for (std::size_t at = 0; at < bytes; at += info.block_bytes) {
    const float scale = deviation / places.typical * uniform(random);
    const std::uint16_t half = f32_to_f16(scale);
    std::memcpy(blocks.data() + at + places.scale_at, &half, sizeof half);
    if (places.minimum_share != 0.0f) {
      const std::uint16_t minimum = f32_to_f16(scale * places.minimum_share * uniform(random));
      std::memcpy(blocks.data() + at + places.minimum_at, &minimum, sizeof minimum);
    }
  }
  return blocks;
}

RandomMatrix::RandomMatrix(WeightFormat format, int rows, int columns, std::mt19937_64& random)
    : blocks(random_blocks(quant_type(format), rows, columns, 1.0f / std::sqrt(static_cast<float>(columns)), random)) {
  packed = {.data = nullptr, .format = format, .rows = rows, .columns = columns};
  memory = DeviceBuffer(packed.bytes(), "weights");
  check(cudaMemset(memory.data(), 0xff, memory.size()), "poison");
  packed.data = memory.data();
  WeightUploader uploader(0, std::size_t{8} << 20);
  uploader.upload(packed, blocks.data(), row_bytes(type_info(quant_type(format)), as_size(columns)));
  uploader.finish();
}

std::vector<float> RandomMatrix::row(int row) const {
  std::vector<float> values(as_size(packed.columns));
  const std::size_t bytes = row_bytes(type_info(quant_type(packed.format)), values.size());
  decode_row(quant_type(packed.format), blocks.data() + as_size(row) * bytes, values.data(), values.size());
  return values;
}

RandomHalves::RandomHalves(int rows, int columns, std::mt19937_64& random)
    : halves(as_size(rows) * as_size(columns)), memory(halves.size() * sizeof(HalfBits), "weights") {
  std::normal_distribution<float> normal(0.0f, 1.0f / std::sqrt(static_cast<float>(columns)));
  // Not all of a large matrix: the same numbers again and again, from another one on in each row.
  std::vector<HalfBits> some(std::min<std::size_t>(halves.size(), 100003));
  for (HalfBits& half : some) half = f32_to_f16(normal(random));
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = some[i % some.size()];
  check(cudaMemcpy(memory.data(), halves.data(), memory.size(), cudaMemcpyHostToDevice), "weights");
  dense = {.data = memory.data(), .is_f16 = true, .rows = rows, .columns = columns};
}

std::vector<float> RandomHalves::row(int row) const {
  std::vector<float> values(as_size(dense.columns));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = f16_to_f32(halves[as_size(row) * values.size() + i]);
  return values;
}

namespace {

DeviceBuffer copy_of_weights(const void* data, std::size_t bytes) {
  DeviceBuffer buffer(bytes, "weights");
  check(cudaMemcpy(buffer.data(), data, bytes, cudaMemcpyDeviceToDevice), "copy of weights");
  return buffer;
}

}  // namespace

DeviceBuffer copy_of(const PackedMatrix& matrix) { return copy_of_weights(matrix.data, matrix.bytes()); }

DeviceBuffer copy_of(const DenseMatrix& matrix) {
  return copy_of_weights(matrix.data, as_size(matrix.rows) * as_size(matrix.columns) * sizeof(HalfBits));
}

}  // namespace quarrel::cuda
