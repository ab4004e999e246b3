// Loading a model, and what can be known of it.
#include <memory>
#include <utility>

#include "api/conversions.h"
#include "api/model_impl.h"
#include "backend/create.h"
#include "engine/placement.h"
#include "quarrel_version.h"
#include "store/store.h"

namespace quarrel::api {
namespace {

// The log of a load: see CallbackLog.
class LoadLog : public Log {
 public:
  LoadLog(CallbackLog& log, Caught& caught) : log_(log), caught_(caught) {}
  void write(LogLevel level, std::string_view line) override {
    if (level >= LogLevel::warning) log_.write_loading(line, caught_);
  }

 private:
  CallbackLog& log_;
  Caught& caught_;
};

ModelInfo info_of(const LoadedModel& model) {
  const ModelSpec& spec = model.spec();
  return {.name = model.name(),
          .path = model.path().string(),
          .architecture = spec.architecture,
          .device = model.device_description(),
          .template_from = model.template_origin(),
          .context = model.context(),
          .trained_context = model.executor().plan().trained_context,
          .vocabulary = spec.vocabulary,
          .embedding_width = vector_width(model, {}),
          .most_answers = model.engine().most_branches(),
          .pooling = pooling_of(model.pooling()),
          .generates = model.generates(),
          .embeds = model.embeds(),
          .ranks = model.ranks(),
          .load_seconds = model.load_seconds()};
}

}  // namespace

const char* version() noexcept { return QUARREL_VERSION; }

Model::Impl& Model::impl() const {
  if (impl_ == nullptr) refuse(ErrorKind::usage, "the model was moved elsewhere");
  impl_->home.require();
  return *impl_;
}

namespace {

// What `load` and `estimate` begin with.
struct Source {
  ResolvedModel model;
  GgufFile file;
};

Source open_source(const std::string& name) {
  ResolvedModel model = ModelStore(StorePaths::from_environment()).resolve(name);
  GgufFile file = GgufFile::open(model.path);
  return {.model = std::move(model), .file = std::move(file)};
}

std::shared_ptr<Device> own_device(const LoadOptions& options) {
  return make_device({.backend = options.device, .threads = options.threads, .pin = options.pin});
}

// In a forked child nothing of it can be ended: its threads are not there.
void let_go(Model::Impl* impl) noexcept {
  if (impl->home.here()) delete impl;
}

}  // namespace

Model Model::load(const std::string& name, const LoadOptions& options) {
  Caught caught;
  const auto work = [&] {
    quarrel::LoadOptions settings = load_options_of(options);
    if (options.progress) {
      settings.executor.on_load = [&](std::uint64_t done, std::uint64_t total) {
        if (caught.call([&] { return options.progress(done, total); })) return;
        refuse(ErrorKind::cancelled, "loading was cancelled");
      };
    }
    std::shared_ptr<Impl> impl(new Impl(options.warning), let_go);
    Source source = open_source(name);
    impl->device = options.beside != nullptr ? options.beside->impl().device : own_device(options);
    LoadLog log(*impl->log, caught);
    settings.retire = LastRest::entrance(impl->rest);
    impl->loaded = LoadedModel::load(std::move(source.file), source.model, impl->device, settings, log);
    impl->info = info_of(*impl->loaded);
    return Model(std::move(impl));
  };
  try {
    return guarded(work);
  } catch (const Error&) {
    caught.rethrow();
    throw;
  }
}

MemoryEstimate Model::estimate(const std::string& name, const LoadOptions& options) {
  return guarded([&]() -> MemoryEstimate {
    const quarrel::LoadOptions settings = load_options_of(options);
    const Source source = open_source(name);
    const Placement placed =
        place_model(source.file, options.beside != nullptr ? options.beside->impl().device : own_device(options),
                    settled(source.file, settings.executor));
    const MemoryPlan& plan = placed.memory;
    return {.total = plan.total(),
            .mapped = plan.mapped(),
            .weights = plan.prepared,
            .experts = plan.expert_cache.value_or(0),
            .kv = plan.kv,
            .state = plan.state,
            .workspace = plan.workspace + plan.expert_workspace,
            .available = placed.device->memory_available(),
            .context = plan.context,
            .trained_context = plan.trained_context,
            .sequences = plan.sequences};
  });
}

const ModelInfo& Model::info() const { return impl().info; }

Metrics Model::metrics() const {
  return guarded([&] {
    const Engine& engine = impl().loaded->engine();
    const EngineCounters engine_counters = engine.counters();
    const SchedulerCounters& counters = engine_counters.scheduler;
    const Observations seen = engine.observe();
    Metrics metrics{.accepted = counters.accepted,
                    .finished = counters.finished,
                    .refused = counters.refused,
                    .running = counters.running,
                    .waiting = counters.waiting,
                    .returning = counters.returning,
                    .waiting_tokens = counters.waiting_tokens,
                    .steps = counters.steps,
                    .failed_steps = engine_counters.failed_steps,
                    .prompt_rows = counters.prompt_rows,
                    .generated_rows = counters.generated_rows,
                    .tokens = engine_counters.tokens,
                    .preemptions = counters.preemptions,
                    .shifts = counters.shifts,
                    .cache_hit_tokens = counters.cache_hit_tokens,
                    .cache_miss_tokens = counters.cache_miss_tokens,
                    .divergences = seen.divergences,
                    .kv_saturated = seen.kv_saturated,
                    .expert_hits = seen.expert_hits,
                    .expert_misses = seen.expert_misses};
    for (const GroupCounters& group : counters.groups) {
      metrics.blocks_total += group.total;
      metrics.blocks_used += group.used;
      metrics.blocks_cached += group.cached;
    }
    return metrics;
  });
}

GenerateOptions Model::recommended() const {
  return guarded([&] {
    const RecommendedSampling& from = impl().loaded->recommended();
    GenerateOptions options;
    const SamplingParams params = from.over({});
    options.temperature = params.temperature;
    options.top_k = params.top_k;
    options.top_p = params.top_p;
    options.min_p = params.min_p;
    options.typical_p = params.typical_p;
    options.repeat_penalty = params.repeat_penalty;
    options.presence_penalty = params.presence_penalty;
    options.frequency_penalty = params.frequency_penalty;
    options.penalty_window = params.penalty_window;
    options.penalty_scope =
        params.penalty_scope == quarrel::PenaltyScope::recent ? PenaltyScope::recent : PenaltyScope::answer;
    options.mirostat = params.mirostat;
    options.mirostat_tau = params.mirostat_tau;
    options.mirostat_eta = params.mirostat_eta;
    options.seed = from.seed;
    options.stop = from.stop;
    if (from.max_tokens) options.max_tokens = *from.max_tokens;
    return options;
  });
}

}  // namespace quarrel::api
