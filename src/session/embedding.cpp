#include "session/embedding.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/as_size.h"
#include "base/damaged_file.h"
#include "base/error.h"
#include "quant/decode.h"
#include "session/cancel_check.h"
#include "session/refusal.h"

namespace quarrel {
namespace {

constexpr const char* kTable = "token_embd.weight";
// Texts in flight at most, whatever the engine could hold: a queue has room for others too.
constexpr std::size_t kMostInFlight = 256;

Pooling pooling_of(const LoadedModel& model, const EmbeddingOptions& options) {
  return options.pooling.value_or(model.pooling());
}

}  // namespace

std::size_t longest_embedded_text(const LoadedModel& model) {
  return as_size(std::min(model.context(), model.engine().longest_text()));
}

void check_embedded_text(const LoadedModel& model, std::span<const TokenId> tokens, std::size_t number) {
  if (tokens.empty()) {
    fail(ErrorKind::bad_input, "text {} has no tokens: it is empty, and the vocabulary adds none", number);
  }
  const std::size_t limit = longest_embedded_text(model);
  if (tokens.size() > limit) {
    fail(ErrorKind::bad_input, "text {} has {} tokens; the model's limit is {}", number, tokens.size(), limit);
  }
  const std::int32_t vocabulary = model.spec().vocabulary;
  for (const TokenId id : tokens) {
    if (id >= 0 && id < vocabulary) continue;
    fail(ErrorKind::bad_input, "text {} has the token id {}, which is not in the model's vocabulary of {} tokens",
         number, id, vocabulary);
  }
}

std::int32_t vector_width(const LoadedModel& model, const EmbeddingOptions& options) {
  const Pooling pooling = pooling_of(model, options);
  if (pooling == Pooling::rank && !model.ranks()) {
    fail(ErrorKind::unsupported, "this model ({}) has nothing that ranks texts", model.spec().architecture);
  }
  const std::int32_t width = model.vector_width(pooling);
  if (!options.dimensions) return width;
  if (pooling == Pooling::rank) {
    fail(ErrorKind::usage, "scores have no dimensions to choose from: leave them out when ranking");
  }
  if (*options.dimensions < 1 || *options.dimensions > width) {
    fail(ErrorKind::usage, "{} dimensions were asked for, but the model's vectors have {}", *options.dimensions, width);
  }
  return *options.dimensions;
}

namespace {

EncodedText fitted(const LoadedModel& model, std::vector<TokenId> tokens, std::size_t limit) {
  EncodedText result{.tokens = std::move(tokens)};
  result.full_tokens = result.tokens.size();
  if (result.tokens.size() <= limit) return result;
  result.cut = true;
  const TokenId last = result.tokens.back();
  result.tokens.resize(limit);
  result.tokens.shrink_to_fit();  // many may wait, each of a text far beyond the limit
  // Who sends ids needs no vocabulary.
  const Tokenizer* tokenizer = model.tokenizer();
  if (tokenizer != nullptr && tokenizer->special().add_eos && last == tokenizer->special().eos) {
    result.tokens.back() = last;
  }
  return result;
}

}  // namespace

EncodedText fit_text(const LoadedModel& model, std::vector<TokenId> tokens) {
  return fitted(model, std::move(tokens), longest_embedded_text(model));
}

EncodedText encode_text(const LoadedModel& model, std::string_view text) {
  return fit_text(model, model.require_tokenizer().encode(text, {.add_special = true}));
}

EncodedText encode_query(const LoadedModel& model, std::string_view query) {
  EncodedText encoded = encode_text(model, query);
  if (encoded.tokens.size() < longest_embedded_text(model)) return encoded;
  const std::size_t full = encoded.full_tokens;
  encoded = fitted(model, std::move(encoded.tokens), std::max<std::size_t>(1, longest_embedded_text(model) / 2));
  encoded.full_tokens = full;
  return encoded;
}

// [CLS] query [SEP] text [SEP] where words are cut into pieces, <s> query </s></s> text </s> elsewhere.
EncodedText encode_pair(const LoadedModel& model, const EncodedText& query, std::string_view text) {
  const Tokenizer& tokenizer = model.require_tokenizer();
  const SpecialTokens& special = tokenizer.special();
  std::vector<TokenId> tokens = query.tokens;
  if (tokenizer.algorithm() != "wordpiece" && special.separator) tokens.push_back(*special.separator);
  const std::vector<TokenId> second = tokenizer.encode(text, {.add_special = true});
  tokens.insert(tokens.end(), second.begin() + (special.add_bos && special.bos ? 1 : 0), second.end());
  return fit_text(model, std::move(tokens));
}

// The one sink of all texts of a call. Its mutex may be held while the engine is called, never while a callback is.
class EmbeddingRun::State final : public EventSink, public std::enable_shared_from_this<State> {
 public:
  // `places`: one a text, or none.
  State(std::shared_ptr<LoadedModel> model, std::vector<std::vector<TokenId>> texts,
        std::vector<std::span<float>> places, const EmbeddingOptions& options,
        std::function<void(EmbeddingOutcome)> on_done);

