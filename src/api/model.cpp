#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "api/model_impl.h"
#include "backend/create.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/printable.h"
#include "model/architectures.h"
#include "quarrel_version.h"
#include "store/store.h"
#include "text/chat_prompt.h"

namespace quarrel::api {
namespace {

constexpr std::int32_t kMostThreads = 4096;
constexpr std::int32_t kMostSequences = 1024;

// Lines to the user's callback, where there is one. What it throws is nobody's business here.
class CallbackLog : public Log {
 public:
  CallbackLog(const std::function<void(std::string_view)>& warning, Caught& caught)
      : warning_(warning), caught_(caught) {}

  void write(LogLevel level, std::string_view line) override {
    if (!warning_ || level < LogLevel::warning) return;
    const bool went_well = caught_.call([&] {
      warning_(line);
      return true;
    });
    if (!went_well) refuse(ErrorKind::cancelled, "the warning's callback threw");
  }

 private:
  const std::function<void(std::string_view)>& warning_;
  Caught& caught_;
};

void check_range(const char* what, std::int32_t value, std::int32_t least, std::int32_t most) {
  if (value < least || value > most) {
    refuse(ErrorKind::usage, "{} can be {} to {}, not {}", what, least, most, value);
  }
}

ExecutorOptions executor_options(const LoadOptions& options, Caught& caught) {
  ExecutorOptions result{.context = options.context, .sequences = options.sequences};
  if (options.memory > 0) result.memory_budget = options.memory;
  if (options.progress) {
    result.on_load = [&](std::uint64_t done, std::uint64_t total) {
      if (!caught.call([&] { return options.progress(done, total); })) {
        refuse(ErrorKind::cancelled, "loading was cancelled");
      }
    };
  }
  return result;
}

bool has_vocabulary(const GgufFile& file) { return file.find("tokenizer.ggml.tokens") != nullptr; }

}  // namespace

const char* version() noexcept { return QUARREL_VERSION; }

Model::Impl::Impl(const std::string& name, const LoadOptions& options, Caught& caught) {
  check_range("the number of threads", options.threads, 0, kMostThreads);
  check_range("the number of sequences", options.sequences, 1, kMostSequences);
  check_range("the context", options.context, 0, std::numeric_limits<std::int32_t>::max());
  CallbackLog log(options.warning, caught);
  const ResolvedModel resolved = ModelStore(StorePaths::from_environment()).resolve(name);
  GgufFile file = GgufFile::open(resolved.path);
  const ModelSpec spec = read_spec(file, options.context);
  device_ = make_device(
      {.backend = options.device, .threads = options.threads, .isa = environment("QUARREL_ISA").value_or("")});
  info = {.name = resolved.name,
          .architecture = spec.architecture,
          .device = device_->description(),
          .vocabulary = spec.vocabulary,
          .generates = spec.has_head && !options.embeddings};
  const ExecutorOptions settings = executor_options(options, caught);
  if (!info.generates) {
    embedder_ = std::make_unique<Embedder>(std::move(file), *device_, EmbedOptions{.executor = settings}, log);
    tokenizer_ = embedder_->tokenizer();
    info.context = embedder_->executor().context();
    info.embedding_width = embedder_->embedding_dim();
    return;
  }
  if (has_vocabulary(file)) {
    own_tokenizer_ = Tokenizer::load(file, log);
    tokenizer_ = own_tokenizer_.get();
    load_template(file, options, log);
  }
  executor_ = std::make_unique<Executor>(std::move(file), *device_, settings);
  info.context = executor_->context();
  engine_ = std::make_unique<Engine>(*executor_);
}

// A model whose own template is broken can still continue texts, so only a template that was asked for ends the load.
void Model::Impl::load_template(const GgufFile& file, const LoadOptions& options, Log& log) {
  if (!options.chat_template.empty()) {
    chat_template_ = ChatTemplate::compile(options.chat_template);
    return;
  }
  TemplateChoice choice = choose_template(file, *tokenizer_);
  if (!choice.name.empty()) log.warn("the model has no chat template; using '{}'", choice.name);
  try {
    chat_template_ = ChatTemplate::compile(std::move(choice.source));
  } catch (const quarrel::Error& error) {
    template_problem_ = error.what();
    log.warn("the model's chat template cannot be used: {}", template_problem_);
  }
}

const Tokenizer& Model::Impl::require_tokenizer() const {
  if (tokenizer_ == nullptr) {
    refuse(ErrorKind::unsupported, "the model's file has no vocabulary, so it takes token ids alone");
  }
  return *tokenizer_;
}

ChatPrompt Model::Impl::chat_prompt(std::span<const Message> messages) const {
  const Tokenizer& tokenizer = require_tokenizer();
  if (!chat_template_) {
    refuse(ErrorKind::unsupported, "the model has no chat template that can be used{}{}",
           template_problem_.empty() ? "" : ": ", template_problem_);
  }
  if (messages.empty()) refuse(ErrorKind::bad_input, "there are no messages");
  auto list = nlohmann::ordered_json::array();
  for (const Message& message : messages) list.push_back({{"role", message.role}, {"content", message.content}});
  EncodedChat encoded = encode_chat(tokenizer, *chat_template_, list, TemplateClock::now());
  return {.text = std::move(encoded.text), .tokens = std::move(encoded.tokens)};
}

std::vector<Token> Model::Impl::encode_prompt(std::string_view text) const {
  const Tokenizer& tokenizer = require_tokenizer();
  std::vector<Token> tokens = tokenizer.encode(text, {.parse_special = true});
  put_bos(tokenizer, tokens);
  return tokens;
}

std::vector<std::vector<float>> Model::Impl::embed(std::span<const std::string> texts) {
  if (!embedder_) {
    refuse(ErrorKind::unsupported, "this model ({}) was loaded to generate: load it for embeddings",
           printable(info.architecture));
  }
  const std::scoped_lock lock(embedding_);
  std::vector<Embedding> embeddings = embedder_->embed(texts);
  std::vector<std::vector<float>> vectors;
  vectors.reserve(embeddings.size());
  for (Embedding& embedding : embeddings) vectors.push_back(std::move(embedding.values));
  return vectors;
}

Model Model::load(const std::string& name, const LoadOptions& options) {
  Caught caught;
  try {
    return guarded([&] { return Model(std::make_shared<Impl>(name, options, caught)); });
  } catch (const Error&) {
    caught.rethrow();
    throw;
  }
}

Model::Impl& Model::impl() const {
  if (impl_ == nullptr) refuse(ErrorKind::usage, "the model was moved elsewhere");
  return *impl_;
}

const ModelInfo& Model::info() const { return impl().info; }

std::vector<Token> Model::tokenize(std::string_view text, bool add_special) const {
  return guarded([&] { return impl().require_tokenizer().encode(text, {.add_special = add_special}); });
}

std::string Model::detokenize(std::span<const Token> tokens) const {
  return guarded([&] { return impl().require_tokenizer().decode(tokens); });
}

ChatPrompt Model::chat_prompt(std::span<const Message> messages) const {
  return guarded([&] { return impl().chat_prompt(messages); });
}

std::vector<GenerateResult> Model::generate_many(std::span<const Token> prompt, const GenerateOptions& options,
                                                 const PieceCallback& callback) const {
  const Model kept = *this;  // a callback may let go of the last other copy
  Caught caught;
  auto results = guarded([&] { return kept.impl().generate(prompt, options, callback, caught); });
  caught.rethrow();
  return results;
}

std::vector<GenerateResult> Model::generate_many(std::string_view prompt, const GenerateOptions& options,
                                                 const PieceCallback& callback) const {
  const std::vector<Token> tokens = guarded([&] { return impl().encode_prompt(prompt); });
  return generate_many(tokens, options, callback);
}

std::vector<GenerateResult> Model::chat_many(std::span<const Message> messages, const GenerateOptions& options,
                                             const PieceCallback& callback) const {
  return generate_many(chat_prompt(messages).tokens, options, callback);
}

GenerateResult Model::generate(std::span<const Token> prompt, const GenerateOptions& options,
                               const PieceCallback& callback) const {
  if (options.answers != 1) {
    refuse(ErrorKind::bad_input, "{} answers are asked for, but this call gives one: generate_many gives several",
           options.answers);
  }
  return std::move(generate_many(prompt, options, callback).front());
}

GenerateResult Model::generate(std::string_view prompt, const GenerateOptions& options,
                               const PieceCallback& callback) const {
  const std::vector<Token> tokens = guarded([&] { return impl().encode_prompt(prompt); });
  return generate(tokens, options, callback);
}

GenerateResult Model::chat(std::span<const Message> messages, const GenerateOptions& options,
                           const PieceCallback& callback) const {
  return generate(chat_prompt(messages).tokens, options, callback);
}

std::vector<std::vector<float>> Model::embed(std::span<const std::string> texts) const {
  return guarded([&] { return impl().embed(texts); });
}

}  // namespace quarrel::api
