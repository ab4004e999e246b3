#include "engine/embedder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "model/architectures.h"
#include "model/spec_readers.h"
#include "quant/decode.h"

namespace quarrel {
namespace {

constexpr const char* kTable = "token_embd.weight";

// The options with everything decided that depends on the file.
ExecutorOptions settled(const GgufFile& file, const EmbedOptions& options) {
  ExecutorOptions result = options.executor;
  result.logits = false;
  const ModelSpec spec = read_spec(file, result.context);
  const bool encoder = !spec.has_head;
  if (!result.pooling) result.pooling = read_pooling(HyperParameters(file));
  if (!options.executor.pooling && result.pooling == Pooling::none) {
    result.pooling = encoder ? Pooling::mean : Pooling::last;
  }
  // A text fills its last block only in part, so the blocks for a step of short ones are twice those of its rows.
  if (encoder) {
    const std::int64_t context = result.context > 0 ? result.context : spec.context_length;
    const std::int64_t rows = std::max(std::int64_t{result.batch_rows}, context);
    result.sequences = std::max(result.sequences, static_cast<std::int32_t>((2 * rows + context - 1) / context));
  }
  return result;
}

// Sequences of one call, whose blocks and slots are free again however it ends.
class Sequences {
 public:
  Sequences(Executor& executor, std::size_t count) : executor_(executor) {
    list_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) list_.push_back(executor.make_sequence());
  }
  ~Sequences() {
    for (Sequence& sequence : list_) executor_.truncate(sequence, 0);
  }
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  Sequence& operator[](std::size_t index) noexcept { return list_[index]; }

 private:
  Executor& executor_;
  std::vector<Sequence> list_;
};

void report(const EmbedProgress& progress, std::size_t done, std::size_t total) {
  if (progress && !progress(done, total)) fail(ErrorKind::cancelled, "the embedding was cancelled");
}

}  // namespace

Embedder::Embedder(GgufFile file, Device& device, const EmbedOptions& options, Log& log)
    : normalize_(options.normalize), dimensions_(options.dimensions) {
  const ExecutorOptions settings = settled(file, options);
  executor_ = std::make_unique<Executor>(std::move(file), device, settings);
  const std::int32_t width = executor_->model().embedding_width();
  if (dimensions_ && pooling() == Pooling::rank) {
    fail(ErrorKind::usage, "scores have no dimensions to choose from: leave them out when ranking");
  }
  if (dimensions_ && (*dimensions_ < 1 || *dimensions_ > width)) {
    fail(ErrorKind::usage, "{} dimensions were asked for, but the model's vectors have {}", *dimensions_, width);
  }
  if (executor_->file().find("tokenizer.ggml.tokens") != nullptr) tokenizer_ = Tokenizer::load(executor_->file(), log);
}

std::int32_t Embedder::embedding_dim() const noexcept {
  return dimensions_.value_or(executor_->model().embedding_width());
}

EncodedText Embedder::encode(std::string_view text) const {
  if (!tokenizer_) fail(ErrorKind::unsupported, "the model's file has no vocabulary, so it takes token ids alone");
  EncodedText result{.tokens = tokenizer_->encode(text, {.add_special = true})};
  result.full_tokens = result.tokens.size();
  if (result.tokens.size() <= limit()) return result;
  result.cut = true;
  result.tokens.resize(limit());
  const SpecialTokens& special = tokenizer_->special();
  if (special.add_eos && special.eos) result.tokens.back() = *special.eos;
  return result;
}

void Embedder::check(std::span<const TokenId> tokens, std::size_t number) const {
  if (tokens.empty()) {
    fail(ErrorKind::bad_input, "text {} has no tokens: it is empty, and the vocabulary adds none", number);
  }
  if (tokens.size() > limit()) {
    fail(ErrorKind::bad_input, "text {} has {} tokens; the model's limit is {}", number, tokens.size(), limit());
  }
  const std::int32_t vocabulary = executor_->spec().vocabulary;
  for (const TokenId id : tokens) {
    if (id >= 0 && id < vocabulary) continue;
    fail(ErrorKind::bad_input, "text {} has the token id {}, which is not in the model's vocabulary of {} tokens",
         number, id, vocabulary);
  }
}

