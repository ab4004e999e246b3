// Requests put to an engine by tests, and all that came of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "engine/engine.h"

namespace quarrel::test {

// A request to continue a text.
inline EngineRequest text_request(std::vector<TokenId> prompt, std::int32_t max_tokens, std::int32_t branches = 1) {
  EngineRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.branches = branches;
  return request;
}

// Calls a function with each event.
class CallingSink final : public EventSink {
 public:
  explicit CallingSink(std::function<void(const TokenEvent&)> call) : call_(std::move(call)) {}
  void take(std::span<TokenEvent> events) override {
    for (const TokenEvent& event : events) call_(event);
  }

 private:
  std::function<void(const TokenEvent&)> call_;
};
inline std::shared_ptr<EventSink> calling(std::function<void(const TokenEvent&)> call) {
  return std::make_shared<CallingSink>(std::move(call));
}

struct Answer {
  std::vector<TokenId> tokens = {};
  std::vector<float> logprobs = {};
  std::vector<float> prompt_logprobs = {};
  std::vector<std::vector<float>> values = {};  // vectors and logits, as they came
  FinishReason reason = FinishReason::stop;
  std::int32_t cached = 0;
  std::vector<std::int32_t> ahead = {};  // how many would have started before it, while it waited
  std::vector<std::int32_t> reads = {};  // how much of the prompt was read, step by step
  std::int32_t shifts = 0;
  std::int32_t endings = 0;  // must be one
  std::string error = {};

  // What must not depend on anything but the request; bit for bit.
  bool operator==(const Answer& other) const {
    return tokens == other.tokens && logprobs == other.logprobs && prompt_logprobs == other.prompt_logprobs &&
           values == other.values && reason == other.reason;
  }
};

// Reads a stream to its end: one answer a branch.
inline std::vector<Answer> read_answers(TokenStream& stream, std::int32_t branches = 1) {
  std::vector<Answer> answers(static_cast<std::size_t>(branches));
  while (auto event = stream.next()) {
    Answer& answer = answers.at(static_cast<std::size_t>(event->branch));
    if (!event->values.empty()) answer.values.push_back(event->values);
    switch (event->kind) {
      case TokenEvent::Kind::started: answer.cached = event->cached; break;
      case TokenEvent::Kind::prompt_score: answer.prompt_logprobs.push_back(event->sample.logprob); break;
      case TokenEvent::Kind::token:
        answer.tokens.push_back(event->sample.id);
        answer.logprobs.push_back(event->sample.logprob);
        break;
      case TokenEvent::Kind::waiting: answer.ahead.push_back(event->ahead); break;
      case TokenEvent::Kind::prompt_read: answer.reads.push_back(event->read); break;
      case TokenEvent::Kind::prompt_vector:
      case TokenEvent::Kind::vector: break;
      case TokenEvent::Kind::shifted: ++answer.shifts; break;
      case TokenEvent::Kind::finished:
        answer.reason = event->reason;
        answer.error = event->error;
        ++answer.endings;
        break;
    }
  }
  return answers;
}

inline Answer ask(Engine& engine, const EngineRequest& request) {
  const Engine::Submission submission = engine.submit(request);
  if (!submission.stream) return {.endings = -1};
  return read_answers(*submission.stream, request.branches).front();
}

inline std::vector<Answer> read_all(const std::vector<Engine::Submission>& submissions) {
  std::vector<Answer> answers;
  answers.reserve(submissions.size());
  for (const Engine::Submission& submission : submissions) {
    answers.push_back(submission.stream ? read_answers(*submission.stream).front() : Answer{.endings = -1});
  }
  return answers;
}

// All at once, while the engine pauses, so that they run together as far as they fit.
inline std::vector<Answer> ask_together(Engine& engine, const std::vector<EngineRequest>& requests) {
  engine.pause();
  std::vector<Engine::Submission> submissions;
  submissions.reserve(requests.size());
  for (const EngineRequest& request : requests) submissions.push_back(engine.submit(request));
  engine.resume();
  return read_all(submissions);
}

// The first half of them with a low priority; the others with a high one when those have begun. Where not all of them
// fit at once, some of the first are preempted, however fast the machine is.
inline std::vector<Answer> ask_in_two_waves(Engine& engine, const std::vector<EngineRequest>& requests) {
  const std::uint64_t tokens = engine.counters().tokens;
  std::vector<Engine::Submission> submissions;
  submissions.reserve(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const bool second = i >= requests.size() / 2;
    if (i == 0) engine.pause();
    if (i == requests.size() / 2) {
      engine.resume();
      while (engine.counters().tokens == tokens) std::this_thread::yield();
    }
    EngineRequest request = requests[i];
    request.priority = second ? Priority::interactive : Priority::batch;
    submissions.push_back(engine.submit(std::move(request)));
  }
  return read_all(submissions);
}

inline std::vector<TokenId> random_tokens(std::size_t count, std::int32_t vocabulary, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % static_cast<std::uint32_t>(vocabulary));
  return tokens;
}

}  // namespace quarrel::test
