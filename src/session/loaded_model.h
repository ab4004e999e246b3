// A model that is ready to be used: file, vocabulary, chat template, what its makers recommend, and the engine that
// runs it. The one place where these are put together. Whoever uses a model holds a shared_ptr to it; the last one to
// let go ends the engine, from whatever thread: a sink of that very engine included.
//
// Threads: immutable once loaded but for the engine, which sees to its threads itself. Any thread may use it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "base/log.h"
#include "engine/engine.h"
#include "gguf/file.h"
#include "session/recommended_sampling.h"
#include "store/store.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quarrel {

class LoadedModel;

// Which chat template conversations are rendered with.
struct TemplateSelection {
  enum class Kind : std::uint8_t {
    own,    // what Quarrel's store keeps, else the file's own, else the built-in one that its vocabulary was made for
    none,   // conversations are refused, texts are not
    named,  // the built-in one called `value`; Error(usage) for a name that is none
    text,   // `value` is the template
  };
  Kind kind = Kind::own;
  std::string value = {};
  std::string origin = {};  // of `text`: where it came from, in words
};

struct LoadOptions {
  ExecutorOptions executor = {};  // encoders get what `settled` says
  EngineOptions engine = {};
  // False: ids alone are used, so the file's vocabulary is not even read.
  bool vocabulary = true;
  TemplateSelection chat_template = {};
  // Where no context is asked for, the one that is recommended is used.
  bool recommended_context = false;
  // A small request is answered before anybody gets the model, so that no other pays for pages that nobody has touched
  // yet. Error(bad_file) if that fails.
  bool warm_up = false;
  std::function<void()> on_warming = {};  // called when it begins and now and then while it goes on; throwing ends it
  // Ends a model that nobody holds any more, on a thread that may wait for the model's engine; called from whatever
  // thread lets go last. None: it is ended there and then, or by a thread made for it where that is the engine's own.
  std::function<void(std::unique_ptr<LoadedModel>)> retire = {};
};

class LoadedModel {
 public:
  // Throws Error: what opening, reading the vocabulary, compiling a template that was asked for and loading throw. A
  // template of the file's own that is broken is warned of, and only refuses conversations.
  static std::shared_ptr<LoadedModel> load(const ResolvedModel& model, std::shared_ptr<Device> device,
                                           const LoadOptions& options, Log& log);
  // A file by its path.
  static std::shared_ptr<LoadedModel> load(const std::filesystem::path& path, std::shared_ptr<Device> device,
                                           const LoadOptions& options, Log& log);
  // An open one; `model` says what else is known of it, its path included.
  static std::shared_ptr<LoadedModel> load(GgufFile file, const ResolvedModel& model, std::shared_ptr<Device> device,
                                           const LoadOptions& options, Log& log);
  ~LoadedModel();
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  const std::string& name() const noexcept { return name_; }
  const std::filesystem::path& path() const noexcept { return path_; }
  const GgufFile& file() const noexcept { return executor().file(); }
  const ModelSpec& spec() const noexcept { return executor().spec(); }
  std::int32_t context() const noexcept { return executor().context(); }

  // Null: the file has no vocabulary, or nobody wanted it.
  const Tokenizer* tokenizer() const noexcept { return tokenizer_.get(); }
  const Tokenizer& require_tokenizer() const;  // throws Error(unsupported)
  // Null: none was wanted, or it cannot be used.
  const ChatTemplate* chat_template() const noexcept { return template_ ? &*template_ : nullptr; }
  const ChatTemplate& require_template() const;  // throws Error(unsupported) with the reason
  const std::string& template_origin() const noexcept { return template_origin_; }  // in words; empty: there is none
  const RecommendedSampling& recommended() const noexcept { return recommended_; }
  // What the store has a conversation begin with, where it does not say so itself; empty: nothing.
  const std::string& system() const noexcept { return system_; }

  // What it can do. A decoder does the first two.
  bool generates() const noexcept { return generates_; }
  bool embeds() const noexcept { return pooling_ != Pooling::rank; }
  bool ranks() const noexcept { return pooling_ == Pooling::rank; }
  void require_generation() const;  // throws Error(unsupported)
  // How a text becomes one vector, where nobody asks for another way: what was asked for at load, what the file says,
  // or the mean of an encoder's rows and the last row of a decoder.
  Pooling pooling() const noexcept { return pooling_; }
  std::int32_t vector_width(Pooling pooling) const noexcept;  // values of a vector; scores of a text where it ranks

  Engine& engine() const noexcept { return *engine_; }
  const Executor& executor() const noexcept { return engine_->executor(); }
  const Device& device() const noexcept { return *device_; }
  const std::string& device_description() const noexcept { return device_description_; }
  double load_seconds() const noexcept { return load_seconds_; }

 private:
  LoadedModel() = default;
  // Returns a warning for whoever wants to chat with the model; empty without one.
  std::string compile_template(const GgufFile& file, const TemplateSelection& selection, const ResolvedModel& model);
  void warm_up(const std::function<void()>& on_warming) const;

  std::string name_;
  std::filesystem::path path_;
  std::shared_ptr<Device> device_;
  std::string device_description_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  std::string template_origin_;
  std::string template_problem_;
  RecommendedSampling recommended_;
  std::string system_;
  Pooling pooling_ = Pooling::none;
  bool generates_ = false;
  double load_seconds_ = 0.0;
  std::unique_ptr<Engine> engine_;  // ends first
};

bool has_vocabulary(const GgufFile& file) noexcept;

// What to tell somebody who asks for so long a context (0: the model's own); nothing if the model was made for it.
std::optional<std::string> context_warning(const GgufFile& file, std::int32_t context);

// The options with what is decided by the file: an encoder has room for many short texts in a step. For estimates that
// must agree with a load.
ExecutorOptions settled(const GgufFile& file, const ExecutorOptions& options);

// The way a text becomes a vector where no request says it: see LoadedModel::pooling.
Pooling settled_pooling(const GgufFile& file, const ExecutorOptions& options);

}  // namespace quarrel
