// A model ready to run: file, weights on a backend, cache. It computes steps and has no policy: the caller assigns
// blocks, slots and lanes, which `sched` manages. One thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "engine/memory_plan.h"
#include "engine/observations.h"
#include "gguf/file.h"
#include "model/model.h"

namespace quarrel {

class Executor {
 public:
  // Opens and prepares the model. Throws Error: bad_file, unsupported, or out_of_memory with what was asked, what there
  // is, and which context would fit.
  Executor(GgufFile file, Device& device, const ExecutorOptions& options);
  ~Executor();

  const GgufFile& file() const noexcept { return file_; }
  const ModelSpec& spec() const noexcept { return model_->spec(); }
  const Model& model() const noexcept { return *model_; }
  Backend& backend() noexcept { return *backend_; }
  const Backend& backend() const noexcept { return *backend_; }
  const MemoryPlan& plan() const noexcept { return plan_; }
  std::int32_t context() const noexcept { return plan_.context; }
  KvType kv_type() const noexcept { return plan_.kv_type; }
  std::int32_t batch_rows() const noexcept { return plan_.limits.rows; }

  // Starts a step; at most two may be open. Handling numbers that are not finite is up to the caller.
  Ticket submit(const Step& step);
  StepResults wait(Ticket ticket);
  StepResults step(const Step& step) { return wait(submit(step)); }

  bool device_lost() const noexcept { return device_.lost(); }
  // When it last began a layer on the host: a step on a small machine may take long, and go on all the while. Any
  // thread.
  Clock::time_point last_layer() const noexcept { return Clock::time_point(Clock::duration(layer_at_)); }
  Observations observe() const;  // may throw what the device fails with: nothing of a step is lost by it
  void watch_times(bool on);     // starts them at zero

 private:
  void prepare(const ExecutorOptions& options);
  Observations look() const;
  // Clocks run in one step of 64 (of 1024 where they cost time), and in one of the first, where experts or recurrent
  // layers are to be timed; in the others they cost nothing.
  std::uint64_t sample_every() const noexcept;
  bool begin_sample();
  void end_sample(bool read) noexcept;
  void read_sample(std::span<const OpTime> times) noexcept;

  Device& device_;
  GgufFile file_;
  MemoryPlan plan_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  Backend::Forward forward_;  // a backend may call it after `submit` has returned
  std::atomic<Clock::rep> layer_at_ = 0;
  Observations seen_;  // what the executor itself counts
  bool has_sampled_layers_ = false;
  std::vector<bool> recurrent_;  // by layer
  bool times_watched_ = false;
  std::uint64_t submitted_ = 0;
  std::uint64_t warm_step_ = 0;         // the early one that is sampled
  std::optional<Ticket> sampled_ = {};  // the step with the clocks on
};

}  // namespace quarrel
