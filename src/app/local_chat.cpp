#include "app/local_chat.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "app/input.h"
#include "base/error.h"
#include "base/printable.h"
#include "session/ask.h"
#include "session/generation_stream.h"
#include "session/loaded_model.h"
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

class LocalChat final : public ChatSession {
 public:
  LocalChat(const ResolvedModel& model, const ChatOptions& options, std::shared_ptr<Device> device, Log& log);

  Reply answer(const Conversation& conversation, const ChatParameters& parameters, const ReplySink& sink,
               std::size_t first) override;
  Reply complete(std::string_view text, const ChatParameters& parameters, const ReplySink& sink) override;
  std::string full_context() const override;
  std::string template_source() override;
  std::size_t text_tokens(std::string_view text) override;

 private:
  std::size_t prompt_tokens(const Conversation& conversation, std::size_t first) override;
  Reply reply_to(Ask ask, const ChatParameters& parameters, const ReplySink& sink);

  std::shared_ptr<LoadedModel> model_;
  ModelOptions options_;
};

LocalChat::LocalChat(const ResolvedModel& model, const ChatOptions& options, std::shared_ptr<Device> device, Log& log)
    : options_(options.model) {
  LoadOptions load{
      .executor = executor_options(options.model), .chat_template = selection_of(options), .recommended_context = true};
  load.executor.snapshots = kSnapshots;
  model_ = LoadedModel::load(model, std::move(device), load, log);
  warn_of_unused(load.executor, model_->executor().plan(), log);
  model_->require_generation();
  model_->require_tokenizer();
  if (!options.raw) {
    model_->require_template();
    system_ = model.system.value_or("");
  }
  const Executor& executor = model_->executor();
  facts_ = {.name = model_->name(),
            .runs_on = model_->device_description(),
            .path = executor.file().path().string(),
            .architecture = executor.spec().architecture,
            .license = std::string(executor.file().string("general.license").value_or("")),
            .template_origin = model_->chat_template() == nullptr ? "" : model_->template_origin(),
            .context = model_->context(),
            .vocabulary = model_->spec().vocabulary,
            .load_seconds = model_->load_seconds(),
            .recommended = model_->recommended()};
}

Reply LocalChat::answer(const Conversation& conversation, const ChatParameters& parameters, const ReplySink& sink,
                        std::size_t first) {
  ChatInput input;
  input.messages = conversation.to_template(first);
  return reply_to({.prompt = std::move(input)}, parameters, sink);
}

Reply LocalChat::complete(std::string_view text, const ChatParameters& parameters, const ReplySink& sink) {
  return reply_to({.prompt = std::string(text)}, parameters, sink);
}

std::size_t LocalChat::prompt_tokens(const Conversation& conversation, std::size_t first) {
  ChatInput input;
  input.messages = conversation.to_template(first);
  return render_chat(*model_, input).tokens.size();
}

std::string LocalChat::template_source() { return std::string(model_->require_template().source()); }

std::size_t LocalChat::text_tokens(std::string_view text) {
  return model_->require_tokenizer().encode(text, {}).size();
}

std::string LocalChat::full_context() const {
  return full_context_text(model_->executor().plan(), options_, model_->recommended().context.has_value());
}

Reply LocalChat::reply_to(Ask ask, const ChatParameters& parameters, const ReplySink& sink) {
  std::vector<TokenId> prompt = encode_prompt(*model_, ask);
  const std::size_t total = prompt.size();
  ask.prompt = std::move(prompt);
  ask.sampling = parameters.sampling;
  ask.seed = parameters.seed;
  ask.max_tokens = parameters.max_tokens;
  ask.stop = parameters.stop;
  ask.priority = Priority::interactive;
  Engine& engine = model_->engine();
  // Not where they would make the speed another one, which is shown beside them: `bench --profile` tells them there.
  engine.watch_times(parameters.verbose && !model_->executor().backend().profiling_costs());
  // Nobody else uses this engine: the rows that it counts are this prompt's.
  const std::uint64_t rows_before = engine.counters().scheduler.prompt_rows;
  std::size_t cached = 0;
  bool reading = true;
  const auto on_event = [&](const GenerationEvent& event) {
    if (event.kind == GenerationEvent::Kind::started) cached = static_cast<std::size_t>(std::max(event.cached, 0));
    if (event.kind == GenerationEvent::Kind::piece) reading = false;
    if (!event.text.empty()) sink.text(event.text);
    return true;
  };
  const auto cancelled = [&] {
    if (reading && sink.progress) sink.progress(cached + engine.counters().scheduler.prompt_rows - rows_before, total);
    return sink.cancelled && sink.cancelled();
  };
  GenerationResult result = generate(model_, ask, {.on_event = on_event, .cancelled = cancelled});
  Answer& answer = result.answers.front();
  answer.require_success();
  Reply reply{.text = std::move(answer.text),
              .tokens = std::move(answer.tokens),
              .generated = 0,
              .reason = answer.reason,
              .seed = answer.seed,
              .prompt_tokens = result.usage.prompt_tokens,
              .cached_tokens = result.usage.cached_tokens,
              .prompt_seconds = result.usage.queue_seconds + result.usage.prompt_seconds,
              .generate_seconds = result.usage.generate_seconds};
  reply.generated = reply.tokens.size();
  cached_tokens_ = reply.prompt_tokens + reply.generated;
  if (parameters.verbose) reply.seen = engine.observe();
  return reply;
}

}  // namespace

std::unique_ptr<ChatSession> load_chat(const ResolvedModel& model, const ChatOptions& options,
                                       std::shared_ptr<Device> device, Log& log) {
  return std::make_unique<LocalChat>(model, options, std::move(device), log);
}

}  // namespace quarrel
