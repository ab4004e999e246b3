// What both of FlashInfer's kernels for single rows need beside the data: where each row's pages begin, and the memory
// that a plan divides.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <flashinfer/page.cuh>
#include <vector>

#include "backend/cuda/cuda_error.h"
#include "cuda_peers/peers.h"

namespace quarrel::cuda {

inline half* as_half(const std::uint16_t* place) { return reinterpret_cast<half*>(const_cast<std::uint16_t*>(place)); }

struct PagedRows {
  static constexpr std::size_t kFloatBytes = std::size_t{128} << 20;
  static constexpr std::size_t kIntegerBytes = std::size_t{8} << 20;

  explicit PagedRows(const PeerRows& rows) {
    const int pages_each = (rows.context + rows.page_size - 1) / rows.page_size;
    for (int r = 0; r <= rows.rows; ++r) {
      firsts.push_back(r);
      pages.push_back(r * pages_each);
    }
    last.assign(static_cast<std::size_t>(rows.rows), rows.context - (pages_each - 1) * rows.page_size);
    device_firsts = copy(firsts);
    device_pages = copy(pages);
    device_last = copy(last);
  }

  flashinfer::paged_kv_t<half, std::int32_t> cache(const PeerRows& rows) const {
    return {static_cast<std::uint32_t>(rows.kv_heads),
            static_cast<std::uint32_t>(rows.page_size),
            kPeerHeadDim,
            static_cast<std::uint32_t>(rows.rows),
            flashinfer::QKVLayout::kHND,
            as_half(rows.keys),
            as_half(rows.values),
            const_cast<std::int32_t*>(rows.tables),
            device_pages.as<std::int32_t>(),
            device_last.as<std::int32_t>()};
  }

  std::int32_t* integers_at(std::int64_t offset) const {
    return reinterpret_cast<std::int32_t*>(integers.data() + offset);
  }

  std::vector<std::int32_t> firsts;  // row r is the only one of text r
  std::vector<std::int32_t> pages;   // text r has pages [pages[r], pages[r + 1]) of the tables
  std::vector<std::int32_t> last;    // positions on a text's last page
  DeviceBuffer device_firsts, device_pages, device_last;
  DeviceBuffer floats = DeviceBuffer(kFloatBytes, "FlashInfer's plan");
  DeviceBuffer integers = DeviceBuffer(kIntegerBytes, "FlashInfer's plan");
  PinnedBuffer staged = PinnedBuffer(kIntegerBytes, "FlashInfer's plan");

 private:
  static DeviceBuffer copy(const std::vector<std::int32_t>& numbers) {
    DeviceBuffer buffer(numbers.size() * sizeof(std::int32_t), "FlashInfer's rows");
    check(cudaMemcpy(buffer.data(), numbers.data(), buffer.size(), cudaMemcpyHostToDevice), "FlashInfer's rows");
    return buffer;
  }
};

}  // namespace quarrel::cuda
