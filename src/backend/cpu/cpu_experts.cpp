#include "backend/cpu/cpu_experts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

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

// Bytes that will be read soon: what a GEMV would have prefetched had the matrix before it not ended.
void call_into_cache(const std::byte* bytes) {
  constexpr std::size_t kBytes = 4096, kLine = 64;
  for (std::size_t at = 0; at < kBytes; at += kLine) __builtin_prefetch(bytes + at, 0, 2);
}

}  // namespace

std::size_t ExpertWorkspace::routed_rows(std::size_t rows) const noexcept {
  const std::size_t pairs = rows * used;
  return pairs + std::min(experts, pairs) * (alignment(rows) - 1);
}

std::size_t ExpertWorkspace::lay_out(std::byte* memory, std::size_t rows, std::size_t workers) {
  std::size_t at = 0;
  const auto take = [&]<typename T>(T*& place, std::size_t count) {
    if (memory != nullptr) place = reinterpret_cast<T*>(memory + at);
    at += padded(count * sizeof(T), 64);
  };
  const std::size_t places = routed_rows(rows);
  const std::size_t pairs = rows * used;
  take(logits, rows * experts);
  take(choices, workers * experts);
  take(chosen, pairs);
  take(weights, pairs);
  take(routed_of, pairs);
  take(row_of, places);
  take(batches, experts);
  take(loading, experts);
  take(inner, places * hidden);
  take(input_int8, int8_bytes(places, input));
  take(inner_int8, int8_bytes(places, hidden));
  if (has_bf16) {
    take(input_bf16, bf16_bytes(places, input));
    take(inner_bf16, bf16_bytes(places, hidden));
  }
  take(outputs, places * width);
  take(ups, workers * rows * kUnit);
  return used == 0 ? 0 : at;
}

void CpuExperts::add(const WeightSource& source, const Weight& handle) {
  const PreparedWeight& weight = weights_[handle];
  space_.has_bf16 = linear_.has_bf16();
  space_.experts = std::max(space_.experts, weight.places.size());
  space_.used = std::max(space_.used, as_size(source.experts_used));
  std::size_t& width = source.role == WeightRole::expert_row ? space_.width : space_.hidden;
  width = std::max(width, weight.rows);
  if (source.role == WeightRole::expert_column) space_.input = std::max(space_.input, weight.columns);
  if (!options_.cpu.expert_memory.has_value()) return;
  sets_[source.layer].add(handle.id, source.experts_used, weight.rows, weight.row_bytes, weight.row_stride,
                          weight.places);
}

bool CpuExperts::is_cached() const noexcept {
  if (!options_.cpu.expert_memory.has_value()) return false;
  std::size_t all = 0;
  for (const auto& [layer, experts] : sets_) all += experts.bytes();
  return all > *options_.cpu.expert_memory;
}

std::size_t CpuExperts::cache_bytes() const noexcept {
  return is_cached() ? options_.cpu.expert_memory.value_or(0) : 0;
}

std::size_t CpuExperts::workspace_bytes(std::size_t rows) const noexcept {
  return ExpertWorkspace(space_).lay_out(nullptr, rows, device_.workers());
}

void CpuExperts::reserve(std::size_t rows) {
  step_rows_ = rows;
  memory_ = AlignedBuffer(workspace_bytes(rows), "experts");
  space_.lay_out(memory_.data(), rows, device_.workers());
  cache_.reset();
  if (is_cached()) cache_ = std::make_unique<ExpertCache>(sets_, cache_bytes());
}

void CpuExperts::count(BackendCounters& counters) const noexcept {
  if (cache_ == nullptr) return;
  counters.expert_hits = cache_->hits();
  counters.expert_misses = cache_->misses();
  counters.expert_bytes_read = cache_->bytes_read();
}

