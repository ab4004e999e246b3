#include "server/native_writer.h"

#include <utility>
#include <vector>

namespace quarrel {

double tokens_per_second(std::size_t tokens, double seconds) noexcept {
  return tokens > 1 && seconds > 0.0 ? static_cast<double>(tokens - 1) / seconds : 0.0;
}

void EventWriter::begin(const LoadedModel&, const Generations& generations) {
  prompt_tokens_ = generations.prompt(0).size();
  receiver_->accepted({});
}

void EventWriter::take(std::span<GenerationEvent> events) {
  std::vector<AnswerEvent> pieces;
  const Clock::time_point now = Clock::now();  // all of them come now
  for (GenerationEvent& event : events) {
    if (options_.progress) tell_progress(event);
    if (event.kind == GenerationEvent::Kind::finished) reason_ = reason_name(event.reason);
    if (event.kind != GenerationEvent::Kind::piece) continue;
    if (event.token >= 0 && tokens_++ == 0) first_ = now;
    if (options_.stream) {
      const double rate = tokens_per_second(tokens_, std::chrono::duration<double>(now - first_).count());
      pieces.push_back(
          {.text = std::move(event.text), .token = event.token, .tokens_per_second = static_cast<float>(rate)});
    } else {
      text_ += event.text;
    }
  }
  if (!pieces.empty()) receiver_->take(pieces, {});
}

void EventWriter::tell_progress(const GenerationEvent& event) {
  if (event.kind == GenerationEvent::Kind::waiting) {
    receiver_->waiting(static_cast<std::size_t>(event.ahead));
  } else if (event.kind == GenerationEvent::Kind::started) {
    receiver_->reading(static_cast<std::size_t>(event.cached), prompt_tokens_);
  } else if (event.kind == GenerationEvent::Kind::prompt_read) {
    receiver_->reading(static_cast<std::size_t>(event.read), prompt_tokens_);
  }
}

void EventWriter::end(const Usage& usage) {
  put_end({.finish_reason = reason_, .tokens_generated = usage.generated_tokens, .prompt_tokens = usage.prompt_tokens},
          usage.generate_seconds);
}

void EventWriter::fail(const ApiError& error) {
  if (stop_is_wanted() && error.code == "cancelled") {
    put_end({.finish_reason = "cancelled", .tokens_generated = tokens_, .prompt_tokens = prompt_tokens_},
            seconds_since(first_));
    return;
  }
  const AnswerEvent event = failure_event(error);
  receiver_->take(std::span(&event, 1), {});
}

void EventWriter::abandon() {
  fail({500, "server_error", "", "something went wrong in the server; its log says what"});
}

void EventWriter::put_end(AnswerEnd end, double seconds) {
  const double rate = tokens_per_second(end.tokens_generated, seconds);
  end.whole = !options_.stream;
  if (options_.retrieval != nullptr) end.sources = options_.retrieval->sources();
  const AnswerEvent event{.text = std::move(text_),
                          .tokens_per_second = static_cast<float>(rate),
                          .end = std::make_shared<const AnswerEnd>(std::move(end))};
  receiver_->take(std::span(&event, 1), {});
}

MakeAsk make_native_ask(NativeRequest request, Priority priority, std::shared_ptr<Retrieval> retrieval) {
  return with_retrieval(std::move(retrieval), [request = std::move(request), priority](const LoadedModel& model) {
    Ask ask = ask_of(request, model);
    ask.priority = priority;
    return ask;
  });
}

CallOptions native_call_options(const NativeRequest& request, std::shared_ptr<Retrieval> retrieval) {
  return {.before = std::move(retrieval), .prompt_field = request.messages.is_null() ? "prompt" : "messages"};
}

std::shared_ptr<Retrieval> retrieval_for(Service& service, const NativeRequest& request, const Caller& caller) {
  return Retrieval::of(service, request.retrieval, request.messages, request.prompt, caller);
}

}  // namespace quarrel
