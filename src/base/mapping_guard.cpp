#include "base/mapping_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace quarrel {

// A guarded range, or a place for one. Ranges form a list that only grows, so that the handler may walk it without a
// lock; those that have ended are used again.
struct MappingGuard::Range {
  std::atomic<std::uint64_t> version = 0;  // odd while begin and end change
  std::atomic<std::uintptr_t> begin = 0;
  std::atomic<std::uintptr_t> end = 0;  // begin == end: free
  std::atomic<bool> cut_short = false;
  Range* next = nullptr;

  void set(std::uintptr_t first, std::uintptr_t last) noexcept {
    version.fetch_add(1);
    begin.store(first);
    end.store(last);
    version.fetch_add(1);
  }
  // Does it hold the address, and where does it end? A range that changes meanwhile is not the one that somebody is
  // reading at this moment.
  bool holds(std::uintptr_t address, std::uintptr_t& last) const noexcept {
    const std::uint64_t before = version.load();
    const std::uintptr_t first = begin.load();
    last = end.load();
    return before % 2 == 0 && version.load() == before && first <= address && address < last;
  }
};

// What the handler knows. A signal's handler is the process's, and so is this: it is never destroyed, since mappings
// may outlive whatever ends at exit.
struct MappingGuard::Table {
  std::mutex mutex;  // of those that add and take away; the handler never takes it
  std::atomic<Range*> ranges = nullptr;
  struct sigaction previous = {};
  std::uintptr_t page = 4096;

  static Table& instance() {
    static Table* const table = new Table;
    return *table;
  }

  Table() {
    page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    static_assert(std::atomic<Range*>::is_always_lock_free && std::atomic<std::uintptr_t>::is_always_lock_free);
    known.store(this);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    if (::sigaction(SIGBUS, nullptr, &previous) != 0 || ::sigaction(SIGBUS, &action, nullptr) != 0) {
      fail(ErrorKind::internal, "cannot handle SIGBUS: {}", std::strerror(errno));
    }
  }

  // Puts zeros over the range from the faulting page to its end: where a file is cut, all behind is gone too. Only
  // calls that a handler may make: mmap is no more than a system call on Linux, and is made as one, so that no
  // sanitizer's wrapper runs here.
  bool mend(std::uintptr_t address) const noexcept {
    for (Range* range = ranges.load(); range != nullptr; range = range->next) {
      std::uintptr_t last = 0;
      if (!range->holds(address, last)) continue;
      range->cut_short.store(true);  // before anybody reads zeros
      const std::uintptr_t first = address / page * page;
      const auto mapped = ::syscall(SYS_mmap, first, last - first, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                                    -1, static_cast<off_t>(0));
      return mapped == static_cast<long>(first);
    }
    return false;
  }

  void pass_on(int signal, siginfo_t* info, void* context) const noexcept {
    if ((previous.sa_flags & SA_SIGINFO) != 0) {
      previous.sa_sigaction(signal, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
      previous.sa_handler(signal);
    } else if (previous.sa_handler == SIG_DFL || info->si_code > 0) {
      // The instruction that faulted runs again, and the system does what it does without a handler; a signal that
      // somebody sent has to be sent again.
      ::sigaction(signal, &previous, nullptr);
      if (info->si_code <= 0) ::raise(signal);
    }
  }

  static void on_fault(int signal, siginfo_t* info, void* context) {
    const int reason = errno;
    const Table& table = *known.load();
    const bool mended = info->si_code > 0 && table.mend(reinterpret_cast<std::uintptr_t>(info->si_addr));
    if (!mended) table.pass_on(signal, info, context);
    errno = reason;
  }

  static std::atomic<Table*> known;  // `instance` takes a lock, perhaps
};

constinit std::atomic<MappingGuard::Table*> MappingGuard::Table::known = nullptr;

MappingGuard::MappingGuard(std::span<const std::byte> range) {
  if (range.empty()) return;
  Table& table = Table::instance();
  const std::scoped_lock lock(table.mutex);
  for (range_ = table.ranges.load(); range_ != nullptr; range_ = range_->next) {
    if (range_->begin.load() == range_->end.load()) break;
  }
  if (range_ == nullptr) {
    range_ = new Range;
    range_->next = table.ranges.load();
    table.ranges.store(range_);
  }
  range_->cut_short.store(false);
  const auto first = reinterpret_cast<std::uintptr_t>(range.data());
  // The last page belongs to the mapping as a whole.
  range_->set(first, (first + range.size() + table.page - 1) / table.page * table.page);
}

MappingGuard::MappingGuard(MappingGuard&& other) noexcept : range_(std::exchange(other.range_, nullptr)) {}

MappingGuard& MappingGuard::operator=(MappingGuard&& other) noexcept {
  if (this != &other) {
    end();
    range_ = std::exchange(other.range_, nullptr);
  }
  return *this;
}

MappingGuard::~MappingGuard() { end(); }

void MappingGuard::end() noexcept {
  if (range_ == nullptr) return;
  const std::scoped_lock lock(Table::instance().mutex);
  range_->set(0, 0);
  range_ = nullptr;
}

bool MappingGuard::cut_short() const noexcept { return range_ != nullptr && range_->cut_short.load(); }

void MappingGuard::note_cut_short() const noexcept {
  if (range_ != nullptr) range_->cut_short.store(true);
}

}  // namespace quarrel