void CpuExperts::check(const MoeOp& op) const {
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
  const auto stacked = [&](const Weight& weight) { return weights_[weight].places.size() == experts; };
  const auto holds = [&](const Weight& bias, std::size_t count) {
    return !bias.valid() || weights_[bias].decoded.size() == count;
  };
  const std::size_t hidden = as_size(op.up.rows);
  if (!stacked(op.up) || !stacked(op.down) || (op.gate.valid() && !stacked(op.gate)) ||
      !holds(op.router_bias, experts) || !holds(op.selection_bias, experts) || !holds(op.gate_bias, experts * hidden) ||
      !holds(op.up_bias, experts * hidden) || !holds(op.down_bias, experts * as_size(op.down.rows))) {
    fail(ErrorKind::internal, "layer {} has weights that are not its experts'", op.layer);
  }
  if (as_size(op.used) > space_.used || experts > space_.experts || hidden > space_.hidden ||
      as_size(op.down.rows) > space_.width || as_size(op.up.columns) > space_.input) {
    fail(ErrorKind::internal, "layer {} uses {} experts, more than its weights were prepared for", op.layer, op.used);
  }
}

void CpuExperts::route(const MoeOp& op, const GemmInput& input) {
  HostBackend::Timer timer(host_, "router");
  timer.gemm(input.rows, {op.router});
  const std::size_t experts = as_size(op.router.rows);
  const std::size_t used = as_size(op.used);
  // Which experts a row goes to must not hang on the rounding to int8: the router always works in F32.
  GemmInput unrounded = input;
  unrounded.has_int8 = false;
  unrounded.has_bf16 = false;
  const Projection projection{op.router, {space_.logits, experts}};
  linear_.gemm(unrounded, {&projection, 1});
  const float* selection_bias = weights_.vector(op.selection_bias);
  const auto choose = [&](std::size_t r, std::span<ExpertChoice> choices) {
    float* logits = space_.logits + r * experts;
    if (op.router_bias.valid()) kernels_.add(logits, weights_.vector(op.router_bias), experts);
    score(op, logits, selection_bias, choices);
    std::partial_sort(choices.begin(), choices.begin() + op.used, choices.end(),
                      [](const ExpertChoice& a, const ExpertChoice& b) {
                        return a.preference != b.preference ? a.preference > b.preference : a.expert < b.expert;
                      });
    double total = 0.0;
    for (const ExpertChoice& choice : choices.first(used)) total += choice.score;
    const double share = op.normalise && total != 0.0 ? 1.0 / total : 1.0;
    const bool padding = host_.is_padding(op.x.rows, static_cast<std::int32_t>(r));  // goes to no expert
    for (std::size_t i = 0; i < used; ++i) {
      space_.chosen[r * used + i] = padding ? -1 : choices[i].expert;
      space_.weights[r * used + i] =
          static_cast<float>(choices[i].score * share * static_cast<double>(op.weight_scale));
    }
  };
  if (input.rows == 1) {
    choose(0, {space_.choices, experts});
  } else {
    device_.pool().run([&](int worker, int workers) {
      const std::span<ExpertChoice> choices{space_.choices + as_size(worker) * experts, experts};
      for (std::size_t r = as_size(worker); r < input.rows; r += as_size(workers)) choose(r, choices);
    });
  }
  host_.count_experts(op.layer, op.up.experts, {space_.chosen, input.rows * used});
}

std::span<ExpertBatch> CpuExperts::sort_rows(const MoeOp& op, const GemmInput& input) {
  const std::size_t used = as_size(op.used);
  const std::span<ExpertBatch> all{space_.batches, as_size(op.up.experts)};
  for (std::size_t e = 0; e < all.size(); ++e) all[e] = {.expert = static_cast<std::int32_t>(e)};
  for (std::size_t i = 0; i < input.rows * used; ++i) {
    if (space_.chosen[i] >= 0) ++all[as_size(space_.chosen[i])].rows;
  }
  std::size_t places = 0;
  for (ExpertBatch& batch : all) {
    batch.first = places;
    const std::size_t count = std::exchange(batch.rows, 0);
    places += padded(count, space_.alignment(input.rows));
  }
  for (std::size_t i = 0; i < input.rows * used; ++i) {
    if (space_.chosen[i] < 0) continue;
    const std::size_t row = i / used;
    ExpertBatch& batch = all[as_size(space_.chosen[i])];
    const std::size_t routed = batch.first + batch.rows++;
    if (row < input.generated) ++batch.generated;
    space_.routed_of[i] = static_cast<std::uint32_t>(routed);
    space_.row_of[routed] = static_cast<std::uint32_t>(row);
  }
  const auto empty = std::ranges::remove_if(all, [](const ExpertBatch& batch) { return batch.rows == 0; });
  return {all.begin(), empty.begin()};
}

