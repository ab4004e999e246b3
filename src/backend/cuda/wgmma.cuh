// Hopper's own instructions for GEMMs, one function each: `wgmma` of a warpgroup, whose first operand lies in shared
// memory or in registers, and barriers in shared memory. Only for code made for sm_90a.
#pragma once

#include <cstdint>

namespace quarrel::cuda {

// ---- Barriers in shared memory ----

__device__ inline void init_barrier(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// True in one lane of a whole warp, always the same one. Instructions that take their operands from registers of the
// warp, as the copy engine's and barriers' do, are otherwise made a loop over the lanes.
__device__ inline bool is_elected() {
  unsigned elected;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
}

__device__ inline void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Until the phase with this parity is over.
__device__ inline void wait_for_barrier(std::uint32_t barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred over;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
      "@over bra done;\n"
      "bra again;\n"
      "done:\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Whether the phase with this parity is over.
__device__ inline bool is_over(std::uint32_t barrier, int parity) {
  unsigned over;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(over)
      : "r"(barrier), "r"(parity)
      : "memory");
  return over != 0;
}

// A copy from global to shared memory by the copy engine: sizes and places are multiples of 16 bytes. The barrier's
// phase is over when the bytes are there and one thread has announced them.
__device__ inline void announce_bytes(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ inline void copy_bulk(std::uint32_t to, const void* from, int bytes, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ inline void copy_bulk(std::uint32_t to, const void* from, int bytes, std::uint32_t barrier,
                                 std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

// What this thread has written to shared memory may now be read by the tensor cores.
__device__ inline void show_to_tensor_cores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Among the first kThreads threads only.
template <int kThreads>
__device__ inline void sync_consumers() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

// ---- `wgmma` ----

// A matrix of F16 numbers in shared memory, 64 columns of 128 bytes a row, swizzled by 128 bytes: 16-byte piece p of
// row r lies at p ^ r % 8. Aligned to 1024 bytes; 16 columns further on is an address 32 bytes higher.
__device__ inline std::uint64_t matrix_at(std::uint32_t address) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kEightRows = std::uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kEightRows | std::uint64_t{1} << 16 | (address & 0x3ffffu) >> 4;
}

// One of 16 columns without swizzling: eight rows by eight columns are 128 bytes, and two of these beside each other
// come before the next eight rows.
__device__ inline std::uint64_t narrow_matrix_at(std::uint32_t address) {
  constexpr std::uint64_t kEightRows = std::uint64_t{256 >> 4} << 32;
  constexpr std::uint64_t kEightColumns = std::uint64_t{128 >> 4} << 16;
  return kEightRows | kEightColumns | (address & 0x3ffffu) >> 4;
}

// The matrix that lies so much further on.
__device__ inline std::uint64_t further_on(std::uint64_t matrix, std::uint32_t bytes) {
  return (matrix & 0xffffffff00000000u) | (static_cast<std::uint32_t>(matrix) + (bytes >> 4));
}

__device__ inline void begin_wgmma() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_wgmma() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ inline void wait_for_wgmma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

#define QUARREL_F4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define QUARREL_F8(i) QUARREL_F4(i), QUARREL_F4((i) + 4)
#define QUARREL_F16(i) QUARREL_F8(i), QUARREL_F8((i) + 8)

#define QUARREL_OPERANDS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])

// d += A * B^T: 64 rows of A by kColumns rows of B, over 16 columns of both. A lane 4 g + t of warp w has d[4 i + c]:
// row 16 w + g + c / 2 * 8, column 8 i + 2 t + c % 2.
template <int kColumns>
__device__ inline void multiply_tiles(float (&d)[kColumns / 2], std::uint64_t a, std::uint64_t b) {
  if constexpr (kColumns == 32) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
        "}, %16, %17, 1, 1, 1, 0, 0;"
        : QUARREL_F16(0)
        : "l"(a), "l"(b));
  } else if constexpr (kColumns == 64) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
        "}, %32, %33, 1, 1, 1, 0, 0;"
        : QUARREL_F16(0), QUARREL_F16(16)
        : "l"(a), "l"(b));
  } else if constexpr (kColumns == 96) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
        "}, %48, %49, 1, 1, 1, 0, 0;"
        : QUARREL_F16(0), QUARREL_F16(16), QUARREL_F16(32)
        : "l"(a), "l"(b));
  } else if constexpr (kColumns == 128) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
        "}, %64, %65, 1, 1, 1, 0, 0;"
        : QUARREL_F16(0), QUARREL_F16(16), QUARREL_F16(32), QUARREL_F16(48)
        : "l"(a), "l"(b));
  } else if constexpr (kColumns == 160) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n160k16.f32.f16.f16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
        "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
        "}, %80, %81, 1, 1, 1, 0, 0;"
        : QUARREL_F16(0), QUARREL_F16(16), QUARREL_F16(32), QUARREL_F16(48), QUARREL_F16(64)
        : "l"(a), "l"(b));
  } else {
    static_assert(kColumns == 32, "no wgmma of that many columns");
  }
}

// The same with A in registers: each warp has 16 rows, as mma.m16n8k16 takes them. Without kAdds d is set.
template <int kColumns, bool kAdds>
__device__ inline void multiply_operands(float (&d)[kColumns / 2], const std::uint32_t (&a)[4], std::uint64_t b) {
  if constexpr (kColumns == 8) {
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %9, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {"
        "%0,%1,%2,%3"
        "}, {%4,%5,%6,%7}, %8, adds, 1, 1, 0;\n"
        "}"
        : QUARREL_F4(0)
        : QUARREL_OPERANDS, "l"(b), "r"(kAdds ? 1 : 0));
  } else if constexpr (kColumns == 16) {
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %13, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7"
        "}, {%8,%9,%10,%11}, %12, adds, 1, 1, 0;\n"
        "}"
        : QUARREL_F8(0)
        : QUARREL_OPERANDS, "l"(b), "r"(kAdds ? 1 : 0));
  } else if constexpr (kColumns == 32) {
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
        "}, {%16,%17,%18,%19}, %20, adds, 1, 1, 0;\n"
        "}"
        : QUARREL_F16(0)
        : QUARREL_OPERANDS, "l"(b), "r"(kAdds ? 1 : 0));
  } else if constexpr (kColumns == 64) {
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
        "}, {%32,%33,%34,%35}, %36, adds, 1, 1, 0;\n"
        "}"
        : QUARREL_F16(0), QUARREL_F16(16)
        : QUARREL_OPERANDS, "l"(b), "r"(kAdds ? 1 : 0));
  } else {
    static_assert(kColumns == 8, "no wgmma of that many columns");
  }
}

#undef QUARREL_OPERANDS
#undef QUARREL_F16
#undef QUARREL_F8
#undef QUARREL_F4

}  // namespace quarrel::cuda
