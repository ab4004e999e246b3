#include "session/scoring.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "session/cancel_check.h"
#include "session/refusal.h"

namespace quarrel {
namespace {

// Rows of logits that may wait for a reader.
constexpr std::size_t kMostRows = 64;

EngineRequest score_request(const LoadedModel& model, std::span<const TokenId> tokens, const ScoreOptions& options) {
  model.require_generation();
  if (model.engine().on_engine_thread()) {
    fail(ErrorKind::internal, "a sink cannot wait for the engine that calls it");
  }
  EngineRequest request;
  request.prompt.assign(tokens.begin(), tokens.end());
  request.max_tokens = 0;
  request.prompt_outputs = PromptOutputs::scores;
  request.generated = options.row_class == RowClass::generated;
  request.use_cache = false;
  return request;
}

}  // namespace

std::vector<float> score_tokens(const std::shared_ptr<LoadedModel>& model, std::span<const TokenId> tokens,
                                const ScoreOptions& options) {
  const Engine::Submission submission = model->engine().submit(score_request(*model, tokens, options));
  require_accepted(submission.result);
  std::vector<float> scores;
  scores.reserve(tokens.size());
  while (!submission.stream->done()) {
    if (options.cancelled && options.cancelled()) model->engine().cancel(submission.result.id);
    const auto event = options.cancelled ? submission.stream->next_within(kCancelCheck) : submission.stream->next();
    if (!event) continue;
    if (event->kind == TokenEvent::Kind::prompt_score) scores.push_back(event->sample.logprob);
    if (event->kind == TokenEvent::Kind::finished) require_finished(event->reason, event->error);
  }
  if (scores.size() + 1 != tokens.size()) fail(ErrorKind::internal, "the engine left tokens without a score");
  return scores;
}

// Rows on their way from the engine's thread to the reader.
class LogitReader::Queue final : public EventSink {
 public:
  void take(std::span<TokenEvent> events) override {
    for (TokenEvent& event : events) {
      std::unique_lock lock(mutex_);
      if (event.kind == TokenEvent::Kind::finished) {
        end_ = std::move(event);
      } else if (event.kind == TokenEvent::Kind::prompt_score || event.kind == TokenEvent::Kind::token) {
        changed_.wait(lock, [this] { return closed_ || rows_.size() < kMostRows; });
        if (!closed_) rows_.push_back(std::move(event.values));
      }
      changed_.notify_all();
    }
  }

  // The next row; none: it has ended, or nothing came in time.
  std::optional<std::vector<float>> next() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kCancelCheck, [this] { return !rows_.empty() || end_; });
    if (rows_.empty()) return std::nullopt;
    std::vector<float> row = std::move(rows_.front());
    rows_.pop_front();
    changed_.notify_all();
    return row;
  }

  void require_good_end() {
    const std::scoped_lock lock(mutex_);
    if (rows_.empty() && end_) require_finished(end_->reason, end_->error);
  }
  bool ended() {
    const std::scoped_lock lock(mutex_);
    return rows_.empty() && end_;
  }
  void close() {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<float>> rows_;
  std::optional<TokenEvent> end_;
  bool closed_ = false;  // nobody reads any more
};

LogitReader::LogitReader(std::shared_ptr<LoadedModel> model, std::span<const TokenId> tokens,
                         const ScoreOptions& options)
    : model_(std::move(model)), cancelled_(options.cancelled), rows_(tokens.size()), queue_(std::make_shared<Queue>()) {
  EngineRequest request = score_request(*model_, tokens, options);
  request.prompt_logits = true;
  request.max_tokens = 1;  // the last row's logits come with a token
  const SubmitResult result = model_->engine().submit(std::move(request), queue_);
  require_accepted(result);
  id_ = result.id;
}

LogitReader::~LogitReader() {
  queue_->close();
  model_->engine().cancel(id_);
}

std::span<const float> LogitReader::next() {
  while (rows_read_ < rows_) {
    if (cancelled_ && cancelled_()) model_->engine().cancel(id_);
    if (auto row = queue_->next()) {
      row_ = std::move(*row);
      ++rows_read_;
      return row_;
    }
    queue_->require_good_end();
    if (queue_->ended()) fail(ErrorKind::internal, "the engine left tokens without logits");
  }
  return {};
}

}  // namespace quarrel