// What all batches read. A single row stays where it is: every expert begins with it.
GemmInput CpuExperts::sort_input(const GemmInput& input, std::span<const ExpertBatch> batches) {
  if (input.rows == 1) return input;
  GemmInput sorted = input;
  sorted.int8 = lay_out_int8(space_.input_int8, input.columns);
  sorted.bf16 = lay_out_bf16(space_.input_bf16, space_.routed_rows(input.rows), input.columns);
  if (!input.has_int8 && !input.has_bf16) return sorted;
  share_units(device_.pool(), batches.size(), [&](std::size_t b, std::size_t) {
    for (std::size_t routed = batches[b].first; routed < batches[b].first + batches[b].rows; ++routed) {
      const std::size_t row = space_.row_of[routed];
      if (input.has_bf16 && row >= input.generated) {
        copy_bf16_row(input.bf16, row, sorted.bf16, routed);
      } else if (input.has_int8) {
        copy_int8_row(input.int8, row, sorted.int8, routed);
      }
    }
  });
  return sorted;
}

void CpuExperts::run_inner(const MoeOp& op, const GemmInput& sorted, const ExpertBatch& batch, const Share& share,
                           std::size_t worker) {
  const std::size_t hidden = as_size(op.up.rows);
  const std::size_t count = share.last - share.first;
  const bool gated = op.gate.valid();
  GemmInput input = sorted;
  input.first_row = sorted.rows == 1 ? 0 : batch.first;
  input.row_index = space_.row_of + batch.first;
  input.rows = batch.rows;
  input.generated = batch.generated;
  float* values = space_.inner + batch.first * hidden + share.first;
  float* ups = space_.ups + worker * step_rows_ * ExpertWorkspace::kUnit;
  const auto bias = [&](const Weight& handle) {
    return handle.valid() ? weights_.vector(handle) + as_size(batch.expert) * hidden + share.first : nullptr;
  };
  const float* up_bias = bias(op.up_bias);
  const float* value_bias = gated ? bias(op.gate_bias) : up_bias;
  if (gated) {
    linear_.gemm_share(input, weights_[op.up], batch.up, share, {ups, ExpertWorkspace::kUnit}, worker);
    linear_.gemm_share(input, weights_[op.gate], batch.gate, share, {values, hidden}, worker);
  } else {
    linear_.gemm_share(input, weights_[op.up], batch.up, share, {values, hidden}, worker);
  }
  const Gate gate{.kind = op.activation, .clamp = op.clamp, .alpha = op.alpha};
  for (std::size_t r = 0; r < batch.rows; ++r) {
    float* up = gated ? ups + r * ExpertWorkspace::kUnit : nullptr;
    if (up != nullptr && up_bias != nullptr) kernels_.add(up, up_bias, count);
    if (value_bias != nullptr) kernels_.add(values + r * hidden, value_bias, count);
    linear_.activate(gate, values + r * hidden, up, count);
  }
}

GemmInput CpuExperts::convert_inner(const MoeOp& op, std::size_t rows, std::span<const ExpertBatch> batches) {
  const std::size_t hidden = as_size(op.up.rows);
  GemmInput inner = linear_.forms_for({&op.down, 1});
  inner.stride = hidden;
  inner.int8 = lay_out_int8(space_.inner_int8, hidden);
  inner.bf16 = lay_out_bf16(space_.inner_bf16, space_.routed_rows(rows), hidden);
  if (!inner.has_int8 && !inner.has_bf16) return inner;
  share_units(device_.pool(), batches.size(), [&](std::size_t b, std::size_t) {
    const ExpertBatch& batch = batches[b];
    GemmInput own = inner;
    own.generated = batch.first + batch.generated;
    for (std::size_t routed = batch.first; routed < batch.first + batch.rows; ++routed) {
      linear_.convert_row(space_.inner + routed * hidden, own, routed);
    }
  });
  return inner;
}

