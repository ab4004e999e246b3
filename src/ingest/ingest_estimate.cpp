#include "ingest/ingest_estimate.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <unordered_set>

#include "base/clock.h"
#include "base/error.h"

namespace quarrel {
namespace {

constexpr std::size_t kSampleTexts = 64;
// A row's id and timestamp, and the offsets of its texts.
constexpr std::uint64_t kRowBytes = 8 + 8 + 4 * 4;

// Texts from all over, few enough to be embedded at once: every n-th, where n doubles whenever there are too many.
class Sample {
 public:
  void offer(const std::string& text) {
    if (seen_++ % every_ != 0) return;
    texts_.push_back(text);
    if (texts_.size() <= kSampleTexts) return;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < texts_.size(); i += 2) texts_[kept++].swap(texts_[i]);
    texts_.resize(kept);
    every_ *= 2;
  }
  const std::vector<std::string>& texts() const noexcept { return texts_; }

 private:
  std::uint64_t seen_ = 0;
  std::uint64_t every_ = 1;
  std::vector<std::string> texts_;
};

// Seconds that it took; the tokens are added up in `tokens`.
double embed_sample(ModelEmbedder& embedder, const std::vector<std::string>& texts, std::uint64_t& tokens) {
  const auto width = static_cast<std::size_t>(embedder.dimension());
  std::vector<float> memory(texts.size() * width);
  std::vector<std::span<float>> places;
  for (std::size_t i = 0; i < texts.size(); ++i) places.push_back(std::span(memory).subspan(i * width, width));
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<TextEmbedder::Outcome> outcome;
  const Clock::time_point start = Clock::now();
  const auto work = embedder.start(texts, std::move(places), [&](TextEmbedder::Outcome result) {
    const std::scoped_lock lock(mutex);
    outcome = std::move(result);
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return outcome.has_value(); });
  if (outcome->error) std::rethrow_exception(outcome->error);
  tokens += outcome->tokens;
  return seconds_since(start);
}

}  // namespace

IngestEstimate estimate_ingest(TextSource& source, ModelEmbedder& embedder, Journal* journal,
                               const std::function<bool(std::uint64_t texts)>& watch) {
  IngestEstimate estimate;
  Sample sample;
  std::unordered_set<TextKey, TextKeyHash> read;
  const auto claim = [&](const TextKey& key) {
    if (journal != nullptr) return journal->claim(key).claim;
    return read.insert(key).second ? Journal::Claim::send : Journal::Claim::repeated;
  };
  TextRecord record;
  while (source.next(record)) {
    if (!watch(++estimate.texts)) fail(ErrorKind::cancelled, "the estimate was interrupted");
    const Journal::Claim claimed = claim(key_of(record));
    if (claimed == Journal::Claim::stored) ++estimate.stored_before;
    if (claimed == Journal::Claim::repeated) ++estimate.repeated;
    if (claimed != Journal::Claim::send) continue;
    const std::size_t tokens = embedder.tokens(record.text);
    if (tokens > embedder.longest_text()) ++estimate.cut;
    estimate.tokens += std::min(tokens, embedder.longest_text());
    estimate.bytes += kRowBytes + static_cast<std::uint64_t>(embedder.dimension()) * sizeof(float) +
                      record.text.size() + record.id.size() + record.source.size() +
                      (record.metadata.empty() ? record.position.size() : record.metadata.size());
    for (const std::string& column : record.columns) estimate.bytes += column.size();
    sample.offer(record.text);
  }
  estimate.sample_texts = sample.texts().size();
  if (estimate.sample_texts == 0) return estimate;
  embed_sample(embedder, {sample.texts().front()}, estimate.sample_tokens);  // pages that nobody has touched yet
  estimate.sample_tokens = 0;
  estimate.sample_seconds = embed_sample(embedder, sample.texts(), estimate.sample_tokens);
  estimate.seconds = estimate.sample_seconds * static_cast<double>(estimate.tokens) /
                     static_cast<double>(std::max<std::uint64_t>(1, estimate.sample_tokens));
  return estimate;
}

}  // namespace quarrel
