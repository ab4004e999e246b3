// Answers to one prompt: a request to the engine, its tokens to text, everything that can end an answer early, and
// which answers are the best.
#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "api/model_impl.h"
#include "backend/sampling.h"
#include "base/as_size.h"
#include "base/random_seed.h"
#include "engine/best_of.h"
#include "engine/finish_reason.h"
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

// How many answers are computed.
std::int32_t branches_of(const GenerateOptions& options) noexcept {
  return options.best_of == 0 ? options.answers : options.best_of;
}

void check_answers(const GenerateOptions& options, std::int32_t most, bool callback) {
  if (options.answers < 1 || options.answers > most) {
    refuse(ErrorKind::bad_input, "answers can be 1 to {}, not {}", most, options.answers);
  }
  if (options.best_of != 0 && (options.best_of < options.answers || options.best_of > most)) {
    refuse(ErrorKind::bad_input, "best_of can be {} (the answers asked for) to {}, or 0, not {}", options.answers, most,
           options.best_of);
  }
  if (callback && branches_of(options) > options.answers) {
    refuse(ErrorKind::bad_input, "a callback cannot be told pieces of the best {} of {} answers before they are chosen",
           options.answers, options.best_of);
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
  ~Request() { engine_.cancel(id_); }  // which does nothing to one that has ended
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

 private:
  Engine& engine_;
  RequestId id_;
};

// The names are the same.
static_assert(static_cast<int>(FinishReason::stop) == static_cast<int>(quarrel::FinishReason::stop));
static_assert(static_cast<int>(FinishReason::length) == static_cast<int>(quarrel::FinishReason::length));
static_assert(static_cast<int>(FinishReason::context) == static_cast<int>(quarrel::FinishReason::context));
static_assert(static_cast<int>(FinishReason::cancelled) == static_cast<int>(quarrel::FinishReason::cancelled));
static_assert(static_cast<int>(FinishReason::timeout) == static_cast<int>(quarrel::FinishReason::timeout));

// An answer as it grows: tokens in, pieces to the callback.
class Answer {
 public:
  Answer(std::size_t number, const Tokenizer* tokenizer, const GenerateOptions& options,
         std::span<const TokenId> stop_tokens, const PieceCallback& callback, Caught& caught)
      : number_(number),
        max_tokens_(options.max_tokens),
        top_(options.logprobs > 0),
        stop_tokens_(stop_tokens),
        callback_(callback),
        caught_(caught) {
    if (tokenizer != nullptr) {
      stream_.emplace(*tokenizer, options.stop, true);
    } else if (!options.stop.empty()) {
      refuse(ErrorKind::unsupported, "the model's file has no vocabulary, so there is no text to stop at");
    }
  }

  // Why the answer ends with this token; none: it goes on.
  std::optional<EndReason> take(const SampleResult& sample) {
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
    const bool wanted =
        tell({.text = text, .token = sample.id, .logprob = sample.logprob, .top = top, .answer = number_});
    if (top_) result.top.push_back(std::move(top));
    result.text += text;
    if (stream_ && stream_->stopped()) return EndReason::stop;
    return wanted ? std::nullopt : std::optional(EndReason::cancelled);
  }

  // The answer has ended: what the stream still held is told, unless nobody wants it.
  void finish(EndReason end) {
    const auto reason = finish_reason(end, result.tokens.size(), max_tokens_);
    if (!reason) return;
    result.reason = static_cast<FinishReason>(*reason);
    if (!stream_ || end == EndReason::cancelled) return;
    const std::string text = stream_->finish();
    if (text.empty()) return;
    result.text += text;
    tell({.text = text, .answer = number_});
  }

  GenerateResult result = {};

 private:
  bool tell(const Piece& piece) {
    return !callback_ || caught_.call([&] { return callback_(piece); });
  }

  const std::size_t number_;
  const std::int32_t max_tokens_;
  const bool top_;
  std::span<const TokenId> stop_tokens_;
  const PieceCallback& callback_;
  Caught& caught_;
  std::optional<TextStream> stream_;
};

// The best answers, or all of them by their numbers.
std::vector<GenerateResult> choose(std::deque<Answer>& answers, const BestOf& ends, const GenerateOptions& options,
                                   const std::string& error) {
  std::vector<std::int32_t> chosen(as_size(options.answers));
  std::iota(chosen.begin(), chosen.end(), 0);
  if (std::cmp_greater(answers.size(), options.answers)) chosen = ends.best(options.answers);
  std::vector<GenerateResult> results;
  results.reserve(chosen.size());
  for (const std::int32_t number : chosen) {
    if (ends.reason(number) == EndReason::failed) {
      refuse(ErrorKind::failed, "{}", error.empty() ? "the model could not compute an answer" : error);
    }
    results.push_back(std::move(answers[as_size(number)].result));
  }
  return results;
}

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
                          .branches = branches_of(options),
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

std::vector<GenerateResult> Model::Impl::generate(std::span<const Token> prompt, const GenerateOptions& options,
                                                  const PieceCallback& callback, Caught& caught) {
  if (!engine_) {
    refuse(ErrorKind::unsupported, "this model ({}) embeds texts; it foretells no tokens", info.architecture);
  }
  check_options(options);
  check_answers(options, engine_->most_branches(), static_cast<bool>(callback));
  GenerateRequest request = request_for(prompt, options);
  const std::vector<TokenId> stop_tokens = request.stop_tokens;
  const std::int32_t branches = request.branches;
  std::deque<Answer> answers;
  for (std::int32_t branch = 0; branch < branches; ++branch) {
    GenerateResult& result =
        answers.emplace_back(as_size(branch), tokenizer_, options, stop_tokens, callback, caught).result;
    result.prompt_tokens = prompt.size();
    result.seed = branch_seed(request.sampling.seed, branch);
  }
  BestOf ends(branches);
  std::string error;

  const Engine::Submission submission = engine_->submit(std::move(request));
  if (submission.result.status != SubmitStatus::accepted) refuse_submission(submission.result);
  const Request running(*engine_, submission.result.id);
  const CancelToken::State::Watch watch(options.cancel ? options.cancel->state_.get() : nullptr, *engine_,
                                        submission.result.id);
  // An answer that ends early is cancelled; what was computed of it meanwhile is not listened to.
  while (!ends.done() && !caught.thrown()) {
    const auto event = submission.stream->next();
    if (!event || watch.cancelled()) break;
    if (event->kind == TokenEvent::Kind::started) {
      for (Answer& answer : answers) answer.result.cached_tokens = static_cast<std::size_t>(std::max(event->cached, 0));
    }
    if (!event->error.empty()) error = event->error;
    if (!ends.take(*event)) continue;
    Answer& answer = answers[as_size(event->branch)];
    std::optional<EndReason> end;
    if (event->kind == TokenEvent::Kind::token) {
      end = answer.take(event->sample);
      if (end) {
        ends.end(event->branch, *end);
        engine_->cancel_branch(submission.result.id, event->branch, *end);
      }
    } else if (event->kind == TokenEvent::Kind::finished) {
      end = event->reason;
    }
    if (end) answer.finish(*end);
  }
  // The others were cancelled, or their endings were lost.
  const bool cancelled = watch.cancelled() || caught.thrown();
  for (std::int32_t branch = 0; branch < branches; ++branch) {
    if (!ends.open(branch)) continue;
    ends.end(branch, cancelled ? EndReason::cancelled : EndReason::failed);
    answers[as_size(branch)].finish(ends.reason(branch));
  }
  if (caught.thrown()) return {};  // it is thrown again
  return choose(answers, ends, options, error);
}

}  // namespace quarrel::api
