// One answer: a request to the engine, its tokens to text, and everything that can end it early.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "api/model_impl.h"
#include "backend/sampling.h"
#include "base/random_seed.h"
#include "text/text_stream.h"

namespace quarrel::api {
namespace {

constexpr std::size_t kMostStops = 256;
constexpr std::size_t kLongestStop = 1u << 16;
constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(24 * 365);

void check_options(const GenerateOptions& options) {
  if (options.max_tokens < -1) refuse(ErrorKind::bad_input, "max_tokens is -1 or more, not {}", options.max_tokens);
  if (options.logprobs < 0 || options.logprobs > kMaxTopTokens) {
    refuse(ErrorKind::bad_input, "logprobs can be 0 to {}, not {}", kMaxTopTokens, options.logprobs);
  }
  if (options.timeout.count() < 0) refuse(ErrorKind::bad_input, "the timeout is negative");
  if (options.stop.size() > kMostStops) {
    refuse(ErrorKind::bad_input, "there are {} stop strings; {} are the most", options.stop.size(), kMostStops);
  }
  for (const std::string& stop : options.stop) {
    if (stop.size() > kLongestStop) {
      refuse(ErrorKind::bad_input, "a stop string has {} bytes; {} are the most", stop.size(), kLongestStop);
    }
  }
}

[[noreturn]] void refuse_submission(const SubmitResult& result) {
  switch (result.status) {
    case SubmitStatus::empty: refuse(ErrorKind::bad_input, "the prompt is empty");
    case SubmitStatus::too_long:
      refuse(ErrorKind::bad_input, "the prompt with one token of an answer has {} tokens; the most is {}",
             result.tokens, result.limit);
    case SubmitStatus::malformed:
      refuse(ErrorKind::bad_input, "the request has a negative token or too many stop tokens");
    case SubmitStatus::queue_full:
      refuse(ErrorKind::busy, "too many requests wait; try again in {} ms", result.retry_after_us / 1000);
    case SubmitStatus::draining: refuse(ErrorKind::busy, "the model takes no more requests");
    case SubmitStatus::accepted: break;
  }
  refuse(ErrorKind::internal, "an accepted request was refused");
}

// Sees to it that a request does not outlive the call that waits for it.
class Request {
 public:
  Request(Engine& engine, RequestId id) noexcept : engine_(engine), id_(id) {}
  ~Request() {
    if (!finished_) engine_.cancel(id_);
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  void finish() noexcept { finished_ = true; }

 private:
  Engine& engine_;
  RequestId id_;
  bool finished_ = false;
};

FinishReason reason_of(const TokenEvent& event, std::size_t tokens, std::int32_t max_tokens) {
  switch (event.reason) {
    case EndReason::stop: return FinishReason::stop;
    case EndReason::length:
      return max_tokens >= 0 && std::cmp_greater_equal(tokens, max_tokens) ? FinishReason::length
                                                                           : FinishReason::context;
    case EndReason::context: return FinishReason::context;
    case EndReason::cancelled: return FinishReason::cancelled;
    case EndReason::deadline: return FinishReason::timeout;
    case EndReason::failed: break;
  }
  refuse(ErrorKind::failed, "{}", event.error.empty() ? "the model could not compute an answer" : event.error);
}

// The answer as it grows: tokens in, pieces to the callback.
class Answer {
 public:
  Answer(const Tokenizer* tokenizer, const GenerateOptions& options, std::span<const TokenId> stop_tokens,
         const PieceCallback& callback, Caught& caught)
      : top_(options.logprobs > 0), stop_tokens_(stop_tokens), callback_(callback), caught_(caught) {
    if (tokenizer != nullptr) {
      stream_.emplace(*tokenizer, options.stop, true);
    } else if (!options.stop.empty()) {
      refuse(ErrorKind::unsupported, "the model's file has no vocabulary, so there is no text to stop at");
    }
  }

  // False: the answer ends here, for `result.reason`.
  bool take(const SampleResult& sample) {
    if (sample.id < 0) refuse(ErrorKind::failed, "the model gave no token a probability; its file may be damaged");
    result.tokens.push_back(sample.id);
    result.logprobs.push_back(sample.logprob);
    std::vector<TokenLogprob> top;
    top.reserve(sample.top.size());
    for (const quarrel::TokenLogprob& likely : sample.top)
      top.push_back({.token = likely.id, .logprob = likely.logprob});
    std::string text;
    const bool is_stop = std::ranges::find(stop_tokens_, sample.id) != stop_tokens_.end();
    if (stream_ && !is_stop) text = stream_->push(sample.id);
    const bool wanted = tell({.text = text, .token = sample.id, .logprob = sample.logprob, .top = top});
    if (top_) result.top.push_back(std::move(top));
    result.text += text;
    if (stream_ && stream_->stopped()) {
      result.reason = FinishReason::stop;
      return false;
    }
    return wanted;
  }

