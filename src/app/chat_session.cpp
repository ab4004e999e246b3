#include "app/chat_session.h"

#include <fmt/ranges.h>

#include "app/input.h"
#include "app/workbench.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/random_seed.h"
#include "model/architectures.h"
#include "text/chat_prompt.h"
#include "text/default_templates.h"

namespace quarrel {
namespace {

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

// Recurrent states that turns may return to.
constexpr std::int32_t kSnapshots = 4;

// How long Ctrl-C may go unseen.
constexpr std::chrono::milliseconds kLook{20};

ExecutorOptions chat_executor_options(const ModelOptions& options) {
  ExecutorOptions result = executor_options(options);
  result.snapshots = kSnapshots;
  return result;
}

}  // namespace

std::string_view reason_name(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::context: return "context";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::timeout: return "timeout";
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
  executor_ = std::make_unique<Executor>(std::move(file), *device_, chat_executor_options(options.model));
  engine_ = std::make_unique<Engine>(*executor_);
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

void ChatSession::follow(Engine::Submission& submission, const ChatParameters& parameters,
                         const std::atomic<bool>& cancel, TextStream& text, const TextSink& sink, Reply& reply) {
  const auto start = Clock::now();
  auto first = start;
  const auto emit = [&](const std::string& piece) {
    if (piece.empty()) return;
    reply.text += piece;
    sink(piece);
  };
  bool over = false;  // the answer is complete; only its end is waited for
  while (!submission.stream->done()) {
    if (!over && cancel.load(std::memory_order_relaxed)) {
      over = true;
      engine_->cancel(submission.result.id);
    }
    const std::optional<TokenEvent> event = submission.stream->next_within(kLook);
    if (!event) continue;
    if (event->kind == TokenEvent::Kind::started) reply.cached_tokens = static_cast<std::size_t>(event->cached);
    if (event->kind == TokenEvent::Kind::token && !over) {
      if (reply.tokens.empty()) first = Clock::now();
      reply.tokens.push_back(event->sample.id);
      if (tokenizer_->is_end_of_generation(event->sample.id)) continue;
      emit(text.push(event->sample.id));
      if (text.stopped()) {
        over = true;
        engine_->cancel(submission.result.id, EndReason::stop);
      }
    }
    if (event->kind != TokenEvent::Kind::finished) continue;
    if (over) {
      // However the engine ended it meanwhile.
      reply.reason = text.stopped() ? FinishReason::stop : FinishReason::cancelled;
      continue;
    }
    const auto reason = finish_reason(event->reason, reply.tokens.size(), parameters.max_tokens);
    if (!reason) fail(ErrorKind::bad_file, "{}", event->error);
    reply.reason = *reason;
  }
  emit(text.finish());
  const auto end = Clock::now();
  if (reply.tokens.empty()) first = end;
  reply.prompt_seconds = std::chrono::duration<double>(first - start).count();
  reply.generate_seconds = std::chrono::duration<double>(end - first).count();
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
  GenerateRequest request{.prompt = prompt,
                          .sampling = parameters.sampling,
                          .max_tokens = parameters.max_tokens,
                          .stop_tokens = tokenizer_->special().end_of_generation,
                          .priority = Priority::interactive,
                          .overflow = Overflow::stop,
                          .deadline = std::chrono::microseconds(0)};
  request.sampling.seed = reply.seed;
  executor_->watch_times(parameters.verbose);
  Engine::Submission submission = engine_->submit(std::move(request));
  if (!submission.stream) fail(ErrorKind::internal, "the engine refused a request that fits");
  TextStream text(*tokenizer_, parameters.stop, true);
  try {
    follow(submission, parameters, cancel, text, sink, reply);
  } catch (...) {
    engine_->cancel(submission.result.id);
    throw;
  }
  cached_tokens_ = prompt.size() + reply.tokens.size();
  if (parameters.verbose) reply.seen = executor_->observe();
  return reply;
}

}  // namespace quarrel
