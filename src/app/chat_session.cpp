#include "app/chat_session.h"

#include <fmt/ranges.h>

#include "app/input.h"
#include "app/workbench.h"
#include "base/error.h"
#include "base/printable.h"
#include "session/generation_stream.h"
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

TemplateSelection selection_of(const ChatOptions& options) {
  if (options.raw) return {.kind = TemplateSelection::Kind::none};
  if (options.chat_template.empty()) return {};
  if (!find_default_template(options.chat_template).empty()) {
    return {.kind = TemplateSelection::Kind::named, .value = options.chat_template};
  }
  return {.kind = TemplateSelection::Kind::text,
          .value = read_template(options.chat_template),
          .origin = options.chat_template};
}

}  // namespace

ChatSession::ChatSession(const ResolvedModel& model, const ChatOptions& options, Log& log) {
  GgufFile file = GgufFile::open(model.path);
  LoadOptions load{.executor = executor_options(options.model), .chat_template = selection_of(options)};
  load.executor.snapshots = kSnapshots;
  model_ = LoadedModel::load(std::move(file), model, open_device(options.model, log), load, log);
  model_->require_generation();
  model_->require_tokenizer();
  if (!options.raw) model_->require_template();
}

Reply ChatSession::answer(const Conversation& conversation, const ChatParameters& parameters,
                          const std::atomic<bool>& cancel, const TextSink& sink) {
  ChatInput input;
  input.messages = conversation.to_template();
  return reply_to({.prompt = std::move(input)}, parameters, cancel, sink);
}

Reply ChatSession::complete(std::string_view text, const ChatParameters& parameters, const std::atomic<bool>& cancel,
                            const TextSink& sink) {
  return reply_to({.prompt = std::string(text)}, parameters, cancel, sink);
}

Reply ChatSession::reply_to(Ask ask, const ChatParameters& parameters, const std::atomic<bool>& cancel,
                            const TextSink& sink) {
  ask.sampling = parameters.sampling;
  ask.seed = parameters.seed;
  ask.max_tokens = parameters.max_tokens;
  ask.stop = parameters.stop;
  ask.priority = Priority::interactive;
  model_->engine().watch_times(parameters.verbose);
  GenerationResult result = generate(model_, ask,
                                     {.on_event =
                                          [&](const GenerationEvent& event) {
                                            if (!event.text.empty()) sink(event.text);
                                            return true;
                                          },
                                      .cancelled = [&] { return cancel.load(std::memory_order_relaxed); }});
  Answer& answer = result.answers.front();
  answer.require_success();
  Reply reply{.text = std::move(answer.text),
              .tokens = std::move(answer.tokens),
              .reason = answer.reason,
              .seed = answer.seed,
              .prompt_tokens = result.usage.prompt_tokens,
              .cached_tokens = result.usage.cached_tokens,
              .prompt_seconds = result.usage.queue_seconds + result.usage.prompt_seconds,
              .generate_seconds = result.usage.generate_seconds};
  cached_tokens_ = reply.prompt_tokens + reply.tokens.size();
  if (parameters.verbose) reply.seen = model_->engine().observe();
  return reply;
}

}  // namespace quarrel