  // What the stream still held.
  void flush() {
    if (!stream_ || result.reason == FinishReason::cancelled) return;
    const std::string text = stream_->finish();
    if (text.empty()) return;
    result.text += text;
    const FinishReason reason = result.reason;
    tell({.text = text});
    result.reason = reason;  // the answer has ended already
  }

  GenerateResult result = {};

 private:
  bool tell(const Piece& piece) {
    if (!callback_ || caught_.call([&] { return callback_(piece); })) return true;
    result.reason = FinishReason::cancelled;
    return false;
  }

  const bool top_;
  std::span<const TokenId> stop_tokens_;
  const PieceCallback& callback_;
  Caught& caught_;
  std::optional<TextStream> stream_;
};

}  // namespace

// The requests that a token would end. Whoever cancels holds the mutex, so that no request it names is gone.
struct CancelToken::State {
  struct Entry {
    Engine* engine = nullptr;
    RequestId id = 0;
  };

  // An answer's place in the list, for as long as it runs.
  class Watch {
   public:
    Watch(State* state, Engine& engine, RequestId id) : state_(state), id_(id), engine_(&engine) {
      if (state_ == nullptr) return;
      const std::scoped_lock lock(state_->mutex);
      state_->running.push_back({.engine = engine_, .id = id_});
      if (state_->cancelled) engine_->cancel(id_);
    }
    ~Watch() {
      if (state_ == nullptr) return;
      const std::scoped_lock lock(state_->mutex);
      std::erase_if(state_->running, [&](const Entry& entry) { return entry.engine == engine_ && entry.id == id_; });
    }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    bool cancelled() const noexcept { return state_ != nullptr && state_->cancelled; }

   private:
    State* state_;
    RequestId id_;
    Engine* engine_;
  };

  std::mutex mutex;
  std::vector<Entry> running;
  std::atomic<bool> cancelled = false;
};

CancelToken::CancelToken() : state_(std::make_shared<State>()) {}

// One that was moved elsewhere cancels nothing.
void CancelToken::cancel() const {
  if (state_ == nullptr) return;
  const std::scoped_lock lock(state_->mutex);
  state_->cancelled = true;
  for (const State::Entry& entry : state_->running) entry.engine->cancel(entry.id);
}

bool CancelToken::cancelled() const noexcept { return state_ != nullptr && state_->cancelled; }

GenerateRequest Model::Impl::request_for(std::span<const Token> prompt, const GenerateOptions& options) const {
  GenerateRequest request{.prompt = {prompt.begin(), prompt.end()},
                          .sampling = {.temperature = options.temperature,
                                       .top_k = options.top_k,
                                       .top_p = options.top_p,
                                       .min_p = options.min_p,
                                       .repeat_penalty = options.repeat_penalty,
                                       .presence_penalty = options.presence_penalty,
                                       .frequency_penalty = options.frequency_penalty,
                                       .penalty_window = options.penalty_window,
                                       .seed = options.seed ? *options.seed : random_seed()},
                          .max_tokens = options.max_tokens,
                          .top = options.logprobs,
                          .overflow = Overflow::stop,
                          .deadline = std::min(options.timeout, kLongestTimeout)};
  if (options.stop_tokens) {
    request.stop_tokens = *options.stop_tokens;
  } else if (tokenizer_ != nullptr) {
    request.stop_tokens = tokenizer_->special().end_of_generation;
  }
  return request;
}

GenerateResult Model::Impl::generate(std::span<const Token> prompt, const GenerateOptions& options,
                                     const PieceCallback& callback, Caught& caught) {
  if (!engine_) {
    refuse(ErrorKind::unsupported, "this model ({}) embeds texts; it foretells no tokens", info.architecture);
  }
  check_options(options);
  GenerateRequest request = request_for(prompt, options);
  const std::vector<TokenId> stop_tokens = request.stop_tokens;
  Answer answer(tokenizer_, options, stop_tokens, callback, caught);
  answer.result.prompt_tokens = prompt.size();
  answer.result.seed = request.sampling.seed;

  const Engine::Submission submission = engine_->submit(std::move(request));
  if (submission.result.status != SubmitStatus::accepted) refuse_submission(submission.result);
  Request running(*engine_, submission.result.id);
  const CancelToken::State::Watch watch(options.cancel ? options.cancel->state_.get() : nullptr, *engine_,
                                        submission.result.id);
  while (const auto event = submission.stream->next()) {
    if (watch.cancelled()) {
      answer.result.reason = FinishReason::cancelled;
      break;
    }
    if (event->kind == TokenEvent::Kind::started) {
      answer.result.cached_tokens = static_cast<std::size_t>(std::max(event->cached, 0));
    } else if (event->kind == TokenEvent::Kind::token) {
      if (!answer.take(event->sample)) break;
    } else if (event->kind == TokenEvent::Kind::finished) {
      running.finish();
      answer.result.reason = reason_of(*event, answer.result.tokens.size(), options.max_tokens);
    }
  }
  answer.flush();
  return std::move(answer.result);
}

}  // namespace quarrel::api
