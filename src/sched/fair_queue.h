// The branches that wait for blocks, and which is next: by priority, which age raises; then those that ran before; then
// the key that has been served least, on a virtual clock of rows; then the oldest. An idle key saves nothing up.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "sched/branch.h"

namespace quarrel {

class FairQueue {
 public:
  // Every `ageing_us` of waiting count for one priority, up to the highest; far beyond that age alone decides.
  FairQueue(std::int64_t ageing_us, std::int32_t idle_accounts);

  std::int32_t level(const Job& job, std::int64_t now_us) const noexcept {
    const std::int64_t waited = now_us - job.arrived_us;
    return waited < ageing_us_ ? static_cast<std::int32_t>(job.priority) : aged_level(job, waited / ageing_us_);
  }

  // Allocates for one more job of this many branches, so that nothing later allocates. Strong guarantee.
  void reserve(std::size_t branches);
  KeyAccount& open(std::uint64_t key);
  void close(std::uint64_t key) noexcept;
  // Null: that key is not remembered.
  const KeyAccount* account(std::uint64_t key) const noexcept;

  void push(Branch& branch) noexcept;
  void remove(Branch& branch) noexcept;
  // The next one that does not wait for another's prefix; null: there is none. `returning_only` leaves out those that
  // never ran; without `exempt` those are left out that could only run exempt.
  Branch* best(std::int64_t now_us, bool returning_only, bool exempt) noexcept;
  // The highest priority that waits, without age; beyond the lowest: nobody waits.
  std::int32_t highest(bool returning_only) const noexcept;
  template <typename Visit>
  void each(const Visit& visit) const {
    for (Branch* branch : returning_) visit(*branch);
    for (Branch* branch : fresh_) visit(*branch);
  }
  // Those that never ran, in the order in which they would start if nothing changed; good until the queue does.
  std::span<Branch* const> fresh_in_order(std::int64_t now_us) noexcept;
  // The branch starts to run: the clock moves to what its key has had.
  void note_start(const Branch& branch) noexcept;
  static void charge(Job& job, std::int32_t rows) noexcept { job.account->served += static_cast<std::uint64_t>(rows); }

  std::size_t fresh() const noexcept { return fresh_.size(); }
  std::size_t returning() const noexcept { return returning_.size(); }
  std::size_t size() const noexcept { return fresh_.size() + returning_.size(); }
  std::size_t accounts() const noexcept { return accounts_.size(); }

 private:
  static std::int32_t aged_level(const Job& job, std::int64_t age) noexcept;

  std::int64_t ageing_us_;
  std::size_t idle_accounts_;  // that may be remembered
  std::size_t idle_ = 0;
  std::uint64_t clock_ = 0;
  std::vector<Branch*> fresh_;
  std::vector<Branch*> returning_;
  std::vector<Branch*> order_;                              // scratch, with room for all
  std::array<std::array<std::int32_t, 3>, 2> counts_ = {};  // [returning][priority]
  std::unordered_map<std::uint64_t, KeyAccount> accounts_;
};

}  // namespace quarrel
