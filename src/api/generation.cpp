// Answers to a prompt: the calls that wait for them, and the public Generation.
#include <utility>

#include "api/collector.h"
#include "api/conversions.h"
#include "api/generation_impl.h"
#include "api/model_impl.h"

namespace quarrel::api {

Generation::Generation() noexcept = default;
Generation::Generation(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Generation::~Generation() { close(); }
Generation::Generation(Generation&& other) noexcept = default;

Generation& Generation::operator=(Generation&& other) noexcept {
  if (this == &other) return *this;
  close();
  impl_ = std::move(other.impl_);
  return *this;
}

void Generation::close() noexcept {
  // In a forked child nothing of it can be ended.
  if (impl_ != nullptr && !impl_->home.here()) static_cast<void>(impl_.release());
  impl_.reset();
}

Generation::Impl& Generation::impl() const {
  impl_->home.require();
  return *impl_;
}

std::optional<Event> Generation::next() {
  if (impl_ == nullptr) return std::nullopt;
  return guarded([&] { return impl().next(std::nullopt); });
}

std::optional<Event> Generation::next(std::chrono::microseconds timeout) {
  if (impl_ == nullptr) return std::nullopt;
  return guarded([&] { return impl().next(timeout); });
}

bool Generation::done() const noexcept { return impl_ == nullptr || !impl_->home.here() || impl_->done(); }

std::vector<GenerateResult> Generation::wait() {
  if (impl_ == nullptr) return {};
  return guarded([&] { return impl().wait(); });
}

void Generation::cancel() noexcept {
  if (impl_ != nullptr && impl_->home.here()) impl_->cancel();
}

void Generation::cancel_answer(std::size_t answer) noexcept {
  if (impl_ != nullptr && impl_->home.here()) impl_->cancel_answer(answer);
}

int Generation::event_fd() {
  if (impl_ == nullptr) refuse(ErrorKind::usage, "the generation was closed");
  return guarded([&] { return impl().event_fd(); });
}

Generation Model::open(const Prompt& prompt, const GenerateOptions& options) const {
  return guarded([&] {
    impl();
    return Generation(open_generation(impl_, ask_of(prompt, options), options.cancel));
  });
}

Generation Model::start(const Prompt& prompt, const GenerateOptions& options, GenerationCallbacks callbacks) const {
  return guarded([&] {
    impl();
    return Generation(start_generation(impl_, ask_of(prompt, options), options.cancel, std::move(callbacks)));
  });
}

std::vector<GenerateResult> Model::generate_many(const Prompt& prompt, const GenerateOptions& options,
                                                 const PieceCallback& callback) const {
  Generation generation = open(prompt, options);
  while (callback) {
    const std::optional<Event> event = generation.next();
    if (!event) break;
    if (event->kind == Event::Kind::piece && !callback(piece_of(*event))) generation.cancel_answer(event->answer);
  }
  return generation.wait();
}

GenerateResult Model::generate(const Prompt& prompt, const GenerateOptions& options,
                               const PieceCallback& callback) const {
  if (options.answers != 1) {
    refuse(ErrorKind::bad_input, "{} answers are asked for, but this call gives one: generate_many gives several",
           options.answers);
  }
  GenerateResult result = std::move(generate_many(prompt, options, callback).front());
  if (result.reason == FinishReason::failed) refuse(ErrorKind::failed, "{}", result.error);
  return result;
}

GenerateResult Model::chat(std::span<const Message> messages, const GenerateOptions& options,
                           const PieceCallback& callback) const {
  return generate(messages, options, callback);
}

std::vector<GenerateResult> Model::chat_many(std::span<const Message> messages, const GenerateOptions& options,
                                             const PieceCallback& callback) const {
  return generate_many(messages, options, callback);
}

}  // namespace quarrel::api
