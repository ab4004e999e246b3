#include "engine/memory_plan.h"

#include <algorithm>
#include <array>
#include <memory>

#include "backend/marking_loss.h"
#include "base/counted.h"
#include "base/error.h"
#include "model/architectures.h"
#include "model/model.h"
#include "sched/scheduler_config.h"

namespace quarrel {
namespace {

// What is asked for, or the least exact form beyond it that the device has.
void check_activations(const Device& device, ActivationPrecision asked) {
  using enum ActivationPrecision;
  constexpr std::array kByExactness = {int8, outlier_groups, f16, int8_split, f32};
  const auto* const least = std::ranges::find(kByExactness, asked);
  if (std::any_of(least, kByExactness.end(), [&](ActivationPrecision form) { return device.supports(form); })) return;
  fail(ErrorKind::unsupported,
       "{} multiplies quantised weights with activations as {}, which is coarser than {} (--activations)",
       device.name(), device.activations_used(asked), name_of(asked));
}

// A model bound to a backend that only adds up, and the sums at any context.
class Planner {
 public:
  Planner(const GgufFile& file, Device& device, const ExecutorOptions& options)
      : options_(options),
        kv_type_(options.kv_type.value_or(device.default_kv_type())),
        batch_rows_(options.batch_rows > 0 ? options.batch_rows : device.batch_rows()),
        free_(free_share(device)),
        spec_(requested_spec(file, options.context, options)),
        // Vectors are told apart by small angles, so texts that become some have the int8 split unless someone insists.
        activations_(options.activations == ActivationPrecision::outlier_groups && !spec_.has_head
                         ? ActivationPrecision::int8_split
                         : options.activations),
        backend_(device.make_backend({.activations = activations_,
                                      .deterministic = options.deterministic,
                                      .mirrors = options.mirrors,
                                      .plan_only = true,
                                      .cpu = {.repack = options.repack, .expert_memory = options.expert_memory}})),
        model_(std::make_unique<Model>(file, spec_, *backend_)) {}

  const ModelSpec& spec() const { return model_->spec(); }
  std::uint64_t free() const { return free_; }
  bool keeps_cache() const { return backend_->expert_cache_bytes() > 0; }
  bool has_mirrors() const { return backend_->mirror_bytes() > 0; }
  bool has_experts() const { return all_experts() > 0; }
  std::uint64_t all_experts() const { return model_->expert_bytes(); }
  // What a cache must at least hold: the experts of one token in one layer.
  std::uint64_t least_experts() const { return model_->least_expert_bytes(); }

  MemoryPlan at(std::int32_t context) const {
    MemoryPlan plan{.context = context,
                    .trained_context = spec().context_length,
                    .sequences = options_.sequences,
                    .limits = limits(context),
                    .kv_type = kv_type_,
                    .activations = activations_,
                    .deterministic = options_.deterministic,
                    .repack = options_.repack,
                    .mirrored = has_mirrors()};
    const std::int32_t block = backend_->block_tokens();
    for (const KvGroup& group : model_->kv_groups()) {
      const std::int64_t all = blocks_for(context, block) * options_.sequences;
      // Each sequence may leave its last block half empty.
      const std::int64_t asked = blocks_for(options_.cache_tokens, block) + options_.sequences;
      const std::int64_t whole = options_.cache_tokens > 0 ? asked : all;
      // A window frees what it has left behind: beside the rows of one step only its own length is held.
      const std::int64_t live =
          (blocks_for(group.window, block) + 2) * options_.sequences + blocks_for(plan.limits.rows, block);
      const std::int64_t blocks = group.window > 0 ? std::min(whole, live) : whole;
      if (blocks > (1 << 30)) fail(ErrorKind::out_of_memory, "a context of {} tokens is beyond any memory", context);
      plan.blocks.push_back(static_cast<std::int32_t>(blocks));
      plan.kv += static_cast<std::uint64_t>(blocks) * backend_->kv_bytes(group, kv_type_);
    }
    if (!model_->state_layers().empty()) {
      plan.state_slots = 2 * options_.sequences + options_.snapshots;
      plan.state = static_cast<std::uint64_t>(plan.state_slots) * backend_->state_bytes(model_->state_layers());
    }
    plan.shared_weights = model_->shared_bytes();
    plan.expert_weights = model_->expert_bytes();
    plan.prepared = backend_->prepared_bytes();
    plan.mirrors = backend_->mirror_bytes();
    plan.released = backend_->released_bytes();
    plan.expert_workspace = backend_->expert_workspace_bytes(plan.limits);
    plan.workspace = backend_->workspace_bytes(plan.limits, spec().vocabulary) - plan.expert_workspace;
    if (options_.expert_memory && *options_.expert_memory < plan.expert_weights) {
      if (backend_->expert_cache_bytes() == 0) {
        fail(ErrorKind::unsupported,
             "the {} backend keeps no cache of experts: give it memory for all of them, {:.0f} MiB instead of {:.0f}",
             backend_->name(), mebibytes(plan.expert_weights), mebibytes(*options_.expert_memory));
      }
      plan.expert_cache = options_.expert_memory;
    }
    return plan;
  }

