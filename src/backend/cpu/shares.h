// How workers divide the rows of a matrix, or any units of work.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <span>

#include "base/as_size.h"
#include "base/thread_pool.h"

namespace quarrel {

// Rows of a matrix go to workers in multiples of this: whole panels, whatever the level.
inline constexpr std::size_t kGrain = 16;

struct Share {
  std::size_t first, last;
};

// A worker's own part, the same each time: it reads it as one stream, from memory that it touched first.
inline Share share_of(std::size_t rows, int worker, int workers) {
  const std::size_t grains = (rows + kGrain - 1) / kGrain;
  const auto bound = [&](int w) { return std::min(rows, grains * as_size(w) / as_size(workers) * kGrain); };
  return {bound(worker), bound(worker + 1)};
}

// Runs task(unit, worker) for all units; whoever is free takes the next.
template <typename Task>
void share(ThreadPool& pool, std::size_t units, const Task& task) {
  std::atomic<std::size_t> next{0};
  pool.run([&](int worker, int) {
    for (std::size_t unit = next.fetch_add(1); unit < units; unit = next.fetch_add(1)) task(unit, as_size(worker));
  });
}

// Runs task(matrix, rows, worker) until all rows of all matrices, of which `rows` are the numbers, are done. Either
// each worker has its own part; or, where arithmetic is the limit, whoever is free takes the next piece, since cores
// are seldom equally fast: another program or the sibling thread may slow one of them.
template <typename Task>
void share_rows(ThreadPool& pool, std::span<const std::size_t> rows, bool own_parts, const Task& task) {
  if (own_parts) {
    pool.run([&](int worker, int workers) {
      for (std::size_t matrix = 0; matrix < rows.size(); ++matrix) {
        const Share part = share_of(rows[matrix], worker, workers);
        if (part.first < part.last) task(matrix, part, as_size(worker));
      }
    });
    return;
  }
  constexpr std::size_t kLeast = 2 * kGrain, kMost = 16 * kGrain, kPiecesEach = 6;
  const auto piece_of = [&](std::size_t matrix_rows) {
    const std::size_t even = matrix_rows / (kPiecesEach * as_size(pool.size()));
    return std::clamp((even + kLeast - 1) / kLeast * kLeast, kLeast, kMost);
  };
  const auto pieces_of = [&](std::size_t matrix_rows) {
    const std::size_t piece = piece_of(matrix_rows);
    return (matrix_rows + piece - 1) / piece;
  };
  std::size_t units = 0;
  for (const std::size_t matrix_rows : rows) units += pieces_of(matrix_rows);
  share(pool, units, [&](std::size_t unit, std::size_t worker) {
    std::size_t matrix = 0;
    while (unit >= pieces_of(rows[matrix])) unit -= pieces_of(rows[matrix++]);
    const std::size_t first = unit * piece_of(rows[matrix]);
    task(matrix, Share{first, std::min(first + piece_of(rows[matrix]), rows[matrix])}, worker);
  });
}

}  // namespace quarrel
