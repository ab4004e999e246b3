#include "sched/fair_queue.h"

#include <algorithm>
#include <tuple>

namespace quarrel {
namespace {

// Beyond its highest priority a request climbs on, but slowly: fairness between keys rules an hour of overload, and
// still nobody waits forever.
constexpr std::int64_t kSlowAgeing = 16;

auto rank(const Branch& branch) noexcept {
  return std::tuple(branch.level, branch.job->account->served, branch.job->order, branch.index);
}

}  // namespace

FairQueue::FairQueue(std::int64_t ageing_us, std::int32_t idle_accounts)
    : ageing_us_(std::max<std::int64_t>(1, ageing_us)), idle_accounts_(static_cast<std::size_t>(idle_accounts)) {}

std::int32_t FairQueue::aged_level(const Job& job, std::int64_t age) noexcept {
  const auto base = static_cast<std::int64_t>(job.priority);
  return static_cast<std::int32_t>(base - std::min(base, age) - std::min<std::int64_t>(age / kSlowAgeing, 1 << 30));
}

void FairQueue::reserve(std::size_t branches) {
  const auto grow = [branches](std::vector<Branch*>& list) {
    if (list.capacity() < branches) list.reserve(std::max(branches, 2 * list.capacity()));
  };
  grow(fresh_);
  grow(returning_);
  grow(order_);
}

KeyAccount& FairQueue::open(std::uint64_t key) {
  const auto [found, made] = accounts_.try_emplace(key);
  KeyAccount& account = found->second;
  if (account.live == 0) {
    if (!made) --idle_;
    account.served = std::max(account.served, clock_);
  }
  ++account.live;
  return account;
}

const KeyAccount* FairQueue::account(std::uint64_t key) const noexcept {
  const auto found = accounts_.find(key);
  return found != accounts_.end() ? &found->second : nullptr;
}

void FairQueue::close(std::uint64_t key) noexcept {
  const auto found = accounts_.find(key);
  if (found == accounts_.end() || --found->second.live > 0) return;
  ++idle_;
  if (found->second.served <= clock_) {
    accounts_.erase(found);
    --idle_;
    return;
  }
  if (idle_ <= idle_accounts_) return;
  // Debts that the clock has passed are worth nothing; if there are too many others, all are forgiven.
  std::erase_if(accounts_,
                [this](const auto& entry) { return entry.second.live == 0 && entry.second.served <= clock_; });
  const auto idle = [](const auto& entry) { return entry.second.live == 0; };
  idle_ = static_cast<std::size_t>(std::count_if(accounts_.begin(), accounts_.end(), idle));
  if (2 * idle_ > idle_accounts_) {
    std::erase_if(accounts_, idle);
    idle_ = 0;
  }
}

void FairQueue::push(Branch& branch) noexcept {
  std::vector<Branch*>& list = branch.returning ? returning_ : fresh_;
  branch.queue_index = static_cast<std::int32_t>(list.size());
  list.push_back(&branch);  // room was made when its request came
  ++counts_[branch.returning ? 1 : 0][static_cast<std::size_t>(branch.job->priority)];
}

void FairQueue::remove(Branch& branch) noexcept {
  std::vector<Branch*>& list = branch.returning ? returning_ : fresh_;
  const auto at = static_cast<std::size_t>(branch.queue_index);
  list[at] = list.back();
  list[at]->queue_index = branch.queue_index;
  list.pop_back();
  branch.queue_index = -1;
  --counts_[branch.returning ? 1 : 0][static_cast<std::size_t>(branch.job->priority)];
}

std::int32_t FairQueue::highest(bool returning_only) const noexcept {
  std::size_t priority = 0;
  while (priority < counts_[0].size() && counts_[1][priority] == 0 && (returning_only || counts_[0][priority] == 0)) {
    ++priority;
  }
  return static_cast<std::int32_t>(priority);
}

Branch* FairQueue::best(std::int64_t now_us, bool returning_only, bool exempt) noexcept {
  Branch* best = nullptr;
  for (Branch* branch : returning_) {
    if (!exempt && branch->preemptions >= kMostPreemptions) continue;
    branch->level = level(*branch->job, now_us);
    if (held(*branch)) continue;
    if (best == nullptr || outranks(*branch, *best)) best = branch;
  }
  if (returning_only) return best;
  Branch* fresh = nullptr;
  for (Branch* branch : fresh_) {
    branch->level = level(*branch->job, now_us);
    if (held(*branch)) continue;
    if (fresh == nullptr || rank(*branch) < rank(*fresh)) fresh = branch;
  }
  if (best == nullptr || fresh == nullptr) return best != nullptr ? best : fresh;
  return fresh->level < best->level ? fresh : best;
}

std::span<Branch* const> FairQueue::fresh_in_order(std::int64_t now_us) noexcept {
  order_.assign(fresh_.begin(), fresh_.end());  // room was made when their requests came
  for (Branch* branch : order_) branch->level = level(*branch->job, now_us);
  std::sort(order_.begin(), order_.end(), [](const Branch* a, const Branch* b) { return rank(*a) < rank(*b); });
  return order_;
}

void FairQueue::note_start(const Branch& branch) noexcept { clock_ = std::max(clock_, branch.job->account->served); }

}  // namespace quarrel
