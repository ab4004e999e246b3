// How kernels divide a multiprocessor's shared memory among themselves, so that the next one finds room beside them.
#pragma once

namespace quarrel::cuda {

inline constexpr int kReservedBytes = 1024;  // the system's own, of each thread block

// With dependent launches a kernel's blocks are to stand beside those of the kernel before, one of each on every
// multiprocessor: each may have half of the shared memory. A kernel that needs more does not let the next one start:
// its blocks would pile up two by two where room becomes free first, and leave the rest of the device idle.
// `block_limit`: what one block alone may have.
constexpr int half_of_shared(int block_limit) { return (block_limit + kReservedBytes) / 2 - kReservedBytes; }

// Of a GEMV that follows a kernel with few blocks: its own would pile up where that one leaves room. Two of it do not
// fit on a multiprocessor, and one of it and one of the next kernel still do.
inline constexpr int kLoneBytes = 126 * 1024;

}  // namespace quarrel::cuda