void CpuExperts::run_outer(const MoeOp& op, const GemmInput& inner, const ExpertBatch& batch, const Share& share,
                           std::size_t worker) {
  const PreparedWeight& weight = weights_[op.down];
  float* out = space_.outputs + batch.first * weight.rows + share.first;
  GemmInput input = inner;
  input.values = space_.inner + batch.first * weight.columns;
  input.first_row = batch.first;
  input.rows = batch.rows;
  input.generated = batch.generated;
  linear_.gemm_share(input, weight, batch.down, share, {out, weight.rows}, worker);
  if (!op.down_bias.valid()) return;
  const float* bias = weights_.vector(op.down_bias) + as_size(batch.expert) * weight.rows + share.first;
  for (std::size_t r = 0; r < batch.rows; ++r) kernels_.add(out + r * weight.rows, bias, share.last - share.first);
}

// A NUMA node takes the weight rows that its workers have packed, of every expert.
template <typename CallIn, typename Task>
void CpuExperts::for_units(std::size_t weight_rows, std::size_t step_rows, std::span<const ExpertBatch> batches,
                           const CallIn& call_in, const Task& task) {
  constexpr std::size_t kUnit = ExpertWorkspace::kUnit;
  ThreadPool& pool = device_.pool();
  const auto units_of = [&](int node) {
    const Share share = node_share(weight_rows, pool, node);
    return (share.last - share.first + kUnit - 1) / kUnit;
  };
  const auto one = [&](int node, std::size_t unit, int worker) {
    const std::size_t units = units_of(node);
    const Share share = node_share(weight_rows, pool, node);
    const std::size_t first = share.first + unit % units * kUnit;
    task(batches[unit / units], Share{first, std::min(first + kUnit, share.last)}, as_size(worker));
  };
  if (step_rows > 1) return pool.share([&](int node) { return batches.size() * units_of(node); }, one);
  // For one row all units cost the same, and a worker that goes on where it stopped reads one stream.
  pool.run([&](int worker, int) {
    const int node = pool.node_of(worker);
    const ThreadPool::NodeRange members = pool.node(node);
    const std::size_t units = units_of(node);
    const Share share = node_share(weight_rows, pool, node);
    const auto bound = [&](int w) {
      return batches.size() * units * as_size(w - members.first) / as_size(members.last - members.first);
    };
    const std::size_t end = bound(worker + 1);
    for (std::size_t unit = bound(worker); unit < end; ++unit) {
      // The stream breaks off where an expert ends; the next one is known, so its beginning can be on its way.
      const bool last_of_expert = unit % units + 1 == units;
      if (last_of_expert && unit + 1 < end) call_in(batches[unit / units + 1], share.first);
      one(node, unit, worker);
    }
  });
}

// All that these experts compute: two regions of the pool for GEMMs, each after one for the form of their inputs.
void CpuExperts::run(const MoeOp& op, const GemmInput& input, std::span<const ExpertBatch> batches) {
  // A panel takes the bytes of its weight rows.
  const auto call_weight_row = [this](const Weight& handle, const std::byte* matrix, std::size_t weight_row) {
    const PreparedWeight& weight = weights_[handle];
    call_into_cache(matrix + weight_row * (weight.packed ? weight.row_bytes : weight.row_stride));
  };
  const GemmInput sorted = sort_input(input, batches);
  for_units(
      as_size(op.up.rows), input.rows, batches,
      [&](const ExpertBatch& batch, std::size_t weight_row) {
        call_weight_row(op.up, batch.up, weight_row);
        if (op.gate.valid()) call_weight_row(op.gate, batch.gate, weight_row);
      },
      [&](const ExpertBatch& batch, const Share& share, std::size_t worker) {
        run_inner(op, sorted, batch, share, worker);
      });
  const GemmInput inner = convert_inner(op, input.rows, batches);
  for_units(
      as_size(op.down.rows), input.rows, batches,
      [&](const ExpertBatch& batch, std::size_t weight_row) { call_weight_row(op.down, batch.down, weight_row); },
      [&](const ExpertBatch& batch, const Share& share, std::size_t worker) {
        run_outer(op, inner, batch, share, worker);
      });
}