  void start();
  void take(std::span<TokenEvent> events) override;
  void cancel();
  std::size_t finished() const noexcept { return finished_; }

 private:
  EngineRequest request_for(std::size_t text) const;
  bool has_room(std::size_t tokens) const;
  void fill();
  void take_one(TokenEvent& event);
  void end_with(std::exception_ptr error);
  void take_vector(std::size_t text, std::vector<float> values);
  std::vector<float> finish(std::vector<float> values) const;
  void finish(std::span<float> values) const;
  void report_if_done(std::unique_lock<std::mutex>& lock);

  std::shared_ptr<LoadedModel> model_;  // let go before the end is reported: see report_if_done
  const EmbeddingOptions options_;
  const Pooling pooling_;
  const std::size_t width_;
  std::vector<std::vector<TokenId>> texts_;
  const std::vector<std::span<float>> places_;
  std::atomic<std::size_t> finished_ = 0;

  std::mutex mutex_;
  std::function<void(EmbeddingOutcome)> on_done_;         // empty: called
  std::vector<std::size_t> order_;                        // of the texts
  std::size_t next_ = 0;                                  // in it
  std::unordered_map<RequestId, std::size_t> in_flight_;  // which text
  std::size_t tokens_in_flight_ = 0;
  std::vector<Embedding> results_;
  std::exception_ptr error_;
  std::optional<std::chrono::steady_clock::time_point> started_;
};

EmbeddingRun::State::State(std::shared_ptr<LoadedModel> model, std::vector<std::vector<TokenId>> texts,
                           std::vector<std::span<float>> places, const EmbeddingOptions& options,
                           std::function<void(EmbeddingOutcome)> on_done)
    : model_(std::move(model)),
      options_(options),
      pooling_(pooling_of(*model_, options)),
      width_(as_size(vector_width(*model_, options))),
      texts_(std::move(texts)),
      places_(std::move(places)),
      on_done_(std::move(on_done)),
      order_(texts_.size()),
      results_(texts_.size()) {
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    check_embedded_text(*model_, texts_[i], i + 1);
    results_[i].tokens = results_[i].full_tokens = texts_[i].size();
  }
  // The longest first: texts of like length share a step, and what is left at the end is quickly done.
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::ranges::stable_sort(order_, std::ranges::greater{}, [this](std::size_t i) { return texts_[i].size(); });
}

EngineRequest EmbeddingRun::State::request_for(std::size_t text) const {
  EngineRequest request;
  request.prompt = texts_[text];
  request.max_tokens = 0;
  request.pooled = pooling_ != Pooling::none;
  request.pooling = pooling_;
  if (!places_.empty()) request.vector_into = places_[text];
  request.prompt_outputs = request.pooled ? PromptOutputs::none : PromptOutputs::vectors;
  request.use_cache = false;
  request.priority = options_.priority;
  request.key = options_.key;
  request.timeout = options_.timeout;
  request.patience = options_.patience;
  return request;
}

// Enough that a step never lacks texts while the next ones are on their way.
bool EmbeddingRun::State::has_room(std::size_t tokens) const {
  const MemoryPlan& plan = model_->executor().plan();
  const std::size_t most_texts = std::min(kMostInFlight, 4 * as_size(plan.sequences));
  const std::size_t most_tokens = 4 * as_size(model_->executor().batch_rows());
  return in_flight_.empty() || (in_flight_.size() < most_texts && tokens_in_flight_ + tokens <= most_tokens);
}

void EmbeddingRun::State::fill() {
  while (next_ < order_.size() && has_room(texts_[order_[next_]].size())) {
    const std::size_t text = order_[next_];
    // Room for it is made first: once it is accepted, its events and its place belong to somebody.
    in_flight_.reserve(in_flight_.size() + 1);
    std::unordered_map<RequestId, std::size_t> accepted{{RequestId{}, text}};
    auto node = accepted.extract(accepted.begin());
    // A call that was accepted goes on: while others keep the queue full, one text of it may still wait there. When
    // that one is done, the next has its turn.
    EngineRequest request = request_for(text);
    request.continues = next_ > 0 && in_flight_.empty();
    const SubmitResult result = model_->engine().submit(std::move(request), shared_from_this());
    if (result.status == SubmitStatus::queue_full && !in_flight_.empty()) return;
    require_accepted(result);
    node.key() = result.id;
    in_flight_.insert(std::move(node));
    tokens_in_flight_ += texts_[text].size();
    ++next_;
  }
}

