// The books, audited from scratch: what every branch holds must be what the pools say is held.
#include <fmt/format.h>

#include <algorithm>

#include "base/as_size.h"
#include "sched/scheduler.h"

namespace quarrel {
namespace {

struct Holdings {
  std::vector<std::vector<std::int32_t>> blocks;  // [group][block]: references
  std::vector<std::int32_t> slots;
  std::unordered_map<std::int32_t, std::int32_t> nodes;
};

void count_branch(const Branch& branch, Holdings& held) {
  for (std::size_t group = 0; group < branch.tables.size(); ++group) {
    for (const std::int32_t block : branch.tables[group]) {
      if (block >= 0) ++held.blocks[group][as_size(block)];
    }
  }
  if (branch.slot >= 0) ++held.slots[as_size(branch.slot)];
  if (branch.source_slot >= 0) ++held.slots[as_size(branch.source_slot)];
  if (branch.node >= 0) ++held.nodes[branch.node];
}

bool holds_nothing(const Branch& branch) noexcept {
  return branch.slot < 0 && branch.source_slot < 0 && branch.node < 0 && branch.computed == 0 &&
         std::all_of(branch.tables.begin(), branch.tables.end(), [](const auto& table) { return table.empty(); });
}

// What a branch will write next must be its own.
std::optional<std::string> check_writable(const Branch& branch, const PrefixCache& cache, std::int32_t block_tokens,
                                          const Holdings& tables_only) {
  for (std::size_t group = 0; group < branch.tables.size(); ++group) {
    const std::vector<std::int32_t>& table = branch.tables[group];
    for (std::size_t entry = as_size(branch.computed / block_tokens); entry < table.size(); ++entry) {
      const std::int32_t block = table[entry];
      if (block < 0) return fmt::format("request {} will write a block it has freed", branch.job->id);
      if (tables_only.blocks[group][as_size(block)] != 1 || cache.blocks(group).cached(block)) {
        return fmt::format("request {} will write block {} of group {}, which others see", branch.job->id, block,
                           group);
      }
    }
    for (std::size_t entry = 0; entry < table.size(); ++entry) {
      if ((table[entry] >= 0) != (entry >= as_size(branch.first_entries[group]))) {
        return fmt::format("request {}: freed and held entries are mixed", branch.job->id);
      }
    }
  }
  return std::nullopt;
}

std::optional<std::string> compare(const BlockPool& pool, const std::vector<std::int32_t>& held, const char* what) {
  for (std::int32_t id = 0; id < pool.size(); ++id) {
    if (pool.references(id) != held[as_size(id)]) {
      return fmt::format("{} {} has {} references, but {} are held", what, id, pool.references(id), held[as_size(id)]);
    }
  }
  return std::nullopt;
}

// Who waits for whom: those run, and have not yet computed what is waited for.
std::optional<std::string> check_waiters(const FairQueue& queue, const std::vector<Branch*>& running) {
  std::unordered_map<const Branch*, std::int32_t> waiters;
  for (const Branch* branch : running) waiters[branch] = 0;
  std::optional<std::string> wrong;
  queue.each([&](const Branch& branch) {
    if (branch.waits_for == nullptr) return;
    const auto found = waiters.find(branch.waits_for);
    if (found == waiters.end()) {
      wrong = fmt::format("request {} waits for somebody who does not run", branch.job->id);
    } else if (branch.wait_end <= branch.waits_for->computed || branch.wait_end < branch.waits_for->first_release) {
      wrong = fmt::format("request {} waits for what is there", branch.job->id);
    } else {
      ++found->second;
    }
  });
  for (const auto& [runner, count] : waiters) {
    if (runner->waiters != count || runner->waits_for != nullptr) wrong = "waiters are miscounted";
  }
  return wrong;
}

}  // namespace

// What a branch believes that steps in flight have of it.
std::optional<std::string> Scheduler::check_places(const Branch& branch) const {
  std::int32_t places = 0;
  std::int32_t rows = 0;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const StepRecord& step = steps_[(oldest_ + i) % steps_.size()];
    if (i >= in_flight_ && !(step.selections.empty() && step.output_branches.empty() && step.snapshots.empty() &&
                             step.block_copies.empty() && step.slot_copies.empty())) {
      return "a step that is over has something";
    }
    for (const Selection& selection : step.selections) {
      if (selection.branch != &branch) continue;
      ++places;
      rows += selection.rows;
    }
    for (const Branch* owner : step.output_branches) places += owner == &branch ? 1 : 0;
  }
  const bool gone = branch.state == Branch::State::waiting || branch.state == Branch::State::done;
  if (branch.places != places || branch.rows_in_flight != rows || (gone && places > 0) ||
      (branch.state == Branch::State::leaving && places == 0)) {
    return fmt::format("request {}: its places in steps are miscounted", branch.job->id);
  }
  if (branch.pending_output >= 0 && places == 0) {
    return fmt::format("request {} waits for an output of no step", branch.job->id);
  }
  const bool lane_allowed = branch.state == Branch::State::running || places > 0;
  if (branch.lane >= 0 && !lane_allowed) return fmt::format("request {} keeps a lane", branch.job->id);
  return std::nullopt;
}

