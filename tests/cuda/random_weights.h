// Matrices of random blocks: every code and every packed scale occurs, and the values have a given size.
#pragma once

#include <random>
#include <vector>

#include "backend/cuda/dense_gemv.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/weight_format.h"
#include "quant/blocks.h"
#include "quant/types.h"

namespace quarrel::cuda {

// Rows of blocks as a file has them; the values' deviation is about `deviation`.
std::vector<std::byte> random_blocks(QuantType type, int rows, int columns, float deviation, std::mt19937_64& random);

// A packed matrix with its memory, and the blocks it was made of.
struct RandomMatrix {
  RandomMatrix(WeightFormat format, int rows, int columns, std::mt19937_64& random);

  // Row `row` as quant/ decodes it.
  std::vector<float> row(int row) const;

  std::vector<std::byte> blocks;
  DeviceBuffer memory;
  PackedMatrix packed;
};

// The same in F16.
struct RandomHalves {
  RandomHalves(int rows, int columns, std::mt19937_64& random);

  std::vector<float> row(int row) const;

  std::vector<HalfBits> halves;
  DeviceBuffer memory;
  DenseMatrix dense;
};

// Another copy of the weights, so that timing does not read from the cache.
DeviceBuffer copy_of(const PackedMatrix& matrix);
DeviceBuffer copy_of(const DenseMatrix& matrix);  // of F16

}  // namespace quarrel::cuda