  // The largest context up to `most` for which `fits` holds; 0: none does.
  template <typename Fits>
  std::int32_t largest_context(std::int32_t most, Fits&& fits) const {
    const std::int32_t block = backend_->block_tokens();
    std::int32_t low = 0;
    auto high = static_cast<std::int32_t>(blocks_for(most, block));
    while (low < high) {
      const std::int32_t middle = low + (high - low + 1) / 2;
      if (fits(at(std::min(middle * block, most)))) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return std::min(low * block, most);
  }

 private:
  StepLimits limits(std::int32_t context) const {
    // No step has more rows than all sequences together may hold.
    const std::int64_t most = std::int64_t{context} * options_.sequences;
    auto rows = static_cast<std::int32_t>(std::min<std::int64_t>(batch_rows_, most));
    rows = std::max(rows, options_.sequences);
    // Rows that see those after them must all be in one step.
    if (model_->needs_whole_text()) rows = std::max(rows, context);
    return {.rows = rows,
            .outputs = rows,
            .sequences = options_.sequences,
            .lanes = 2 * (options_.sequences + SchedulerConfig{}.max_branches),  // what a scheduler gives out at most
            .context = context};
  }

  const ExecutorOptions& options_;
  KvType kv_type_;
  std::int32_t batch_rows_;
  std::uint64_t free_;
  ModelSpec spec_;
  ActivationPrecision activations_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
};

[[noreturn]] void refuse(const MemoryPlan& asked, std::uint64_t there, std::int32_t fitting, bool budget) {
  const std::string advice =
      fitting > 0 ? fmt::format("; a context of {} would fit (--ctx)", fitting) : std::string("; no context would fit");
  const std::uint64_t needed = budget ? asked.total() : asked.anonymous();
  const std::uint64_t workspace = asked.workspace + asked.expert_workspace;
  const std::uint64_t weights = needed - asked.kv - asked.state - workspace;
  fail(ErrorKind::out_of_memory,
       "a context of {} tokens for {} needs {:.0f} MiB ({:.0f} of {}weights, {:.0f} of KV cache, {:.0f} of state, "
       "{:.0f} of workspace), but only {:.0f} MiB are {}{}",
       asked.context, counted(asked.sequences, "sequence"), mebibytes(needed), mebibytes(weights),
       budget || asked.released > 0 ? "" : "decoded ", mebibytes(asked.kv), mebibytes(asked.state),
       mebibytes(workspace), mebibytes(there), budget ? "allowed (--memory-budget)" : "free", advice);
}

// Everything within the budget: first with all experts in memory; when that leaves too little context, with a cache for
// the experts that takes what the rest leaves, where the device keeps one.
MemoryPlan plan_within(const GgufFile& file, Device& device, const Planner& planner, const ExecutorOptions& options,
                       std::uint64_t budget) {
  const std::int32_t trained = planner.spec().context_length;
  const auto fits = [&](const MemoryPlan& plan) { return plan.total() <= budget; };
  if (options.context > 0) {
    if (MemoryPlan plan = planner.at(options.context); fits(plan)) return plan;
  }
  const std::int32_t whole = planner.largest_context(trained, fits);
  if (options.context == 0 && whole >= std::min(trained, kUsualContext)) return planner.at(whole);
  const MemoryPlan plan = planner.at(options.context > 0 ? options.context : std::min(trained, kUsualContext));
  const std::uint64_t rest = plan.total() - plan.experts_held();
  if (planner.has_experts() && !options.expert_memory && rest + planner.least_experts() <= budget) {
    ExecutorOptions cached = options;
    cached.expert_memory = budget - rest;
    const Planner other(file, device, cached);
    if (other.keeps_cache() || whole < 1) return other.at(plan.context);
  }
  if (options.context > 0 || whole < 1) refuse(plan, budget, whole, true);
  return planner.at(whole);
}

MemoryPlan make_plan(const GgufFile& file, Device& device, const ExecutorOptions& options);

// Copies for large batches get what everything else leaves: neither context nor experts become less for them.
MemoryPlan plan_with_mirrors(const GgufFile& file, Device& device, const Planner& planner,
                             const ExecutorOptions& options) {
  ExecutorOptions without = options;
  without.mirrors = false;
  MemoryPlan plain = make_plan(file, device, without);
  const MemoryPlan mirrored = planner.at(plain.context);
  const bool allowed = !options.memory_budget || mirrored.total() <= *options.memory_budget;
  const bool is_free = planner.free() == 0 || mirrored.anonymous() <= planner.free();
  return allowed && is_free && !plain.expert_cache ? mirrored : plain;
}

MemoryPlan make_plan(const GgufFile& file, Device& device, const ExecutorOptions& options) {
  check_activations(device, options.activations);
  const Planner planner(file, device, options);
  if (options.expert_memory && *options.expert_memory >= planner.all_experts()) {
    // Room for all experts is no cache of them: they are prepared like every other weight.
    ExecutorOptions all = options;
    all.expert_memory.reset();
    return make_plan(file, device, all);
  }
  if (planner.has_mirrors()) return plan_with_mirrors(file, device, planner, options);
  const std::int32_t trained = planner.spec().context_length;
  if (planner.spec().position_table && options.context > trained) {
    fail(ErrorKind::usage, "the model has positions for {} tokens, so a context of {} is not possible", trained,
         options.context);
  }
  if (options.expert_memory && planner.has_experts() && *options.expert_memory < planner.least_experts()) {
    fail(ErrorKind::out_of_memory,
         "{:.1f} MiB for experts are too few: one token needs {:.1f} MiB of them at once (--expert-memory)",
         mebibytes(*options.expert_memory), mebibytes(planner.least_experts()));
  }
  if (options.memory_budget) return plan_within(file, device, planner, options, *options.memory_budget);
  const std::uint64_t there = planner.free();
  if (there == 0) return planner.at(options.context > 0 ? options.context : trained);
  const auto fits = [&](const MemoryPlan& plan) { return plan.anonymous() <= there; };
  // Weights that are used where they lie can be given back and read again; copies of them cannot.
  if (options.repack && !fits(planner.at(options.context > 0 ? options.context : std::min(trained, kUsualContext)))) {
    ExecutorOptions in_place = options;
    in_place.repack = false;
    return make_plan(file, device, in_place);
  }
  if (options.context > 0) {
    const MemoryPlan plan = planner.at(options.context);
    if (!fits(plan)) refuse(plan, there, planner.largest_context(options.context, fits), false);
    return plan;
  }
  const std::int32_t context = planner.largest_context(trained, fits);
  if (context < 1) refuse(planner.at(std::min(trained, 512)), there, 0, false);
  return planner.at(context);
}

}  // namespace

BackendOptions backend_options(const MemoryPlan& plan) {
  return {.activations = plan.activations,
          .deterministic = plan.deterministic,
          .mirrors = plan.mirrored,
          .cpu = {.repack = plan.repack, .expert_memory = plan.expert_cache}};
}

ModelSpec requested_spec(const GgufFile& file, std::int32_t context, const ExecutorOptions& options) {
  ModelSpec spec = read_spec(file, context);
  if (options.pooling) spec.pooling = *options.pooling;
  if (!options.logits) spec.has_head = false;
  return spec;
}

// A share stays free for the file's pages and everybody else.
std::uint64_t free_share(const Device& device) { return device.memory_available() / 10 * 9; }

MemoryPlan plan_memory(const GgufFile& file, Device& device, const ExecutorOptions& options) {
  return marking_loss(device, [&] { return make_plan(file, device, options); });
}

}  // namespace quarrel