// Every lane is free or has one owner.
std::optional<std::string> Scheduler::check_lanes() const {
  std::vector<int> seen(as_size(lane_count_), 0);
  for (const std::int32_t lane : free_lanes_) ++seen[as_size(lane)];
  for (const auto& [id, job] : jobs_) {
    for (const Branch& branch : job->branches) {
      if (branch.lane >= 0) ++seen[as_size(branch.lane)];
    }
  }
  if (std::any_of(seen.begin(), seen.end(), [](int owners) { return owners != 1; })) return "lanes are lost or shared";
  return std::nullopt;
}

std::optional<std::string> Scheduler::check() const {
  Holdings held;
  held.blocks.reserve(config_.groups.size());
  for (const KvGroupConfig& group : config_.groups) held.blocks.emplace_back(as_size(group.blocks), 0);
  held.slots.assign(as_size(config_.state_slots), 0);
  std::size_t running = 0;
  std::size_t waiting = 0;
  std::size_t unfinished = 0;
  std::size_t queued = 0;
  std::int64_t queued_tokens = 0;
  for (const auto& [id, job] : jobs_) {
    std::int32_t open = 0;
    std::int32_t leaving = 0;
    for (const Branch& branch : job->branches) {
      count_branch(branch, held);
      running += branch.state == Branch::State::running ? 1 : 0;
      waiting += branch.state == Branch::State::waiting ? 1 : 0;
      leaving += branch.state == Branch::State::leaving ? 1 : 0;
      open += branch.state <= Branch::State::running ? 1 : 0;
      const bool has_memory = branch.state == Branch::State::running || branch.state == Branch::State::leaving;
      if (!has_memory && !holds_nothing(branch)) return fmt::format("request {} keeps memory it has no use for", id);
      if (branch.planned_rows != 0) return fmt::format("request {} is in no plan", id);
      if (auto wrong = check_places(branch)) return wrong;
    }
    if (open != job->unfinished || leaving != job->leaving) return fmt::format("request {}: branches are lost", id);
    if (open == 0 && leaving == 0) return fmt::format("request {} has ended and is still here", id);
    unfinished += as_size(open);
    queued += job->queued ? 1U : 0U;
    queued_tokens += job->queued ? job->prompt_tokens : 0;
  }
  if (running != running_.size() || waiting != queue_.size())
    return "the lists of branches do not agree with their states";
  if (unfinished != live_branches_) return "branches are miscounted";
  if (queued != waiting_jobs_ || queued_tokens != waiting_tokens_) return "the queue is miscounted";
  if (running_.size() > as_size(config_.max_sequences)) return "too many sequences run";
  if (auto wrong = check_waiters(queue_, running_)) return wrong;
  if (auto wrong = check_lanes()) return wrong;
  for (const Branch* branch : running_) {
    if (branch->length() <= branch->computed)
      return fmt::format("request {} runs with nothing to compute", branch->job->id);
    if (auto wrong = check_writable(*branch, cache_, config_.block_tokens, held)) return wrong;
  }
  for (const PendingBlockCopy& pending : block_copies_) {
    ++held.blocks[as_size(pending.copy.group)][as_size(pending.copy.from)];
  }
  for (const PendingSlotCopy& pending : slot_copies_) ++held.slots[as_size(pending.copy.from)];
  for (const StepRecord& step : steps_) {
    for (const PendingBlockCopy& pending : step.block_copies) {
      ++held.blocks[as_size(pending.copy.group)][as_size(pending.copy.from)];
    }
    for (const PendingSlotCopy& pending : step.slot_copies) ++held.slots[as_size(pending.copy.from)];
    for (const ReservedSnapshot& reserved : step.snapshots) ++held.slots[as_size(reserved.slot)];
  }
  for (std::size_t group = 0; group < cache_.groups(); ++group) {
    if (auto wrong = compare(cache_.blocks(group), held.blocks[group], "block")) return wrong;
  }
  if (auto wrong = compare(cache_.slots(), held.slots, "slot")) return wrong;
  for (const auto& [node, holders] : held.nodes) {
    if (cache_.holders(node) != holders) return fmt::format("node {} is held by a wrong number", node);
  }
  if (!cache_.sound()) return "the prefix cache does not add up";
  if (queue_.accounts() > jobs_.size() + as_size(idle_accounts(config_)) + 1) {
    return "too many accounts";
  }
  return std::nullopt;
}

}  // namespace quarrel
