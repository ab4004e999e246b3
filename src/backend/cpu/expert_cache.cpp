#include "backend/cpu/expert_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/as_size.h"
#include "base/error.h"

namespace quarrel {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) noexcept { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// How far `b` lies behind `a`, whichever of the two ways of finding it is asked for; both must agree.
std::ptrdiff_t distance(const ExpertPlace& a, const ExpertPlace& b) noexcept {
  return static_cast<std::ptrdiff_t>(reinterpret_cast<std::uintptr_t>(b.data) -
                                     reinterpret_cast<std::uintptr_t>(a.data));
}

bool agree(const ExpertPlace& a, const ExpertPlace& b, std::ptrdiff_t apart) noexcept {
  if (a.file != b.file || distance(a, b) != apart) return false;
  return a.file == nullptr || static_cast<std::ptrdiff_t>(b.offset - a.offset) == apart;
}

}  // namespace

// ---- How an entry is laid out ----

void ExpertSet::add(std::int32_t weight, std::int32_t used, std::size_t rows, std::size_t row_bytes,
                    std::size_t row_stride, std::span<const ExpertPlace> places) {
  if (!matrices_.empty() && places.size() != experts_) {
    fail(ErrorKind::internal, "a layer's matrices are of {} and of {} experts", experts_, places.size());
  }
  experts_ = places.size();
  used_ = std::max(used_, as_size(used));
  if (!join(weight, rows, row_bytes, row_stride, places)) {
    matrices_.push_back({.weight = weight, .extent = extents_.size(), .offset = 0});
    extents_.push_back({.at = 0,
                        .bytes = (rows - 1) * row_stride + row_bytes,
                        .row_stride = row_stride,
                        .rows = rows,
                        .places = {places.begin(), places.end()}});
  }
  place_extents();
}

// Two matrices whose rows alternate lie in the same bytes, which are then read and kept once.
bool ExpertSet::join(std::int32_t weight, std::size_t rows, std::size_t row_bytes, std::size_t row_stride,
                     std::span<const ExpertPlace> places) {
  for (std::size_t p = 0; p < extents_.size(); ++p) {
    Extent& extent = extents_[p];
    const std::ptrdiff_t apart = distance(extent.places.front(), places.front());
    const auto between = static_cast<std::size_t>(apart < 0 ? -apart : apart);
    if (extent.rows != rows || extent.row_stride != row_stride || between < row_bytes || between > row_stride) continue;
    if (!std::ranges::equal(extent.places, places,
                            [apart](const ExpertPlace& a, const ExpertPlace& b) { return agree(a, b, apart); })) {
      continue;
    }
    if (apart < 0) {
      extent.places.assign(places.begin(), places.end());
      extent.bytes += between;
      for (Matrix& matrix : matrices_) {
        if (matrix.extent == p) matrix.offset += between;
      }
    } else {
      extent.bytes = std::max(extent.bytes, between + (rows - 1) * row_stride + row_bytes);
    }
    matrices_.push_back({.weight = weight, .extent = p, .offset = apart < 0 ? 0 : between});
    return true;
  }
  return false;
}

void ExpertSet::place_extents() {
  std::size_t at = 0;
  for (Extent& extent : extents_) {
    extent.at = at;
    at += aligned(extent.bytes);
  }
}

std::size_t ExpertSet::entry_bytes() const noexcept {
  return extents_.empty() ? 0 : extents_.back().at + aligned(extents_.back().bytes);
}

std::size_t ExpertSet::offset_of(std::int32_t weight) const {
  const auto found = std::ranges::find(matrices_, weight, &Matrix::weight);
  if (found == matrices_.end()) fail(ErrorKind::internal, "an expert's matrix was prepared for another layer");
  return extents_[found->extent].at + found->offset;
}

// ---- The cache ----

ExpertCache::ExpertCache(const ExpertSets& sets, std::size_t budget) : sets_(sets), budget_(budget) {
  std::size_t least = 0;
  for (const auto& [layer, experts] : sets) {
    least = std::max(least, experts.least_bytes());
    places_[layer].assign(experts.experts(), entries_.end());
  }
  if (least > budget) {
    fail(ErrorKind::out_of_memory,
         "{} bytes are too few for experts: those that a single token needs in one layer take {} bytes", budget, least);
  }
}

