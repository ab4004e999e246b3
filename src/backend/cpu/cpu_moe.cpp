// Mixture of experts on the CPU. Rows are sorted by the expert they chose, so an expert's weights are read once a step
// whatever the number of its rows; workers take pieces of 32 weight rows of all experts in turn. Each pair of a row and
// an expert has a place of its own for its result, and a row adds up its own in the order of its choice: neither the
// grouping nor who computed what can be seen in the bits.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/digits.h"
#include "backend/cpu/shares.h"
#include "base/as_size.h"
#include "base/error.h"

namespace quarrel {
namespace {

// Scores and preferences of one row's experts from its logits, in double as `reference` has them.
void score(const MoeOp& op, const float* logits, const float* selection_bias, std::span<ExpertChoice> choices) {
  const auto count = static_cast<std::int32_t>(choices.size());
  double best = -std::numeric_limits<double>::infinity();
  for (std::size_t e = 0; e < choices.size(); ++e) best = std::max(best, static_cast<double>(logits[e]));
  double total = 0.0;
  for (std::int32_t e = 0; e < count; ++e) {
    ExpertChoice& choice = choices[as_size(e)];
    const auto logit = static_cast<double>(logits[e]);
    choice.expert = e;
    choice.score = op.gating == Gating::sigmoid ? 1.0 / (1.0 + std::exp(-logit)) : std::exp(logit - best);
    total += choice.score;
  }
  for (ExpertChoice& choice : choices) {
    if (op.gating == Gating::softmax) choice.score /= total;
    // Scores rise with the logits, and logits still differ where the scores have run into 0 or 1.
    choice.preference = selection_bias == nullptr ? static_cast<double>(logits[choice.expert])
                                                  : choice.score + static_cast<double>(selection_bias[choice.expert]);
    if (std::isnan(choice.preference)) choice.preference = -std::numeric_limits<double>::infinity();
  }
}

// Bytes that will be read soon: what a product would have prefetched had the matrix before it not ended.
void call_into_cache(const std::byte* bytes) {
  constexpr std::size_t kBytes = 4096, kLine = 64;
  for (std::size_t at = 0; at < kBytes; at += kLine) __builtin_prefetch(bytes + at, 0, 2);
}

}  // namespace

std::size_t MoeSpace::slots(std::size_t rows) const noexcept {
  const std::size_t pairs = rows * used;
  return pairs + std::min(experts, pairs) * (alignment(rows) - 1);
}

std::size_t MoeSpace::lay_out(std::byte* memory, std::size_t rows, std::size_t workers) {
  std::size_t at = 0;
  const auto take = [&]<typename T>(T*& place, std::size_t count) {
    if (memory != nullptr) place = reinterpret_cast<T*>(memory + at);
    at += padded(count * sizeof(T), 64);
  };
  const std::size_t places = slots(rows);
  const std::size_t pairs = rows * used;
  take(logits, rows * experts);
  take(choices, workers * experts);
  take(chosen, pairs);
  take(weights, pairs);
  take(slot_of, pairs);
  take(row_of, places);
  take(groups, experts);
  take(batch, experts);
  take(inner, places * hidden);
  take(input_digits, digit_bytes(places, input));
  take(inner_digits, digit_bytes(places, hidden));
  if (bfloats) {
    take(input_bfloats, bfloat_bytes(places, input));
    take(inner_bfloats, bfloat_bytes(places, hidden));
  }
  take(outputs, places * width);
  take(ups, workers * rows * kUnit);
  return used == 0 ? 0 : at;
}

// Notes what the experts of a layer ask of the workspace and of the cache.
void CpuBackend::add_experts(const WeightSource& source, std::int32_t id, const Prepared& weight) {
  moe_.bfloats = has_bfloats();
  moe_.experts = std::max(moe_.experts, weight.places.size());
  moe_.used = std::max(moe_.used, as_size(source.experts_used));
  std::size_t& width = source.role == WeightRole::expert_row ? moe_.width : moe_.hidden;
  width = std::max(width, weight.rows);
  if (source.role == WeightRole::expert_column) moe_.input = std::max(moe_.input, weight.columns);
  if (!options_.cpu.expert_memory.has_value()) return;
  expert_sets_[source.layer].add(id, source.experts_used, weight.rows, weight.row_bytes, weight.row_stride,
                                 weight.places);
}

bool CpuBackend::caches_experts() const noexcept {
  if (!options_.cpu.expert_memory.has_value()) return false;
  std::size_t all = 0;
  for (const auto& [layer, experts] : expert_sets_) all += experts.bytes();
  return all > *options_.cpu.expert_memory;
}

std::size_t CpuBackend::expert_cache_bytes() const noexcept {
  return caches_experts() ? options_.cpu.expert_memory.value_or(0) : 0;
}

BackendCounters CpuBackend::counters() const noexcept {
  BackendCounters counters = HostBackend::counters();
  if (expert_cache_ != nullptr) {
    counters.expert_hits = expert_cache_->hits();
    counters.expert_misses = expert_cache_->misses();
    counters.expert_bytes_read = expert_cache_->bytes_read();
  }
  return counters;
}

void CpuBackend::check_experts(const MoeOp& op) const {
  const auto same = [](const Weight& a, const Weight& b) {
    return a.rows == b.rows && a.columns == b.columns && a.experts == b.experts;
  };
  const bool routed = op.used >= 1 && op.used <= op.router.rows && op.router.rows == op.up.experts &&
                      op.router.columns == op.up.columns && op.x.width >= op.up.columns;
  const bool gated = op.gate.valid() ? same(op.gate, op.up) : op.activation != ActivationKind::swiglu_clamped;
  const bool shared =
      !op.shared_up.valid() ||
      (op.shared_up.columns == op.up.columns && op.shared_down.columns == op.shared_up.rows &&
       op.shared_down.rows == op.down.rows &&
       (op.shared_gate.valid() ? same(op.shared_gate, op.shared_up) : op.activation != ActivationKind::swiglu_clamped));
  if (!routed || !gated || !shared || op.down.experts != op.up.experts || op.down.columns != op.up.rows ||
      !op.end.x.valid() || op.end.x.width != op.down.rows) {
    fail(ErrorKind::internal, "the experts of layer {} are malformed", op.layer);
  }
  const std::size_t experts = as_size(op.up.experts);
  const auto stacked = [&](const Weight& weight) { return prepared(weight).places.size() == experts; };
  const auto holds = [&](const Weight& bias, std::size_t count) {
    return !bias.valid() || prepared(bias).decoded.size() == count;
  };
  const std::size_t hidden = as_size(op.up.rows);
  if (!stacked(op.up) || !stacked(op.down) || (op.gate.valid() && !stacked(op.gate)) ||
      !holds(op.router_bias, experts) || !holds(op.selection_bias, experts) || !holds(op.gate_bias, experts * hidden) ||
      !holds(op.up_bias, experts * hidden) || !holds(op.down_bias, experts * as_size(op.down.rows))) {
    fail(ErrorKind::internal, "layer {} has weights that are not its experts'", op.layer);
  }
  if (as_size(op.used) > moe_.used || experts > moe_.experts || hidden > moe_.hidden ||
      as_size(op.down.rows) > moe_.width || as_size(op.up.columns) > moe_.input) {
    fail(ErrorKind::internal, "layer {} uses {} experts, more than its weights were prepared for", op.layer, op.used);
  }
}

void CpuBackend::route(const MoeOp& op, const Input& input) {
  Timer timer(*this, "router");
  timer.products(input.rows, {op.router});
  const std::size_t experts = as_size(op.router.rows);
  const std::size_t used = as_size(op.used);
  // Which experts a row goes to must not hang on the last bit of a digit: the router always works in F32.
  Input plain = input;
  plain.digits = false;
  plain.bfloats = false;
  const Product product{.weight = op.router, .out = moe_.logits, .stride = experts};
  multiply(plain, {&product, 1});
  const float* selection_bias = vector(op.selection_bias);
  const auto choose = [&](std::size_t r, std::span<ExpertChoice> choices) {
    float* logits = moe_.logits + r * experts;
    if (op.router_bias.valid()) kernels_.add(logits, vector(op.router_bias), experts);
    score(op, logits, selection_bias, choices);
    std::partial_sort(choices.begin(), choices.begin() + op.used, choices.end(),
                      [](const ExpertChoice& a, const ExpertChoice& b) {
                        return a.preference != b.preference ? a.preference > b.preference : a.expert < b.expert;
                      });
    double total = 0.0;
    for (const ExpertChoice& choice : choices.first(used)) total += choice.score;
    const double share = op.normalise && total != 0.0 ? 1.0 / total : 1.0;
    const bool padding = is_padding(op.x.rows, static_cast<std::int32_t>(r));  // goes to no expert
    for (std::size_t i = 0; i < used; ++i) {
      moe_.chosen[r * used + i] = padding ? -1 : choices[i].expert;
      moe_.weights[r * used + i] = static_cast<float>(choices[i].score * share * static_cast<double>(op.weight_scale));
    }
  };
  if (input.rows == 1) {
    choose(0, {moe_.choices, experts});
  } else {
    device_.pool().run([&](int worker, int workers) {
      const std::span<ExpertChoice> choices{moe_.choices + as_size(worker) * experts, experts};
      for (std::size_t r = as_size(worker); r < input.rows; r += as_size(workers)) choose(r, choices);
    });
  }
  count_experts(op.layer, op.up.experts, {moe_.chosen, input.rows * used});
}

// Sorts the slots by expert and gives back the groups that have any.
std::span<ExpertGroup> CpuBackend::group_rows(const MoeOp& op, const Input& input) {
  const std::size_t used = as_size(op.used);
  const std::span<ExpertGroup> all{moe_.groups, as_size(op.up.experts)};
  for (std::size_t e = 0; e < all.size(); ++e) all[e] = {.expert = static_cast<std::int32_t>(e)};
  for (std::size_t i = 0; i < input.rows * used; ++i) {
    if (moe_.chosen[i] >= 0) ++all[as_size(moe_.chosen[i])].rows;
  }
  std::size_t slots = 0;
  for (ExpertGroup& group : all) {
    group.first = slots;
    const std::size_t count = std::exchange(group.rows, 0);
    slots += padded(count, moe_.alignment(input.rows));
  }
  for (std::size_t i = 0; i < input.rows * used; ++i) {
    if (moe_.chosen[i] < 0) continue;
    const std::size_t row = i / used;
    ExpertGroup& group = all[as_size(moe_.chosen[i])];
    const std::size_t slot = group.first + group.rows++;
    if (row < input.generated) ++group.generated;
    moe_.slot_of[i] = static_cast<std::uint32_t>(slot);
    moe_.row_of[slot] = static_cast<std::uint32_t>(row);
  }
  const auto empty = std::ranges::remove_if(all, [](const ExpertGroup& group) { return group.rows == 0; });
  return {all.begin(), empty.begin()};
}

// Values [first, first + count) of the hidden rows of one expert's group.
void CpuBackend::expert_inner(const MoeOp& op, const Input& input, const ExpertGroup& group, std::size_t first,
                              std::size_t count, std::size_t worker) {
  const bool one_row = input.rows == 1;
  const DigitRows sorted = one_row ? digits_ : lay_out_digits(moe_.input_digits, input.columns);
  const BfloatRows sorted_bfloats =
      one_row ? bfloats_ : lay_out_bfloats(moe_.input_bfloats, moe_.slots(input.rows), input.columns);
  const std::size_t hidden = as_size(op.up.rows);
  float* values = moe_.inner + group.first * hidden + first;
  float* ups = moe_.ups + worker * step_rows_ * MoeSpace::kUnit;
  const auto product = [&](const Weight& handle, const std::byte* data, float* out, std::size_t stride) {
    const Prepared& weight = prepared(handle);
    const bool digits = input.digits && wants_digits(handle);
    MatmulTask task = weight.task(data, first, first + count);
    task.digits = digits ? &sorted : nullptr;
    task.first_row = one_row ? 0 : group.first;
    task.plain = input.plain;
    task.plain_stride = input.stride;
    task.row_index = digits ? nullptr : moe_.row_of + group.first;
    task.rows = group.rows;
    task.bfloats = input.bfloats && wants_bfloats(handle) ? &sorted_bfloats : nullptr;
    task.bfloat_pairs = wants_bfloat_pairs(handle);
    task.first_bfloat = task.first_row;
    task.out = out;
    task.out_stride = stride;
    task.scratch = scratch_[worker].data();
    multiply_rows(task, group.generated);
  };
  const auto bias = [&](const Weight& handle) {
    return handle.valid() ? vector(handle) + as_size(group.expert) * hidden + first : nullptr;
  };
  const float* up_bias = bias(op.up_bias);
  const float* value_bias = op.gate.valid() ? bias(op.gate_bias) : up_bias;
  if (op.gate.valid()) {
    product(op.up, group.up, ups, MoeSpace::kUnit);
    product(op.gate, group.gate, values, hidden);
  } else {
    product(op.up, group.up, values, hidden);
  }
  const Gate gate{.kind = op.activation, .clamp = op.clamp, .alpha = op.alpha};
  for (std::size_t r = 0; r < group.rows; ++r) {
    float* up = op.gate.valid() ? ups + r * MoeSpace::kUnit : nullptr;
    if (up != nullptr && up_bias != nullptr) kernels_.add(up, up_bias, count);
    if (value_bias != nullptr) kernels_.add(values + r * hidden, value_bias, count);
    gate_values(gate, values + r * hidden, up, count);
  }
}

// Values [first, first + count) of what one expert gives back for its group.
void CpuBackend::expert_output(const MoeOp& op, const ExpertGroup& group, const DigitRows* digits,
                               const BfloatRows* bfloats, std::size_t first, std::size_t count, std::size_t worker) {
  const Prepared& weight = prepared(op.down);
  float* out = moe_.outputs + group.first * weight.rows + first;
  MatmulTask task = weight.task(group.down, first, first + count);
  task.digits = digits;
  task.first_row = group.first;
  task.plain = moe_.inner + group.first * weight.columns;
  task.plain_stride = weight.columns;
  task.rows = group.rows;
  task.bfloats = bfloats;
  task.bfloat_pairs = wants_bfloat_pairs(op.down);
  task.first_bfloat = group.first;
  task.out = out;
  task.out_stride = weight.rows;
  task.scratch = scratch_[worker].data();
  multiply_rows(task, group.generated);
  if (!op.down_bias.valid()) return;
  const float* bias = vector(op.down_bias) + as_size(group.expert) * weight.rows + first;
  for (std::size_t r = 0; r < group.rows; ++r) kernels_.add(out + r * weight.rows, bias, count);
}

// All that these experts compute: two regions of the pool for products, each after one for their digits.
void CpuBackend::run_experts(const MoeOp& op, const Input& input, std::span<const ExpertGroup> groups) {
  constexpr std::size_t kUnit = MoeSpace::kUnit;
  const std::size_t hidden = as_size(op.up.rows);
  const std::size_t width = as_size(op.down.rows);
  ThreadPool& pool = device_.pool();
  // A team takes the rows that it has packed, of every expert.
  const auto each_unit = [&](std::size_t weight_rows, const auto& call_in, const auto& task) {
    const auto units_of = [&](int team) {
      const Share part = team_share(weight_rows, pool, team);
      return (part.last - part.first + kUnit - 1) / kUnit;
    };
    const auto one = [&](int team, std::size_t unit, int worker) {
      const std::size_t units = units_of(team);
      const Share part = team_share(weight_rows, pool, team);
      const std::size_t first = part.first + unit % units * kUnit;
      task(groups[unit / units], first, std::min(kUnit, part.last - first), as_size(worker));
    };
    if (input.rows > 1) return pool.share([&](int team) { return groups.size() * units_of(team); }, one);
    // For one row all units cost the same, and a worker that goes on where it stopped reads one stream.
    pool.run([&](int worker, int) {
      const int team = pool.team_of(worker);
      const ThreadPool::TeamRange members = pool.team(team);
      const std::size_t units = units_of(team);
      const Share part = team_share(weight_rows, pool, team);
      const auto bound = [&](int w) {
        return groups.size() * units * as_size(w - members.first) / as_size(members.last - members.first);
      };
      const std::size_t end = bound(worker + 1);
      for (std::size_t unit = bound(worker); unit < end; ++unit) {
        // The stream breaks off where an expert ends; the next one is known, so its beginning can be on its way.
        const bool last_of_expert = unit % units + 1 == units;
        if (last_of_expert && unit + 1 < end) call_in(groups[unit / units + 1], part.first);
        one(team, unit, worker);
      }
    });
  };
  const std::size_t slots = moe_.slots(input.rows);
  if ((input.digits || input.bfloats) && input.rows > 1) {
    const DigitRows sorted = lay_out_digits(moe_.input_digits, input.columns);
    const BfloatRows sorted_bfloats = lay_out_bfloats(moe_.input_bfloats, slots, input.columns);
    share(pool, groups.size(), [&](std::size_t g, std::size_t) {
      for (std::size_t slot = groups[g].first; slot < groups[g].first + groups[g].rows; ++slot) {
        const std::size_t row = moe_.row_of[slot];
        if (input.bfloats && row >= input.generated) {
          copy_bfloats(bfloats_, row, sorted_bfloats, slot);
        } else if (input.digits) {
          copy_digits(digits_, row, sorted, slot);
        }
      }
    });
  }
  // A panel takes the bytes of its rows.
  const auto call_row = [this](const Weight& handle, const std::byte* matrix, std::size_t row) {
    const Prepared& weight = prepared(handle);
    call_into_cache(matrix + row * (weight.packed ? weight.row_bytes : weight.row_stride));
  };
  const auto call_inner = [&](const ExpertGroup& group, std::size_t row) {
    call_row(op.up, group.up, row);
    if (op.gate.valid()) call_row(op.gate, group.gate, row);
  };
  each_unit(hidden, call_inner,
            [&](const ExpertGroup& group, std::size_t first, std::size_t count, std::size_t worker) {
              expert_inner(op, input, group, first, count, worker);
            });
  Input inner{.columns = hidden,
              .digits = wants_digits(op.down),
              .bfloats = wants_bfloats(op.down),
              .bfloat_pairs = wants_bfloat_pairs(op.down)};
  const DigitRows digits = lay_out_digits(moe_.inner_digits, hidden);
  const BfloatRows bfloats = lay_out_bfloats(moe_.inner_bfloats, slots, hidden);
  if (inner.digits || inner.bfloats) {
    share(pool, groups.size(), [&](std::size_t g, std::size_t) {
      const ExpertGroup& group = groups[g];
      Input own = inner;
      own.generated = group.first + group.generated;
      for (std::size_t slot = group.first; slot < group.first + group.rows; ++slot) {
        convert(moe_.inner + slot * hidden, own, digits, bfloats, slot);
      }
    });
  }
  const auto call_output = [&](const ExpertGroup& group, std::size_t row) { call_row(op.down, group.down, row); };
  each_unit(width, call_output,
            [&](const ExpertGroup& group, std::size_t first, std::size_t count, std::size_t worker) {
              expert_output(op, group, inner.digits ? &digits : nullptr, inner.bfloats ? &bfloats : nullptr, first,
                            count, worker);
            });
}

// Experts that are in the cache come first, so that nothing goes before it was of use; then as many at a time as fit.
void CpuBackend::run_cached(const MoeOp& op, const Input& input, std::span<ExpertGroup> groups) {
  const ExpertSet& set = expert_cache_->set(op.layer);
  const std::size_t up = set.offset_of(op.up.id);
  const std::size_t gate = op.gate.valid() ? set.offset_of(op.gate.id) : 0;
  const std::size_t down = set.offset_of(op.down.id);
  std::ranges::stable_partition(groups,
                                [&](const ExpertGroup& group) { return expert_cache_->holds(op.layer, group.expert); });
  const std::size_t most = expert_cache_->most(op.layer);
  for (std::size_t begin = 0; begin < groups.size(); begin += most) {
    const std::span<ExpertGroup> part = groups.subspan(begin, std::min(most, groups.size() - begin));
    std::ranges::transform(part, moe_.batch, &ExpertGroup::expert);
    expert_cache_->load(op.layer, {moe_.batch, part.size()}, device_.pool());
    for (ExpertGroup& group : part) {
      const std::byte* entry = expert_cache_->entry(op.layer, group.expert);
      group.up = entry + up;
      group.gate = entry + gate;
      group.down = entry + down;
    }
    run_experts(op, input, part);
  }
}

void CpuBackend::run_in_place(const MoeOp& op, const Input& input, std::span<ExpertGroup> groups) {
  for (ExpertGroup& group : groups) {
    const std::size_t expert = as_size(group.expert);
    group.up = prepared(op.up).places[expert].data;
    group.gate = op.gate.valid() ? prepared(op.gate).places[expert].data : nullptr;
    group.down = prepared(op.down).places[expert].data;
  }
  run_experts(op, input, groups);
}

// [rows][width of down], in second_.
void CpuBackend::run_shared(const MoeOp& op, const Input& input) {
  Timer timer(*this, "shared experts");
  timer.products(input.rows, {op.shared_gate, op.shared_up, op.shared_down});
  const std::size_t hidden = as_size(op.shared_up.rows);
  multiply_gated(input, {.gate = op.shared_gate,
                         .up = op.shared_up,
                         .activation = {.kind = op.activation, .clamp = op.clamp, .alpha = op.alpha},
                         .out = first_.floats(),
                         .stride = hidden});
  Input inner{.plain = first_.floats(),
              .stride = hidden,
              .columns = hidden,
              .rows = input.rows,
              .generated = input.generated,
              .digits = wants_digits(op.shared_down),
              .bfloats = wants_bfloats(op.shared_down),
              .bfloat_pairs = wants_bfloat_pairs(op.shared_down)};
  if (inner.digits || inner.bfloats) {
    lay_out(inner);
    for_rows(static_cast<std::int64_t>(inner.rows),
             [&](std::int32_t r) { convert(inner.plain + as_size(r) * hidden, inner, digits_, bfloats_, as_size(r)); });
  }
  const Product product{.weight = op.shared_down, .out = second_.floats(), .stride = as_size(op.shared_down.rows)};
  multiply(inner, {&product, 1});
}

void CpuBackend::moe(const MoeOp& op) {
  give_way();
  check_experts(op);
  const std::array weights = {op.up, op.gate.valid() ? op.gate : op.up, op.shared_up.valid() ? op.shared_up : op.up,
                              op.shared_gate.valid() ? op.shared_gate : op.up};
  const Input input = prepare_input(op.x, 0, row_count(op.x.rows), op.before, op.layer, weights);
  route(op, input);
  {
    Timer timer(*this, "experts");
    const std::span<ExpertGroup> groups = group_rows(op, input);
    timer.products(input.rows * as_size(op.used), {op.gate, op.up, op.down}, groups.size());
    if (expert_cache_ != nullptr) {
      run_cached(op, input, groups);
    } else {
      run_in_place(op, input, groups);
    }
  }
  if (op.shared_up.valid()) run_shared(op, input);
  const Timer timer(*this, "experts");
  const std::size_t width = as_size(op.down.rows);
  const std::size_t used = as_size(op.used);
  for_rows(row_count(op.x.rows), [&](std::int32_t r) {
    float* value = first_.floats() + as_size(r) * width;
    std::fill_n(value, width, 0.0f);
    for (std::size_t i = as_size(r) * used; i < (as_size(r) + 1) * used && moe_.chosen[i] >= 0; ++i) {
      kernels_.add_scaled(value, moe_.outputs + moe_.slot_of[i] * width, moe_.weights[i], width);
    }
    if (op.shared_up.valid()) kernels_.add(value, second_.floats() + as_size(r) * width, width);
  });
  finish_branch(op.end, {}, first_.floats(), width, op.layer);
}

}  // namespace quarrel
