#include "session/loaded_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"
#include "engine/placement.h"
#include "model/architectures.h"
#include "model/spec_readers.h"
#include "session/refusal.h"
#include "text/chat_prompt.h"
#include "text/default_templates.h"

namespace quarrel {
namespace {

// How often a warm-up tells that it goes on.
constexpr std::chrono::milliseconds kWarming{100};
// Tokens that a block of the cache holds, about: so many short texts find room at once.
constexpr std::int64_t kShortText = 16;

// Ends a model on a thread that may wait for its engine.
void end_model(std::unique_ptr<LoadedModel> model, const std::function<void(std::unique_ptr<LoadedModel>)>& retire) {
  if (retire) {
    retire(std::move(model));
  } else if (model->engine().on_engine_thread()) {
    // Nobody can wait for it here. It has all it needs with it, its device included.
    LoadedModel* const ending = model.release();
    try {
      std::thread([ending] { delete ending; }).detach();
    } catch (const std::exception&) {
      // Without a thread it stays where it is: better than an engine that waits for itself.
    }
  }
}

}  // namespace

bool has_vocabulary(const GgufFile& file) noexcept { return file.find("tokenizer.ggml.tokens") != nullptr; }

std::optional<std::string> context_warning(const GgufFile& file, std::int32_t context) {
  if (context <= 0) return std::nullopt;
  const ModelSpec spec = read_spec(file, context);
  // Without positions for it there is no such context: the load refuses it.
  if (context <= spec.context_length || spec.position_table) return std::nullopt;
  return fmt::format(
      "a context of {} tokens is more than the {} that the model was made for: its {} may get worse there", context,
      spec.context_length, spec.has_head ? "answers" : "vectors");
}

ExecutorOptions settled(const GgufFile& file, const ExecutorOptions& options) {
  ExecutorOptions result = options;
  const ModelSpec spec = read_spec(file, options.context);
  if (spec.has_head) return result;
  // An encoder's text is fed in one step, and many of them share one. A text fills its last block only in part, so the
  // blocks for a step of short ones are twice those of its rows.
  const std::int64_t context = options.context > 0 ? options.context : spec.context_length;
  constexpr std::int64_t kUsualRows = 512;
  const std::int64_t rows = std::max(options.batch_rows > 0 ? std::int64_t{options.batch_rows} : kUsualRows, context);
  result.logits = false;
  result.sequences = std::max(options.sequences, static_cast<std::int32_t>(2 * rows / kShortText));
  if (options.cache_tokens == 0) result.cache_tokens = std::max(2 * rows, options.sequences * context);
  return result;
}

Pooling settled_pooling(const GgufFile& file, const ExecutorOptions& options) {
  const Pooling known = options.pooling ? *options.pooling : read_pooling(HyperParameters(file));
  if (known != Pooling::none) return known;
  return read_spec(file, options.context).has_head ? Pooling::last : Pooling::mean;
}

LoadedModel::~LoadedModel() = default;

std::shared_ptr<LoadedModel> LoadedModel::load(const std::filesystem::path& path, std::shared_ptr<Device> device,
                                               const LoadOptions& options, Log& log) {
  return load(
      ResolvedModel{.path = path, .name = path.stem().string(), .system = {}, .template_text = {}, .params = {}},
      std::move(device), options, log);
}

std::shared_ptr<LoadedModel> LoadedModel::load(const ResolvedModel& model, std::shared_ptr<Device> device,
                                               const LoadOptions& options, Log& log) {
  return load(GgufFile::open(model.path), model, std::move(device), options, log);
}

std::shared_ptr<LoadedModel> LoadedModel::load(GgufFile file, const ResolvedModel& model,
                                               std::shared_ptr<Device> device, const LoadOptions& options, Log& log) {
  const auto start = Clock::now();
  std::unique_ptr<LoadedModel> loaded(new LoadedModel);
  loaded->name_ = model.name;
  loaded->path_ = model.path;
  std::string template_warning;
  if (options.vocabulary && has_vocabulary(file)) {
    loaded->tokenizer_ = Tokenizer::load(file, log);
    template_warning = loaded->compile_template(file, options.chat_template, model);
  }
  loaded->system_ = model.system.value_or("");
  loaded->recommended_ = read_recommended_sampling(file, model.params.value_or(""), log);
  ExecutorOptions wanted = options.executor;
  if (options.recommended_context && wanted.context == 0) wanted.context = loaded->recommended_.context.value_or(0);
  if (const auto warning = context_warning(file, wanted.context)) log.warn("{}", *warning);
  const ExecutorOptions settings = settled(file, wanted);
  if (options.has_device || !device->has_fallback()) {
    loaded->device_ = std::move(device);
  } else {
    const Placement placement = place_model(file, std::move(device), settings);
    if (!placement.moved.empty()) log.warn("{}", placement.moved);
    loaded->device_ = placement.device;
  }
  loaded->device_description_ = loaded->device_->description();
  auto executor = std::make_unique<Executor>(std::move(file), *loaded->device_, settings);
  if (const std::uint64_t clamped = executor->backend().counters().weights_saturated; clamped > 0) {
    log.warn("{} weights are beyond the range of F16, in which the device keeps them, and were clamped to ±65504",
             clamped);
  }
  loaded->pooling_ = settled_pooling(executor->file(), options.executor);
  loaded->generates_ = executor->spec().has_head && settings.logits;
  if (loaded->generates_ && !template_warning.empty()) log.warn("{}", template_warning);
  loaded->engine_ = std::make_unique<Engine>(std::move(executor), options.engine);
  if (options.warm_up) loaded->warm_up(options.on_warming);
  loaded->load_seconds_ = seconds_since(start);
  auto end = [retire = options.retire](LoadedModel* ending) {
    end_model(std::unique_ptr<LoadedModel>(ending), retire);
  };
  return std::shared_ptr<LoadedModel>(loaded.release(), std::move(end));
}

// A template of the file's own that is broken still leaves a model that continues texts.
std::string LoadedModel::compile_template(const GgufFile& file, const TemplateSelection& selection,
                                          const ResolvedModel& model) {
  switch (selection.kind) {
    case TemplateSelection::Kind::none: return {};
    case TemplateSelection::Kind::named: {
      const std::string_view source = find_default_template(selection.value);
      if (source.empty()) {
        fail(ErrorKind::usage, "there is no template '{}'; the built-in ones are {}", printable(selection.value),
             fmt::join(default_template_names(), ", "));
      }
      template_ = ChatTemplate::compile(std::string(source));
      template_origin_ = selection.value;
      return {};
    }
    case TemplateSelection::Kind::text:
      template_ = ChatTemplate::compile(selection.value);
      template_origin_ = selection.origin.empty() ? "a text that was given" : selection.origin;
      return {};
    case TemplateSelection::Kind::own: break;
  }
  const bool is_stored = model.place == ModelPlace::quarrel && model.template_text;  // Ollama's are not Jinja
  TemplateChoice choice =
      is_stored ? TemplateChoice{.source = *model.template_text} : choose_template(file, *tokenizer_);
  try {
    template_ = ChatTemplate::compile(std::move(choice.source));
    template_origin_ = choice.name.empty() ? "the model's own" : choice.name;
    if (is_stored) template_origin_ = "the store's";
  } catch (const Error& error) {
    template_problem_ = error.what();
    return fmt::format("the model's chat template cannot be used: {}", template_problem_);
  }
  return choice.name.empty() ? "" : fmt::format("the model has no chat template; using '{}'", choice.name);
}

// Rows of a prompt and a generated one, or a vector. It leaves nothing in the prefix cache.
void LoadedModel::warm_up(const std::function<void()>& on_warming) const {
  if (on_warming) on_warming();
  EngineRequest request;
  request.prompt = {0, 0};
  request.max_tokens = generates_ ? 2 : 0;
  request.pooled = !generates_;
  request.pooling = pooling_;
  request.use_cache = false;
  if (engine_->longest_text() <= std::ssize(request.prompt)) request.prompt.pop_back();
  const Engine::Submission submission = engine_->submit(std::move(request));
  require_accepted(submission.result);
  while (!submission.stream->done()) {
    const auto event = submission.stream->next_within(kWarming);
    if (!event) {
      if (on_warming) on_warming();
    } else if (event->kind == TokenEvent::Kind::finished) {
      require_finished(event->reason, event->error);
    }
  }
}

const Tokenizer& LoadedModel::require_tokenizer() const {
  if (tokenizer_ == nullptr) {
    fail(ErrorKind::unsupported, "the model's file has no vocabulary, so it takes token ids alone");
  }
  return *tokenizer_;
}

const ChatTemplate& LoadedModel::require_template() const {
  if (!template_) {
    fail(ErrorKind::unsupported, "the model has no chat template that can be used{}{}",
         template_problem_.empty() ? "" : ": ", template_problem_);
  }
  return *template_;
}

void LoadedModel::require_generation() const {
  if (generates_) return;
  fail(ErrorKind::unsupported, "this model ({}) embeds texts; it cannot generate text", printable(spec().architecture));
}

std::int32_t LoadedModel::vector_width(Pooling pooling) const noexcept {
  return pooling == Pooling::rank ? executor().model().embedding_width() : spec().width;
}

}  // namespace quarrel
