// A model that is ready to be used: file, vocabulary, chat template, what its makers recommend, and the engine that
// runs it. The one place where these are put together. Every user of a model holds a shared_ptr to it; releasing the
// last one ends the engine, on any thread, even in a sink of that same engine.
//
// Threads: immutable once loaded except for the engine, which is thread-safe itself. Any thread may use it.
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
    named,  // the built-in one called `value`; Error(usage) for an unknown name
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
  // The device is the one to run on: place_model() has chosen it.
  bool has_device = false;
  // Use the recommended context where none is asked for.
  bool recommended_context = false;
  // Answer a small request before anybody gets the model, so that no real request pays for the first touch of its
  // pages. Error(bad_file) if that fails.
  bool warm_up = false;
  std::function<void()> on_warming = {};  // called at its start and from time to time while it runs; throwing ends it
  // Destroys a model that nobody holds any more, on a thread that may wait for the model's engine; called by the thread
  // that released it last. None: that thread destroys it, or a new one if that thread is the engine's own.
  std::function<void(std::unique_ptr<LoadedModel>)> retire = {};
};

class LoadedModel {
 public:
  // Throws Error: what opening, reading the vocabulary, compiling a template that was asked for and loading throw. If
  // the file's own template is broken, there is a warning, and only conversations are refused.
  static std::shared_ptr<LoadedModel> load(const ResolvedModel& model, std::shared_ptr<Device> device,
                                           const LoadOptions& options, Log& log);
  // A file by its path.
  static std::shared_ptr<LoadedModel> load(const std::filesystem::path& path, std::shared_ptr<Device> device,
                                           const LoadOptions& options, Log& log);
  // A file that is already open; `model` says what else is known about it, including its path.
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
  // The store's system prompt, for conversations without one of their own; empty: none.
  const std::string& system() const noexcept { return system_; }

  // What it can do. A decoder does the first two.
  bool generates() const noexcept { return generates_; }
  bool embeds() const noexcept { return pooling_ != Pooling::rank; }
  bool ranks() const noexcept { return pooling_ == Pooling::rank; }
  void require_generation() const;  // throws Error(unsupported)
  // How a text becomes one vector unless a request says otherwise: what was asked for at load, else what the file says,
  // else the mean of an encoder's rows or the last row of a decoder.
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

// A warning for a context of this length (0: the model's own); nothing if the model was made for it.
std::optional<std::string> context_warning(const GgufFile& file, std::int32_t context);

// The options completed by what the file decides: an encoder gets room for many short texts in a step. Estimates use it
// too, so that they agree with a load.
ExecutorOptions settled(const GgufFile& file, const ExecutorOptions& options);

// How a text becomes a vector unless a request says otherwise: see LoadedModel::pooling.
Pooling settled_pooling(const GgufFile& file, const ExecutorOptions& options);

}  // namespace quarrel
