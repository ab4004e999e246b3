// Rows as register_gemm() takes them: normed, and before that completed, where a GEMM has left its sums in parts that
// are still to be added to them. A row has a cluster of thread blocks, so that eight rows are read by half of the
// device; its bits do not depend on its neighbours. On Hopper alone.
#pragma once

#include "backend/cuda/device_memory.h"
#include "backend/cuda/packed_gemm.h"
#include "backend/cuda/row_ops.h"

namespace quarrel::cuda {

inline constexpr int kMaxImageColumns = 16384;

struct RowImageOp {
  RowSpan rows = {};  // their width is a multiple of 16, at most kMaxImageColumns
  // Unless its parts are null, this (which stores or adds) is done first; `rows` are its results then.
  JoinPartsOp join = {};
  DeviceNorm norm = {};
  std::uint16_t* image = nullptr;
  int image_rows = 0;
};
void make_row_image(const LaunchContext& context, const RowImageOp& op);

}  // namespace quarrel::cuda
