// The functions of quarrel_c.h for answers that no thread waits for.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "api/c_support.h"

namespace quarrel::api {
namespace {

quarrel_event event_of(const Event& event, const std::vector<quarrel_logprob>& top) noexcept {
  return {.size = sizeof(quarrel_event),
          .kind = static_cast<std::int32_t>(event.kind),
          .answer = event.answer,
          .token = event.token,
          .logprob = event.logprob,
          .text = text_of(event.text),
          .top = top.data(),
          .top_count = top.size(),
          .cached_tokens = event.cached_tokens,
          .dropped_tokens = event.dropped_tokens,
          .reason = static_cast<std::int32_t>(event.reason),
          .reserved = 0,
          .error = text_of(event.error)};
}

GenerationCallbacks callbacks_of(quarrel_event_callback on_event, quarrel_done_callback on_done, void* user) {
  GenerationCallbacks callbacks;
  if (on_event != nullptr) {
    callbacks.on_event = [on_event, user](const Event& event) {
      const std::vector<quarrel_logprob> top = logprobs_of(event.top);
      const quarrel_event shown = event_of(event, top);
      return on_event(&shown, user) != 0;
    };
  }
  if (on_done != nullptr) {
    callbacks.on_done = [on_done, user](const std::vector<GenerateResult>& answers) {
      const std::unique_ptr<quarrel_result> result = result_of(answers);
      on_done(result.get(), user);
    };
  }
  return callbacks;
}

// Below zero: waits; longer than that is not worth telling apart.
std::optional<std::chrono::microseconds> wait_of(std::int64_t milliseconds) noexcept {
  if (milliseconds < 0) return std::nullopt;
  constexpr std::int64_t kYear = std::int64_t{1000} * 3600 * 24 * 365;
  return std::chrono::milliseconds(std::min(milliseconds, kYear));
}

}  // namespace
}  // namespace quarrel::api

namespace api = quarrel::api;

extern "C" {

quarrel_status quarrel_generation_open(const quarrel_model* model, const quarrel_prompt* prompt,
                                       const quarrel_generate_options* options, quarrel_generation** generation,
                                       quarrel_error* error) {
  return api::run(error, [&] {
    api::check_pointer(generation, "the place for the generation") = nullptr;
    const api::Model& loaded = api::check_handle(model, "model").model;
    auto handle = std::make_unique<quarrel_generation>();
    handle->generation = loaded.open(api::prompt_of(prompt), api::generate_options_of(options));
    *generation = handle.release();
  });
}

quarrel_status quarrel_generation_start(const quarrel_model* model, const quarrel_prompt* prompt,
                                        const quarrel_generate_options* options, quarrel_event_callback on_event,
                                        quarrel_done_callback on_done, void* user, quarrel_generation** generation,
                                        quarrel_error* error) {
  return api::run(error, [&] {
    api::check_pointer(generation, "the place for the generation") = nullptr;
    const api::Model& loaded = api::check_handle(model, "model").model;
    auto handle = std::make_unique<quarrel_generation>();
    handle->generation = loaded.start(api::prompt_of(prompt), api::generate_options_of(options),
                                      api::callbacks_of(on_event, on_done, user));
    *generation = handle.release();
  });
}

quarrel_status quarrel_generation_next(quarrel_generation* generation, int64_t timeout_ms, quarrel_event* event,
                                       quarrel_error* error) {
  return api::run(error, [&] {
    api::check_size(event, "the event");  // or what was read would be lost
    quarrel_generation& handle = api::check_handle(generation, "generation");
    const auto wait = api::wait_of(timeout_ms);
    std::optional<api::Event> next = wait ? handle.generation.next(*wait) : handle.generation.next();
    if (!next) {
      if (handle.generation.done()) throw api::OtherStatus{QUARREL_END, "everything was read"};
      throw api::OtherStatus{QUARREL_NOTHING, "nothing came in time"};
    }
    handle.event = std::move(*next);
    handle.top = api::logprobs_of(handle.event.top);
    api::write_struct(event, api::event_of(handle.event, handle.top), "the event");
  });
}

quarrel_status quarrel_generation_wait(quarrel_generation* generation, quarrel_result** result, quarrel_error* error) {
  return api::run(error, [&] {
    if (result != nullptr) *result = nullptr;
    std::vector<api::GenerateResult> answers = api::check_handle(generation, "generation").generation.wait();
    if (result != nullptr) *result = api::result_of(std::move(answers)).release();
  });
}

quarrel_status quarrel_generation_get_done(const quarrel_generation* generation, int32_t* done, quarrel_error* error) {
  return api::run(error, [&] {
    api::check_pointer(done, "the place for the answer") =
        api::check_handle(generation, "generation").generation.done() ? 1 : 0;
  });
}

quarrel_status quarrel_generation_get_event_fd(quarrel_generation* generation, int* fd, quarrel_error* error) {
  return api::run(error, [&] {
    api::check_pointer(fd, "the place for the descriptor") = -1;
    *fd = api::check_handle(generation, "generation").generation.event_fd();
  });
}

quarrel_status quarrel_generation_cancel(quarrel_generation* generation, quarrel_error* error) {
  return api::run(error, [&] { api::check_handle(generation, "generation").generation.cancel(); });
}

quarrel_status quarrel_generation_cancel_answer(quarrel_generation* generation, size_t answer, quarrel_error* error) {
  return api::run(error, [&] { api::check_handle(generation, "generation").generation.cancel_answer(answer); });
}

void quarrel_generation_free(quarrel_generation* generation) { api::free_handle(generation); }

}  // extern "C"

// The numbers of the two interfaces are the same.
static_assert(QUARREL_EVENT_STARTED == static_cast<int>(api::Event::Kind::started));
static_assert(QUARREL_EVENT_PROMPT_LOGPROB == static_cast<int>(api::Event::Kind::prompt_logprob));
static_assert(QUARREL_EVENT_PIECE == static_cast<int>(api::Event::Kind::piece));
static_assert(QUARREL_EVENT_SHIFTED == static_cast<int>(api::Event::Kind::shifted));
static_assert(QUARREL_EVENT_FINISHED == static_cast<int>(api::Event::Kind::finished));
