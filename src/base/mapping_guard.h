// Keeps the process alive when a mapped file is cut short: the system answers a read beyond the file's new end with
// SIGBUS. The first guard installs a handler for it, once a process, in front of the one that was there. A fault inside
// a guarded range puts zeros there, notes it, and lets the read go on; whoever uses what was read asks `cut_short`
// afterwards and throws it away. Every other fault goes to the handler that was there before.
//
// Who installs a handler for SIGBUS later takes this one's place, and has to pass on what is not its own.
//
// Threads: a guard belongs to one owner; `cut_short` may be asked from any thread, and ranges be read by any.
#pragma once

#include <cstddef>
#include <span>

namespace quarrel {

class MappingGuard {
 public:
  MappingGuard() = default;  // of nothing
  // `range` was mapped, begins at a page and is unmapped only when the guard has ended.
  explicit MappingGuard(std::span<const std::byte> range);
  MappingGuard(MappingGuard&& other) noexcept;
  MappingGuard& operator=(MappingGuard&& other) noexcept;
  ~MappingGuard();

  // Some of the range could not be read; it stays so. What was read of it after that may be zeros.
  bool cut_short() const noexcept;
  // Somebody has found out in another way.
  void note_cut_short() const noexcept;

 private:
  struct Range;
  struct Table;
  void end() noexcept;

  Range* range_ = nullptr;
};

}  // namespace quarrel
