// Numbered places of one kind, assigned with reference counts: the blocks of a KV group, or the slots of recurrent
// state (running ones and snapshots). A place that only the prefix cache holds is kept in a list, oldest first, and is
// reused when no other is free; pinned ones last of all. Everything takes constant time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quarrel {

class BlockPool {
 public:
  // At most `max_pins` places are pinned at a time.
  BlockPool(std::int32_t size, std::int32_t max_pins);

  struct Taken {
    std::int32_t id = -1;  // -1: none is free
    bool evicted = false;  // the cache knew it and must forget it
  };
  // A place with one reference.
  Taken take() noexcept;
  void retain(std::int32_t id) noexcept;
  void release(std::int32_t id) noexcept;

  // From now on the cache knows this place; or it no longer does, and then must not find it.
  void mark_cached(std::int32_t id) noexcept;
  void forget(std::int32_t id) noexcept;
  // Whether it is pinned now. If no pin is left, the pinned place that has been idle longest loses its own; if all of
  // them are held, this one is not pinned.
  bool pin(std::int32_t id) noexcept;

  // The idle place that would be reused next; -1: there is none.
  std::int32_t oldest_idle() const noexcept;

  std::int32_t size() const noexcept { return static_cast<std::int32_t>(places_.size()); }
  std::int32_t references(std::int32_t id) const noexcept { return at(id).references; }
  bool cached(std::int32_t id) const noexcept { return at(id).cached; }
  bool pinned(std::int32_t id) const noexcept { return at(id).pinned; }
  bool idle(std::int32_t id) const noexcept { return at(id).references == 0 && at(id).cached; }
  std::int32_t free_count() const noexcept { return static_cast<std::int32_t>(free_.size()); }
  std::int32_t idle_count() const noexcept { return lists_[0].count + lists_[1].count; }  // cached, held by nobody
  std::int32_t cached_count() const noexcept { return cached_; }                          // held or not
  std::int32_t pinned_count() const noexcept { return pinned_; }
  std::int32_t used_count() const noexcept { return size() - available(); }
  std::int32_t available() const noexcept { return free_count() + idle_count(); }
  // Walks everything: whether lists, flags and counts agree.
  bool sound() const;

 private:
  struct Place {
    std::int32_t references = 0;
    std::int32_t before = -1;  // in the list of idle places
    std::int32_t after = -1;
    bool cached = false;
    bool pinned = false;
  };
  struct List {
    std::int32_t first = -1;  // the oldest
    std::int32_t last = -1;
    std::int32_t count = 0;
  };
  Place& at(std::int32_t id) noexcept { return places_[static_cast<std::size_t>(id)]; }
  const Place& at(std::int32_t id) const noexcept { return places_[static_cast<std::size_t>(id)]; }
  void link(std::int32_t id) noexcept;
  void unlink(std::int32_t id) noexcept;
  void unpin(std::int32_t id) noexcept;

  std::vector<Place> places_;
  std::vector<std::int32_t> free_;
  std::array<List, 2> lists_;  // idle places: plain ones, pinned ones
  std::int32_t max_pins_;
  std::int32_t cached_ = 0;
  std::int32_t pinned_ = 0;
};

}  // namespace quarrel
