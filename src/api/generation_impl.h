// What stands behind the public Generation: one that is read, or one that calls back. Threads: as the public header
// says.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "api/home_process.h"
#include "quarrel/quarrel.h"
#include "session/ask.h"

namespace quarrel::api {

struct Generation::Impl {
  Impl() = default;
  virtual ~Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // No timeout: waits.
  virtual std::optional<Event> next(std::optional<std::chrono::microseconds> timeout) = 0;
  virtual bool done() const noexcept = 0;
  virtual std::vector<GenerateResult> wait() = 0;
  virtual void cancel() noexcept = 0;
  virtual void cancel_answer(std::size_t answer) noexcept = 0;
  virtual int event_fd() = 0;

  const HomeProcess home;
};

std::unique_ptr<Generation::Impl> open_generation(std::shared_ptr<Model::Impl> model, const Ask& ask,
                                                  const std::optional<CancelToken>& cancel);
std::unique_ptr<Generation::Impl> start_generation(std::shared_ptr<Model::Impl> model, const Ask& ask,
                                                   const std::optional<CancelToken>& cancel,
                                                   GenerationCallbacks callbacks);

}  // namespace quarrel::api
