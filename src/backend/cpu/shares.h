// How workers divide the weight rows of a matrix, or any units of work.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <span>

#include "base/as_size.h"
#include "base/thread_pool.h"

namespace quarrel {

// Weight rows of a matrix go to workers in multiples of this: whole panels, whatever the level.
inline constexpr std::size_t kGrain = 16;

struct Share {
  std::size_t first, last;
};

// A worker's own share, the same each time: it reads it as one stream, from memory that it touched first.
inline Share share_of(std::size_t weight_rows, int worker, int workers) {
  const std::size_t grains = (weight_rows + kGrain - 1) / kGrain;
  const auto bound = [&](int w) { return std::min(weight_rows, grains * as_size(w) / as_size(workers) * kGrain); };
  return {bound(worker), bound(worker + 1)};
}

// What the workers of a NUMA node have together.
inline Share node_share(std::size_t weight_rows, const ThreadPool& pool, int node) {
  const ThreadPool::NodeRange workers = pool.node(node);
  return {share_of(weight_rows, workers.first, pool.size()).first,
          share_of(weight_rows, workers.last - 1, pool.size()).last};
}

// Runs task(unit, worker) for all units, which lie nowhere in particular; whoever is free takes the next.
template <typename Task>
void share_units(ThreadPool& pool, std::size_t units, const Task& task) {
  const auto bound = [&](int worker) { return units * as_size(worker) / as_size(pool.size()); };
  pool.share(
      [&](int node) { return bound(pool.node(node).last) - bound(pool.node(node).first); },
      [&](int node, std::size_t unit, int worker) { task(bound(pool.node(node).first) + unit, as_size(worker)); });
}

// Runs task(matrix, share, worker) until all weight rows of all matrices, of which `weight_rows` are the numbers, are
// done. Either each worker has its own share; or, where arithmetic is the limit, whoever is free takes the next piece
// of its node's, since cores are seldom equally fast: another program or the sibling thread may slow one of them.
template <typename Task>
void share_rows(ThreadPool& pool, std::span<const std::size_t> weight_rows, bool own_shares, const Task& task) {
  if (own_shares) {
    pool.run([&](int worker, int workers) {
      for (std::size_t matrix = 0; matrix < weight_rows.size(); ++matrix) {
        const Share share = share_of(weight_rows[matrix], worker, workers);
        if (share.first < share.last) task(matrix, share, as_size(worker));
      }
    });
    return;
  }
  constexpr std::size_t kLeast = 2 * kGrain, kMost = 16 * kGrain, kPiecesEach = 6;
  const auto piece_of = [&](std::size_t matrix_rows) {
    const std::size_t even = matrix_rows / (kPiecesEach * as_size(pool.size()));
    return std::clamp((even + kGrain - 1) / kGrain * kGrain, kLeast, kMost);
  };
  const auto pieces_of = [&](int node, std::size_t matrix_rows) {
    const Share share = node_share(matrix_rows, pool, node);
    const std::size_t piece = piece_of(matrix_rows);
    return (share.last - share.first + piece - 1) / piece;
  };
  const auto units = [&](int node) {
    std::size_t sum = 0;
    for (const std::size_t matrix_rows : weight_rows) sum += pieces_of(node, matrix_rows);
    return sum;
  };
  pool.share(units, [&](int node, std::size_t unit, int worker) {
    std::size_t matrix = 0;
    while (unit >= pieces_of(node, weight_rows[matrix])) unit -= pieces_of(node, weight_rows[matrix++]);
    const Share share = node_share(weight_rows[matrix], pool, node);
    const std::size_t first = share.first + unit * piece_of(weight_rows[matrix]);
    task(matrix, Share{first, std::min(first + piece_of(weight_rows[matrix]), share.last)}, as_size(worker));
  });
}

}  // namespace quarrel