void EmbeddingRun::State::start() {
  std::unique_lock lock(mutex_);
  try {
    fill();
  } catch (...) {
    if (in_flight_.empty()) {
      on_done_ = nullptr;  // who asked hears of it now, and not again
      throw;
    }
    end_with(std::current_exception());
  }
  report_if_done(lock);
}

std::vector<float> EmbeddingRun::State::finish(std::vector<float> values) const {
  values.resize(width_);
  finish(std::span(values));
  return values;
}

void EmbeddingRun::State::finish(std::span<float> values) const {
  double squares = 0.0;
  for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  if (!std::isfinite(squares)) {
    fail(ErrorKind::bad_file, "the model gave a vector whose numbers are not finite; {}", kDamagedFileHint);
  }
  if (!options_.normalize || pooling_ == Pooling::rank || squares == 0.0) return;
  const double length = std::sqrt(squares);
  for (float& value : values) value = static_cast<float>(static_cast<double>(value) / length);
}

// The engine has written it to its place already, if it has one.
void EmbeddingRun::State::take_vector(std::size_t text, std::vector<float> values) {
  if (places_.empty()) {
    results_[text].values = finish(std::move(values));
  } else {
    finish(places_[text]);
  }
}

void EmbeddingRun::State::take_one(TokenEvent& event) {
  const auto found = in_flight_.find(event.request);
  if (found == in_flight_.end()) return;
  Embedding& result = results_[found->second];
  if (event.kind == TokenEvent::Kind::started && !started_) started_ = event.at;
  if (event.kind == TokenEvent::Kind::vector) take_vector(found->second, std::move(event.values));
  if (event.kind == TokenEvent::Kind::prompt_vector) result.token_vectors.push_back(finish(std::move(event.values)));
  if (event.kind != TokenEvent::Kind::finished) return;
  tokens_in_flight_ -= texts_[found->second].size();
  in_flight_.erase(found);
  ++finished_;
  if (!error_) require_finished(event.reason, event.error);
}

// The first error counts; nothing more is begun.
void EmbeddingRun::State::end_with(std::exception_ptr error) {
  if (!error_) error_ = std::move(error);
  next_ = order_.size();
  for (const auto& [id, text] : in_flight_) model_->engine().cancel(id);
}

void EmbeddingRun::State::take(std::span<TokenEvent> events) {
  std::unique_lock lock(mutex_);
  for (TokenEvent& event : events) {
    try {
      take_one(event);
    } catch (...) {
      end_with(std::current_exception());
    }
  }
  try {
    fill();
  } catch (...) {
    end_with(std::current_exception());
  }
  report_if_done(lock);
}

void EmbeddingRun::State::report_if_done(std::unique_lock<std::mutex>& lock) {
  if (!in_flight_.empty() || next_ < order_.size() || !on_done_) return;
  const auto on_done = std::exchange(on_done_, nullptr);
  EmbeddingOutcome outcome{.error = error_, .started = started_};
  if (!error_) outcome.embeddings = std::move(results_);
  // The engine holds this for a moment longer; whoever waited for the end shall be the one who ends the model.
  std::shared_ptr<LoadedModel> released;
  released.swap(model_);
  lock.unlock();
  released.reset();
  on_done(std::move(outcome));
}

void EmbeddingRun::State::cancel() {
  const std::scoped_lock lock(mutex_);
  if (!on_done_) return;
  end_with(std::make_exception_ptr(Error(ErrorKind::cancelled, "the embedding was cancelled")));
}

EmbeddingRun::EmbeddingRun(std::shared_ptr<State> state) : state_(std::move(state)) {}
EmbeddingRun::EmbeddingRun(EmbeddingRun&&) noexcept = default;

EmbeddingRun& EmbeddingRun::operator=(EmbeddingRun&& other) noexcept {
  if (this != &other) {
    cancel();
    state_ = std::move(other.state_);
  }
  return *this;
}

EmbeddingRun::~EmbeddingRun() { cancel(); }

void EmbeddingRun::cancel() {
  if (state_) state_->cancel();
}

std::size_t EmbeddingRun::finished() const noexcept { return state_ ? state_->finished() : 0; }