std::vector<Embedding> Embedder::embed(std::span<const std::string> texts, const EmbedProgress& progress) {
  std::vector<EncodedText> encoded;
  std::vector<std::vector<TokenId>> tokens;
  encoded.reserve(texts.size());
  tokens.reserve(texts.size());
  for (const std::string& text : texts) {
    encoded.push_back(encode(text));
    tokens.push_back(std::move(encoded.back().tokens));
  }
  std::vector<Embedding> results = embed(tokens, progress);
  for (std::size_t i = 0; i < results.size(); ++i) {
    results[i].cut = encoded[i].cut;
    results[i].full_tokens = encoded[i].full_tokens;
  }
  return results;
}

std::vector<Embedding> Embedder::embed(std::span<const std::vector<TokenId>> texts, const EmbedProgress& progress) {
  if (pooling() == Pooling::none) fail(ErrorKind::usage, "without pooling a text has a vector a token, not one");
  for (std::size_t i = 0; i < texts.size(); ++i) check(texts[i], i + 1);
  // The longest first: texts of like length share a step, and what is left at the end is quickly done.
  std::vector<std::size_t> order(texts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return texts[i].size(); });

  std::vector<Embedding> results(texts.size());
  for (std::size_t done = 0; done < order.size();) {
    const auto rest = std::span<const std::size_t>(order).subspan(done);
    const std::size_t count = texts_that_fit(texts, rest);
    if (count == 0) {
      results[rest.front()].values =
          embed_in_chunks(texts[rest.front()], [&] { report(progress, done, order.size()); });
    } else {
      report(progress, done, order.size());
      embed_together(texts, rest.first(count), results);
    }
    done += std::max(count, std::size_t{1});
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    results[i].tokens = texts[i].size();
    results[i].full_tokens = texts[i].size();
    finish(results[i].values);
  }
  if (!texts.empty()) report(progress, texts.size(), texts.size());
  return results;
}

// How many of the texts, in this order, one step takes: 0 for a text longer than a batch. Blocks and slots are counted
// instead of the sequences that were planned for, since short texts leave most of a planned sequence unused.
std::size_t Embedder::texts_that_fit(std::span<const std::vector<TokenId>> texts,
                                     std::span<const std::size_t> order) const {
  const MemoryPlan& plan = executor_->plan();
  const std::int32_t block = executor_->backend().block_tokens();
  auto rows = static_cast<std::size_t>(executor_->batch_rows());
  std::size_t blocks = rows;  // a model without attention needs none
  for (const std::int32_t there : plan.blocks) blocks = std::min(blocks, static_cast<std::size_t>(there));
  const std::size_t most = plan.state_slots > 0 ? static_cast<std::size_t>(plan.state_slots) : order.size();
  std::size_t count = 0;
  for (const std::size_t index : order) {
    const std::size_t length = texts[index].size();
    const std::size_t needed =
        plan.blocks.empty() ? 0 : static_cast<std::size_t>(blocks_for(static_cast<std::int64_t>(length), block));
    if (count == most || length > rows || needed > blocks) break;
    rows -= length;
    blocks -= needed;
    ++count;
  }
  return count;
}

void Embedder::embed_together(std::span<const std::vector<TokenId>> texts, std::span<const std::size_t> chosen,
                              std::vector<Embedding>& results) {
  Sequences sequences(*executor_, chosen.size());
  std::vector<Want> wants(chosen.size());
  std::vector<Feed> feeds;
  feeds.reserve(chosen.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::vector<TokenId>& tokens = texts[chosen[i]];
    std::vector<float>& values = results[chosen[i]].values;
    values.resize(static_cast<std::size_t>(executor_->model().embedding_width()));
    wants[i] = {.index = static_cast<std::int32_t>(tokens.size()) - 1, .embedding = values.data()};
    feeds.push_back({.sequence = &sequences[i], .tokens = tokens, .wants = {&wants[i], 1}});
  }
  executor_->run(feeds);
}

