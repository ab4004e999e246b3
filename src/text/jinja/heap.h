// Memory of one rendering (or of one template's constants). Objects live until the heap goes, so values are plain
// pointers, cycles do no harm and nothing is destroyed recursively. All memory is charged before it is taken.
// Not thread-safe; a template's own heap is only read after compiling.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "text/jinja/fault.h"

namespace quarrel::jinja {

// Whatever a heap owns. Destroying one never touches another.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

class Heap {
 public:
  explicit Heap(std::size_t limit_bytes) : limit_(limit_bytes) {}

  // Counts `bytes` that are about to be allocated. Throws Fault at the limit.
  void charge(std::size_t bytes) {
    if (bytes > limit_ - used_) fault("the template needs more than {} bytes of memory", limit_);
    used_ += bytes;
  }

  template <typename T, typename... Args>
  T* make(Args&&... args) {
    charge(sizeof(T) + kOverhead);
    auto object = std::make_unique<T>(std::forward<Args>(args)...);
    T* const result = object.get();
    objects_.push_back(std::move(object));
    return result;
  }

  std::size_t used() const noexcept { return used_; }

 private:
  static constexpr std::size_t kOverhead = 32;  // the owning pointer and the allocator's own words

  std::size_t limit_;
  std::size_t used_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;
};

}  // namespace quarrel::jinja