EmbeddingRun start_embedding(std::shared_ptr<LoadedModel> model, std::vector<std::vector<TokenId>> texts,
                             const EmbeddingOptions& options, std::function<void(EmbeddingOutcome)> on_done) {
  auto state = std::make_shared<EmbeddingRun::State>(std::move(model), std::move(texts),
                                                     std::vector<std::span<float>>{}, options, std::move(on_done));
  state->start();
  return EmbeddingRun(std::move(state));
}

EmbeddingRun start_embedding_into(std::shared_ptr<LoadedModel> model, std::vector<std::vector<TokenId>> texts,
                                  std::vector<std::span<float>> places, const EmbeddingOptions& options,
                                  std::function<void(EmbeddingOutcome)> on_done) {
  if (pooling_of(*model, options) == Pooling::none) {
    fail(ErrorKind::usage, "a vector a token has no one place: only pooled vectors are written where a caller says");
  }
  const auto width = as_size(vector_width(*model, options));
  const auto fits = [width](std::span<float> place) { return place.size() == width; };
  if (places.size() != texts.size() || !std::ranges::all_of(places, fits)) {
    fail(ErrorKind::usage, "{} texts need as many places of {} values", texts.size(), width);
  }
  auto state = std::make_shared<EmbeddingRun::State>(std::move(model), std::move(texts), std::move(places), options,
                                                     std::move(on_done));
  state->start();
  return EmbeddingRun(std::move(state));
}

std::vector<Embedding> embed(const std::shared_ptr<LoadedModel>& model, std::vector<std::vector<TokenId>> texts,
                             const EmbeddingOptions& options, const EmbeddingProgress& progress) {
  if (model->engine().on_engine_thread()) {
    fail(ErrorKind::internal, "a sink cannot wait for the engine that calls it");
  }
  struct Waiting {
    std::mutex mutex;
    std::condition_variable came;
    std::optional<EmbeddingOutcome> outcome;
  };
  const auto waiting = std::make_shared<Waiting>();
  const std::size_t total = texts.size();
  EmbeddingRun run = start_embedding(model, std::move(texts), options, [waiting](EmbeddingOutcome outcome) {
    const std::scoped_lock lock(waiting->mutex);
    waiting->outcome = std::move(outcome);
    waiting->came.notify_all();
  });
  const auto there = [&waiting] { return waiting->outcome.has_value(); };
  std::unique_lock lock(waiting->mutex);
  while (!there()) {
    if (!progress) {
      waiting->came.wait(lock, there);
    } else if (!waiting->came.wait_for(lock, kCancelCheck, there)) {
      lock.unlock();
      if (!progress(run.finished(), total)) run.cancel();
      lock.lock();
    }
  }
  if (waiting->outcome->error) std::rethrow_exception(waiting->outcome->error);
  if (progress && !progress(total, total)) fail(ErrorKind::cancelled, "the embedding was cancelled");
  return std::move(waiting->outcome->embeddings);
}

std::vector<Embedding> embed(const std::shared_ptr<LoadedModel>& model, std::span<const std::string> texts,
                             const EmbeddingOptions& options, const EmbeddingProgress& progress) {
  std::vector<EncodedText> encoded;
  std::vector<std::vector<TokenId>> tokens;
  encoded.reserve(texts.size());
  tokens.reserve(texts.size());
  for (const std::string& text : texts) {
    encoded.push_back(encode_text(*model, text));
    tokens.push_back(std::move(encoded.back().tokens));
  }
  std::vector<Embedding> results = embed(model, std::move(tokens), options, progress);
  for (std::size_t i = 0; i < results.size(); ++i) {
    results[i].cut = encoded[i].cut;
    results[i].full_tokens = encoded[i].full_tokens;
  }
  return results;
}

std::vector<std::vector<float>> embedding_rows(const LoadedModel& model, std::span<const TokenId> tokens) {
  const GgufFile& file = model.file();
  file.require_whole();  // its names lie in it too
  const GgufTensor* table = file.find_tensor(kTable);
  if (table == nullptr) fail(ErrorKind::bad_file, "tensor {} is missing", kTable);
  const auto width = as_size(model.spec().width);
  const std::size_t stride = row_bytes(type_info(table->type), width);
  std::vector<std::vector<float>> rows;
  rows.reserve(tokens.size());
  for (const TokenId id : tokens) {
    if (id < 0 || id >= model.spec().vocabulary) {
      fail(ErrorKind::bad_input, "the token id {} is not in the model's vocabulary of {} tokens", id,
           model.spec().vocabulary);
    }
    rows.emplace_back(width);
    decode_row(table->type, file.data(*table) + as_size(id) * stride, rows.back().data(), width);
  }
  file.require_whole();
  return rows;
}

}  // namespace quarrel