// A text that no single step takes. Where a chunk ends is decided by the text alone, so the sum's bits are too.
std::vector<float> Embedder::embed_in_chunks(std::span<const TokenId> tokens,
                                             const std::function<void()>& before_step) {
  const auto step = static_cast<std::size_t>(executor_->batch_rows());
  const auto width = static_cast<std::size_t>(executor_->model().embedding_width());
  const bool first_alone = pooling() == Pooling::cls || pooling() == Pooling::rank;
  Sequences sequences(*executor_, 1);
  std::vector<float> part(width);
  std::vector<double> sum(width, 0.0);
  for (std::size_t begin = 0; begin < tokens.size(); begin += step) {
    before_step();
    const auto chunk = tokens.subspan(begin, std::min(step, tokens.size() - begin));
    const Want want{.index = static_cast<std::int32_t>(chunk.size()) - 1, .embedding = part.data()};
    const Feed feed{.sequence = &sequences[0], .tokens = chunk, .wants = {&want, 1}};
    executor_->run({&feed, 1});
    if (first_alone) return part;  // no later row changes the first
    const auto weight = static_cast<double>(chunk.size());
    for (std::size_t i = 0; i < width; ++i) sum[i] += weight * static_cast<double>(part[i]);
  }
  if (pooling() == Pooling::last) return part;
  std::ranges::transform(sum, part.begin(),
                         [&](double value) { return static_cast<float>(value / static_cast<double>(tokens.size())); });
  return part;
}

std::vector<std::vector<float>> Embedder::token_vectors(std::span<const TokenId> tokens,
                                                        const EmbedProgress& progress) {
  if (pooling() != Pooling::none)
    fail(ErrorKind::usage, "vectors of single tokens need a model opened without pooling");
  check(tokens, 1);
  const auto step = static_cast<std::size_t>(executor_->batch_rows());
  const auto width = static_cast<std::size_t>(executor_->spec().width);
  std::vector<std::vector<float>> vectors(tokens.size(), std::vector<float>(width));
  Sequences sequences(*executor_, 1);
  for (std::size_t begin = 0; begin < tokens.size(); begin += step) {
    report(progress, begin, tokens.size());
    const auto chunk = tokens.subspan(begin, std::min(step, tokens.size() - begin));
    std::vector<Want> wants(chunk.size());
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      wants[i] = {.index = static_cast<std::int32_t>(i), .embedding = vectors[begin + i].data()};
    }
    const Feed feed{.sequence = &sequences[0], .tokens = chunk, .wants = wants};
    executor_->run({&feed, 1});
  }
  for (std::vector<float>& vector : vectors) finish(vector);
  report(progress, tokens.size(), tokens.size());
  return vectors;
}

std::vector<std::vector<float>> Embedder::token_rows(std::span<const TokenId> tokens) const {
  const GgufFile& file = executor_->file();
  const GgufTensor* table = file.find_tensor(kTable);
  if (table == nullptr) fail(ErrorKind::bad_file, "tensor {} is missing", kTable);
  const auto width = static_cast<std::size_t>(executor_->spec().width);
  const std::size_t stride = row_bytes(type_info(table->type), width);
  std::vector<std::vector<float>> rows;
  rows.reserve(tokens.size());
  for (const TokenId id : tokens) {
    if (id < 0 || id >= executor_->spec().vocabulary) {
      fail(ErrorKind::bad_input, "the token id {} is not in the model's vocabulary of {} tokens", id,
           executor_->spec().vocabulary);
    }
    rows.emplace_back(width);
    decode_row(table->type, file.data(*table) + static_cast<std::size_t>(id) * stride, rows.back().data(), width);
  }
  return rows;
}

void Embedder::finish(std::vector<float>& values) const {
  double squares = 0.0;
  values.resize(static_cast<std::size_t>(embedding_dim()));
  for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  if (!std::isfinite(squares)) {
    fail(ErrorKind::bad_file, "the model gave a vector whose numbers are not finite; its file may be damaged");
  }
  if (!normalize_ || pooling() == Pooling::rank || squares == 0.0) return;
  const double length = std::sqrt(squares);
  for (float& value : values) value = static_cast<float>(static_cast<double>(value) / length);
}

}  // namespace quarrel