// Experts that are in the cache come first, so that nothing goes before it was of use; then as many at a time as fit.
void CpuExperts::run_cached(const MoeOp& op, const GemmInput& input, std::span<ExpertBatch> batches) {
  const ExpertSet& set = cache_->set(op.layer);
  const std::size_t up = set.offset_of(op.up.id);
  const std::size_t gate = op.gate.valid() ? set.offset_of(op.gate.id) : 0;
  const std::size_t down = set.offset_of(op.down.id);
  std::ranges::stable_partition(batches,
                                [&](const ExpertBatch& batch) { return cache_->holds(op.layer, batch.expert); });
  const std::size_t most = cache_->most(op.layer);
  for (std::size_t begin = 0; begin < batches.size(); begin += most) {
    const std::span<ExpertBatch> some = batches.subspan(begin, std::min(most, batches.size() - begin));
    std::ranges::transform(some, space_.loading, &ExpertBatch::expert);
    cache_->load(op.layer, {space_.loading, some.size()}, device_.pool());
    for (ExpertBatch& batch : some) {
      const std::byte* entry = cache_->entry(op.layer, batch.expert);
      batch.up = entry + up;
      batch.gate = entry + gate;
      batch.down = entry + down;
    }
    run(op, input, some);
  }
}

void CpuExperts::run_in_place(const MoeOp& op, const GemmInput& input, std::span<ExpertBatch> batches) {
  for (ExpertBatch& batch : batches) {
    const std::size_t expert = as_size(batch.expert);
    batch.up = weights_[op.up].places[expert].data;
    batch.gate = op.gate.valid() ? weights_[op.gate].places[expert].data : nullptr;
    batch.down = weights_[op.down].places[expert].data;
  }
  run(op, input, batches);
}

// [rows][width of down], in the second buffer.
void CpuExperts::run_shared(const MoeOp& op, const GemmInput& input) {
  HostBackend::Timer timer(host_, "shared experts");
  timer.gemm(input.rows, {op.shared_gate, op.shared_up, op.shared_down});
  const std::size_t hidden = as_size(op.shared_up.rows);
  linear_.gated_gemm(input, {.gate = op.shared_gate,
                             .up = op.shared_up,
                             .activation = {.kind = op.activation, .clamp = op.clamp, .alpha = op.alpha},
                             .out = {linear_.first_buffer(), hidden}});
  const GemmInput inner = linear_.prepare(linear_.first_buffer(), hidden, input.rows, input.generated, op.shared_down);
  const Projection projection{op.shared_down, {linear_.second_buffer(), as_size(op.shared_down.rows)}};
  linear_.gemm(inner, {&projection, 1});
}

void CpuExperts::moe(const MoeOp& op) {
  check(op);
  const std::array weights = {op.up, op.gate.valid() ? op.gate : op.up, op.shared_up.valid() ? op.shared_up : op.up,
                              op.shared_gate.valid() ? op.shared_gate : op.up};
  const GemmInput input = linear_.prepare(op.x, 0, host_.row_count(op.x.rows), op.before, op.layer, weights);
  route(op, input);
  {
    HostBackend::Timer timer(host_, "experts");
    const std::span<ExpertBatch> batches = sort_rows(op, input);
    timer.gemm(input.rows * as_size(op.used), {op.gate, op.up, op.down}, batches.size());
    if (cache_ != nullptr) {
      run_cached(op, input, batches);
    } else {
      run_in_place(op, input, batches);
    }
  }
  if (op.shared_up.valid()) run_shared(op, input);
  const HostBackend::Timer timer(host_, "experts");
  const std::size_t width = as_size(op.down.rows);
  const std::size_t used = as_size(op.used);
  device_.for_rows(host_.row_count(op.x.rows), [&](std::int32_t r) {
    float* value = linear_.first_buffer() + as_size(r) * width;
    std::fill_n(value, width, 0.0f);
    for (std::size_t i = as_size(r) * used; i < (as_size(r) + 1) * used && space_.chosen[i] >= 0; ++i) {
      kernels_.add_scaled(value, space_.outputs + space_.routed_of[i] * width, space_.weights[i], width);
    }
    if (op.shared_up.valid()) kernels_.add(value, linear_.second_buffer() + as_size(r) * width, width);
  });
  linear_.finish_branch(op.end, {}, linear_.first_buffer(), width, op.layer);
}

}  // namespace quarrel
