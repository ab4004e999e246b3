// Experts that live in memory only while they are of use. An ExpertSet says how the matrices of one layer's expert lie
// in an entry; an ExpertCache keeps entries within a budget of bytes, and the least recently used go. Entries are read
// from the file, never through its mapping, so what the process holds of the experts is what the budget allows.
//
// One thread at a time calls the cache; it reads with the workers of a pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"

namespace quarrel {

// The matrices of one layer's experts.
class ExpertSet {
 public:
  // What is read at once for an expert: a matrix, or two whose rows alternate.
  struct Extent {
    std::size_t at = 0;  // in the entry
    std::size_t bytes = 0;
    std::size_t row_stride = 0;
    std::size_t rows = 0;
    std::vector<ExpertPlace> places = {};
  };

  // `used`: how many experts a row goes to.
  void add(std::int32_t weight, std::int32_t used, std::size_t rows, std::size_t row_bytes, std::size_t row_stride,
           std::span<const ExpertPlace> places);

  std::size_t entry_bytes() const noexcept;
  std::size_t bytes() const noexcept { return entry_bytes() * experts_; }     // of all experts
  std::size_t least_bytes() const noexcept { return entry_bytes() * used_; }  // of what a single row needs
  std::size_t experts() const noexcept { return experts_; }
  std::span<const Extent> extents() const noexcept { return extents_; }
  // Where an entry holds this weight's matrix. Throws Error(internal) for a weight of another layer.
  std::size_t offset_of(std::int32_t weight) const;

 private:
  struct Matrix {
    std::int32_t weight = -1;
    std::size_t extent = 0;
    std::size_t offset = 0;  // in the extent
  };
  bool join(std::int32_t weight, std::size_t rows, std::size_t row_bytes, std::size_t row_stride,
            std::span<const ExpertPlace> places);
  void place_extents();

  std::size_t experts_ = 0;
  std::size_t used_ = 1;
  std::vector<Extent> extents_;
  std::vector<Matrix> matrices_;
};

using ExpertSets = std::map<std::int32_t, ExpertSet>;  // by layer

class ExpertCache {
 public:
  // Throws Error(out_of_memory) when the experts that one row needs would not fit. `sets` must outlive the cache.
  ExpertCache(const ExpertSets& sets, std::size_t budget);
  ExpertCache(const ExpertCache&) = delete;
  ExpertCache& operator=(const ExpertCache&) = delete;

  // The experts of a layer. Throws Error(internal) when there are none.
  const ExpertSet& set(std::int32_t layer) const;
  // How many of them fit at once.
  std::size_t most(std::int32_t layer) const;
  bool holds(std::int32_t layer, std::int32_t expert) const;
  // Makes these experts of a layer, at most `most`, present until the next call; what is missing is read. An error in
  // reading is thrown; what was missing is then still missing.
  void load(std::int32_t layer, std::span<const std::int32_t> experts, ThreadPool& pool);
  // The entry of an expert that the last `load` asked for.
  const std::byte* entry(std::int32_t layer, std::int32_t expert) const;

  std::uint64_t hits() const noexcept { return hits_; }
  std::uint64_t misses() const noexcept { return misses_; }
  std::uint64_t bytes_read() const noexcept { return bytes_read_; }

 private:
  struct Entry {
    std::int32_t layer = 0;
    std::int32_t expert = 0;
    AlignedBuffer memory;
  };
  using Entries = std::list<Entry>;

  // Entries for the experts that are not here, with memory but without content; older ones make room.
  Entries make_room(std::int32_t layer, std::span<const std::int32_t> missing);
  static void read(const ExpertSet& set, Entries& entries, ThreadPool& pool);

  const ExpertSets& sets_;
  const std::size_t budget_;
  std::size_t held_ = 0;                                           // bytes of all entries
  Entries entries_;                                                // the most recently used first
  std::map<std::int32_t, std::vector<Entries::iterator>> places_;  // [layer][expert]; entries_.end(): not here
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
  std::uint64_t bytes_read_ = 0;
};

}  // namespace quarrel
