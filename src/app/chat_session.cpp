#include "app/chat_session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <random>

#include "app/input.h"
#include "app/workbench.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/architectures.h"
#include "text/chat_prompt.h"
#include "text/default_templates.h"
#include "text/text_stream.h"

namespace quarrel {
namespace {

std::uint64_t random_seed() {
  std::random_device device;
  // 53 bits: the number survives a trip through any JSON reader.
  return ((std::uint64_t{device()} << 32) | device()) >> 11;
}

// A file, if there is one; who wrote neither a file's name nor a format's is told the formats.
std::string read_template(const std::string& choice) {
  try {
    return read_input(choice, TemplateLimits{}.source_bytes);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::not_found) throw;
    fail(ErrorKind::usage, "there is no template '{}': it is neither a file nor one of {}", printable(choice),
         fmt::join(default_template_names(), ", "));
  }
}

std::size_t common_prefix(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

std::string_view reason_name(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::context: return "context";
    case FinishReason::cancelled: return "cancelled";
  }
  return "unknown";
}

ChatSession::ChatSession(const ResolvedModel& model, const ChatOptions& options, Log& log) : name_(model.name) {
  const auto start = Clock::now();
  GgufFile file = GgufFile::open(model.path);
  require_logits(read_spec(file));
  tokenizer_ = Tokenizer::load(file, log);
  if (!options.raw) compile_template(file, options.chat_template, log);
  device_ = open_device(options.model);
  device_description_ = device_->description();
  executor_ = std::make_unique<Executor>(std::move(file), *device_, executor_options(options.model));
  sequence_ = executor_->make_sequence();
  load_seconds_ = seconds_since(start);
}

void ChatSession::compile_template(const GgufFile& file, const std::string& choice, Log& log) {
  std::string source;
  if (!choice.empty()) {
    template_origin_ = choice;
    source = find_default_template(choice);
    if (source.empty()) source = read_template(choice);
  } else {
    TemplateChoice chosen = choose_template(file, *tokenizer_);
    source = std::move(chosen.source);
    template_origin_ = chosen.name.empty() ? "the model's own" : chosen.name;
    if (!chosen.name.empty()) {
      log.warn("the model has no chat template; using '{}' (--template chooses another, --raw none)", chosen.name);
    }
  }
  template_ = ChatTemplate::compile(std::move(source));
}

std::vector<TokenId> ChatSession::encode_conversation(const Conversation& conversation) const {
  if (!template_) fail(ErrorKind::internal, "a conversation needs a template");
  return encode_chat(*tokenizer_, *template_, conversation.to_template(), TemplateClock::now()).tokens;
}

Reply ChatSession::answer(const Conversation& conversation, const ChatParameters& parameters,
                          const std::atomic<bool>& cancel, const TextSink& sink) {
  return continue_tokens(encode_conversation(conversation), parameters, cancel, sink);
}

Reply ChatSession::complete(std::string_view text, const ChatParameters& parameters, const std::atomic<bool>& cancel,
                            const TextSink& sink) {
  std::vector<TokenId> ids = tokenizer_->encode(text, {.parse_special = true});
  put_bos(*tokenizer_, ids);
  return continue_tokens(ids, parameters, cancel, sink);
}

// Batch by batch, so that Ctrl-C need not wait for the whole of a long prompt. False when it was pressed.
bool ChatSession::feed_all_but_last_batch(const std::vector<TokenId>& prompt, const std::atomic<bool>& cancel) {
  const auto batch = static_cast<std::size_t>(executor_->batch_rows());
  while (prompt.size() - cached_.size() > batch) {
    if (cancel.load(std::memory_order_relaxed)) return false;
    const std::span<const TokenId> part(prompt.data() + cached_.size(), batch);
    executor_->run_chunked({.sequence = &sequence_, .tokens = part, .row_class = RowClass::prompt, .wants = {}});
    cached_.insert(cached_.end(), part.begin(), part.end());
  }
  return !cancel.load(std::memory_order_relaxed);
}

Reply ChatSession::continue_tokens(const std::vector<TokenId>& prompt, const ChatParameters& parameters,
                                   const std::atomic<bool>& cancel, const TextSink& sink) {
  const auto context = static_cast<std::size_t>(executor_->context());
  if (prompt.empty()) fail(ErrorKind::bad_input, "the prompt is empty");
  if (prompt.size() >= context) {
    fail(ErrorKind::bad_input, "the prompt has {} tokens, but the context holds {} including the answer", prompt.size(),
         context);
  }
  for (const auto& [id, bias] : parameters.sampling.logit_bias) {
    if (static_cast<std::size_t>(id) >= tokenizer_->size()) {
      fail(ErrorKind::bad_input, "the logit bias names token {}, but the vocabulary has {}", id, tokenizer_->size());
    }
  }

  Reply reply;
  reply.seed = parameters.seed ? *parameters.seed : random_seed();
  reply.prompt_tokens = prompt.size();
  // At least one token must be fed: its row is what the first word is drawn from.
  reply.cached_tokens = std::min(common_prefix(cached_, prompt), prompt.size() - 1);
  reply.cached_tokens =
      static_cast<std::size_t>(executor_->truncate(sequence_, static_cast<std::int32_t>(reply.cached_tokens)));
  cached_.resize(reply.cached_tokens);

  GenerateOptions options{.sampling = parameters.sampling,
                          .max_tokens = parameters.max_tokens,
                          .stop_tokens = tokenizer_->special().end_of_generation,
                          .cancel = &cancel};
  options.sampling.seed = reply.seed;
  executor_->watch_times(parameters.verbose);
  TextStream stream(*tokenizer_, parameters.stop, true);
  const auto emit = [&](const std::string& piece) {
    if (piece.empty()) return;
    reply.text += piece;
    sink(piece);
  };
  try {
    const auto start = Clock::now();
    if (!feed_all_but_last_batch(prompt, cancel)) {
      reply.reason = FinishReason::cancelled;
      reply.prompt_seconds = seconds_since(start);
      return reply;
    }
    const double fed_seconds = seconds_since(start);
    const std::span<const TokenId> last(prompt.data() + cached_.size(), prompt.size() - cached_.size());
    GenerateResult result = generate(*executor_, sequence_, cached_, last, options, [&](const SampleResult& sample) {
      if (tokenizer_->is_end_of_generation(sample.id)) return true;
      emit(stream.push(sample.id));
      return !stream.stopped();
    });
    emit(stream.finish());
    cached_ = prompt;
    cached_.insert(cached_.end(), result.tokens.begin(), result.tokens.end());
    cached_.resize(static_cast<std::size_t>(sequence_.length()));
    reply.reason = result.reason;
    reply.tokens = std::move(result.tokens);
    reply.prompt_seconds = fed_seconds + result.prompt_seconds;
    reply.generate_seconds = result.generate_seconds;
    if (parameters.verbose) reply.seen = executor_->observe();
  } catch (...) {
    executor_->truncate(sequence_, 0);
    cached_.clear();
    throw;
  }
  return reply;
}

}  // namespace quarrel