const ExpertSet& ExpertCache::set(std::int32_t layer) const {
  const auto found = sets_.find(layer);
  if (found == sets_.end()) fail(ErrorKind::internal, "no experts were prepared for layer {}", layer);
  return found->second;
}

std::size_t ExpertCache::most(std::int32_t layer) const {
  const std::size_t bytes = set(layer).entry_bytes();
  return bytes == 0 ? 0 : budget_ / bytes;
}

bool ExpertCache::holds(std::int32_t layer, std::int32_t expert) const {
  return places_.at(layer).at(as_size(expert)) != entries_.end();
}

const std::byte* ExpertCache::entry(std::int32_t layer, std::int32_t expert) const {
  return places_.at(layer).at(as_size(expert))->memory.data();
}

void ExpertCache::load(std::int32_t layer, std::span<const std::int32_t> experts, ThreadPool& pool) {
  const ExpertSet& shape = set(layer);
  if (experts.size() > most(layer)) fail(ErrorKind::internal, "more experts at once than the cache may hold");
  std::vector<std::int32_t> missing;
  missing.reserve(experts.size());
  for (const std::int32_t expert : experts) {
    if (holds(layer, expert)) {
      entries_.splice(entries_.begin(), entries_, places_.at(layer)[as_size(expert)]);
      ++hits_;
    } else {
      missing.push_back(expert);
    }
  }
  if (missing.empty()) return;
  // Until they are whole the new entries belong to nobody: when reading fails they go with this function.
  Entries fresh = make_room(layer, missing);
  read(shape, fresh, pool);
  for (auto entry = fresh.begin(); entry != fresh.end(); ++entry) places_.at(layer)[as_size(entry->expert)] = entry;
  held_ += fresh.size() * shape.entry_bytes();
  misses_ += fresh.size();
  bytes_read_ += fresh.size() * shape.entry_bytes();
  entries_.splice(entries_.begin(), fresh);
}

// The experts of this call that are here already were just moved to the front, and they fit together with the missing
// ones: whatever has to go is found behind them.
ExpertCache::Entries ExpertCache::make_room(std::int32_t layer, std::span<const std::int32_t> missing) {
  const std::size_t bytes = set(layer).entry_bytes();
  Entries fresh;
  for (const std::int32_t expert : missing) {
    AlignedBuffer memory;
    while (held_ + (fresh.size() + 1) * bytes > budget_) {
      Entry& oldest = entries_.back();
      places_.at(oldest.layer)[as_size(oldest.expert)] = entries_.end();
      held_ -= oldest.memory.size();
      // Memory of the right size is used again: its pages are there already.
      if (oldest.memory.size() == bytes) memory = std::move(oldest.memory);
      entries_.pop_back();
    }
    if (memory.data() == nullptr) memory = AlignedBuffer(bytes, "the cache of experts");
    fresh.push_back({.layer = layer, .expert = expert, .memory = std::move(memory)});
  }
  return fresh;
}

void ExpertCache::read(const ExpertSet& set, Entries& entries, ThreadPool& pool) {
  struct Piece {
    const ExpertPlace* from;
    std::span<std::byte> to;
  };
  std::vector<Piece> pieces;
  pieces.reserve(entries.size() * set.extents().size());
  for (Entry& entry : entries) {
    for (const ExpertSet::Extent& extent : set.extents()) {
      pieces.push_back(
          {.from = &extent.places[as_size(entry.expert)], .to = {entry.memory.data() + extent.at, extent.bytes}});
    }
  }
  pool.run([&](int worker, int workers) {
    for (std::size_t p = as_size(worker); p < pieces.size(); p += as_size(workers)) {
      const auto& [from, to] = pieces[p];
      if (from->file != nullptr) {
        from->file->read(from->offset, to);
      } else {
        std::memcpy(to.data(), from->data, to.size());
      }
    }
  });
}

}  // namespace quarrel
