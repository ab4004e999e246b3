#include "app/regress_checks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "app/input.h"
#include "app/local_chat.h"
#include "app/perplexity.h"
#include "app/token_list.h"
#include "app/workbench.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/printable.h"
#include "session/generation.h"
#include "session/scoring.h"
#include "store/store.h"

namespace quarrel {
namespace {

using Clock = std::chrono::steady_clock;

// A path beside the suite, or what the stores call so.
ResolvedModel find_model(const std::string& name, const std::filesystem::path& folder) {
  const ModelStore store(StorePaths::from_environment());
  std::error_code ignored;
  const std::filesystem::path beside = folder / name;
  return store.resolve(std::filesystem::is_regular_file(beside, ignored) ? beside.string() : name);
}

// In place of whatever the command line named.
void run_on(const std::string& backend, ModelOptions& options) {
  options.backend = backend;
  options.device.clear();
}

ModelOptions with(ModelOptions options, const CheckOptions& check) {
  if (!check.backend.empty()) run_on(check.backend, options);
  if (!check.kv.empty()) options.kv = check.kv;
  if (!check.activations.empty()) options.activations = check.activations;
  return options;
}

// The model as it was loaded last, because its checks mostly want the same options.
class KeptModel {
 public:
  KeptModel(std::filesystem::path path, Log& log) : path_(std::move(path)), log_(log) {}

  std::shared_ptr<LoadedModel> get(const ModelOptions& options) {
    const std::string key =
        fmt::format("{} {} {} {}", options.backend, options.device, options.kv, options.activations);
    if (model_ == nullptr || key != key_) {
      model_.reset();
      model_ = load_model(GgufFile::open(path_), options, {.executor = executor_options(options)}, log_);
      model_->require_generation();
      key_ = key;
    }
    return model_;
  }

 private:
  const std::filesystem::path path_;
  Log& log_;
  std::string key_;
  std::shared_ptr<LoadedModel> model_;
};

std::vector<TokenId> tokens_for(const SuiteTokens& source, const LoadedModel& model) {
  constexpr std::uint64_t kSeed = 1;
  std::vector<TokenId> tokens = source.ids;
  if (!source.file.empty()) tokens = read_token_list("@" + source.file.string());
  if (!source.text.empty()) tokens = model.require_tokenizer().encode(source.text, {.add_special = true});
  for (std::int32_t i = 0; i < source.random; ++i) {
    tokens.push_back(static_cast<TokenId>(uniform(kSeed, static_cast<std::uint64_t>(i)) * model.spec().vocabulary));
  }
  if (tokens.empty()) fail(ErrorKind::bad_input, "the text has no tokens");
  check_token_ids(tokens, model.spec().vocabulary);
  check_fits_context(std::ssize(tokens), model.context());
  return tokens;
}

double nmse_against_file(LogitReader& reader, const std::filesystem::path& path, std::size_t values,
                         const Interrupts& interrupts) {
  const MappedFile golden = MappedFile::open(path);
  if (golden.bytes().size() != values * sizeof(float)) {
    fail(ErrorKind::bad_input, "'{}' has {} bytes, but the logits of this check have {}", printable(path.string(), 256),
         golden.bytes().size(), values * sizeof(float));
  }
  RunningNmse nmse;
  std::vector<float> truth;
  std::size_t at = 0;
  for (auto rows = reader.next(); !rows.empty(); rows = reader.next()) {
    check_interrupt(interrupts);
    truth.resize(rows.size());
    std::memcpy(truth.data(), golden.bytes().data() + at, rows.size_bytes());
    at += rows.size_bytes();
    nmse.add(rows, truth);
  }
  return nmse.value();
}

double nmse_against_reader(LogitReader& reader, LogitReader& truth, const Interrupts& interrupts) {
  RunningNmse nmse;
  for (auto rows = reader.next(); !rows.empty(); rows = reader.next()) {
    check_interrupt(interrupts);
    nmse.add(rows, truth.next());
  }
  return nmse.value();
}

CheckResult run_logits(const LogitCheck& check, KeptModel& kept, KeptModel& reference, const RegressContext& context) {
  const ModelOptions options = with(context.options, check.options);
  const auto model = kept.get(options);
  const std::vector<TokenId> tokens = tokens_for(check.tokens, *model);
  const ScoreOptions how{.row_class = row_class_of(check.options.row_class)};
  LogitReader reader(model, tokens, how);
  double nmse = 0.0;
  if (check.golden.empty()) {
    ModelOptions exact = options;
    run_on("reference", exact);
    exact.kv = "f32";
    LogitReader truth(reference.get(exact), tokens, how);
    nmse = nmse_against_reader(reader, truth, context.interrupts);
  } else {
    const std::size_t values = tokens.size() * static_cast<std::size_t>(model->spec().vocabulary);
    nmse = nmse_against_file(reader, check.golden, values, context.interrupts);
  }
  const std::string against = check.golden.empty() ? "the reference backend" : check.golden.filename().string();
  return {.check = "logits",
          .subject = fmt::format("{} tokens against {}", tokens.size(), printable(against)),
          .passed = nmse <= check.max_nmse,
          .summary = fmt::format("NMSE {:.3g} (limit {:.3g})", nmse, check.max_nmse),
          .details = {{"nmse", nmse}, {"max_nmse", check.max_nmse}, {"tokens", tokens.size()}}};
}

CheckResult run_perplexity(const PerplexityCheck& check, KeptModel& kept, const RegressContext& context) {
  const auto model = kept.get(with(context.options, check.options));
  check_fits_context(check.window, model->context());
  const Tokenizer& tokenizer = model->require_tokenizer();
  const std::vector<TokenId> tokens = perplexity_tokens(tokenizer, read_input(check.text.string()));
  check_token_ids(tokens, model->spec().vocabulary);
  const Perplexity result =
      measure_perplexity(tokens, {.window = check.window, .windows = check.windows, .bos = window_bos(tokenizer)},
                         model_scorer(model, row_class_of(check.options.row_class)),
                         [&](const Perplexity&, std::int32_t) { check_interrupt(context.interrupts); });
  return {.check = "perplexity",
          .subject = printable(check.text.filename().string()),
          .passed = result.value() <= check.max && result.value() >= check.min,
          .summary = fmt::format("{:.4f} ± {:.4f} over {} windows (limit {})", result.value(), result.error(),
                                 result.windows.size(), check.max),
          .details = {{"perplexity", result.value()},
                      {"error", result.error()},
                      {"max", check.max},
                      {"min", check.min},
                      {"windows", result.windows}}};
}

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

CheckResult run_answer(const SuitePrompt& prompt, const CoherenceLimits& limits, ChatSession& session,
                       const RegressContext& context) {
  ChatParameters parameters;
  parameters.sampling = SamplingParams{};
  parameters.sampling.temperature = static_cast<float>(prompt.temperature);
  parameters.sampling.repeat_penalty = static_cast<float>(prompt.repeat_penalty);
  parameters.seed = prompt.seed;
  parameters.max_tokens = prompt.max_tokens;
  const ReplySink sink{.text = [](std::string_view) {},
                       .cancelled = [&] { return context.interrupts.requested().load(); }};
  const Reply reply =
      prompt.raw ? session.complete(prompt.text, parameters, sink)
                 : session.answer({.system = prompt.system, .messages = {{.role = "user", .content = prompt.text}}},
                                  parameters, sink);
  check_interrupt(context.interrupts);
  const Coherence coherence = measure_coherence(reply.text);
  std::vector<std::string> faults = coherence_faults(coherence, limits);
  for (const std::string& wanted : prompt.must_contain) {
    if (lower(reply.text).find(lower(wanted)) == std::string::npos) {
      faults.push_back(fmt::format("'{}' does not occur", printable(wanted)));
    }
  }
  return {
      .check = "answer",
      .subject = prompt.name,
      .passed = faults.empty(),
      .summary = fmt::format("{}; answer: {}", faults.empty() ? "coherent" : fmt::format("{}", fmt::join(faults, ", ")),
                             printable(reply.text, 120)),
      .details = {{"text", reply.text},
                  {"tokens", reply.tokens},
                  {"finish", reason_name(reply.reason)},
                  {"faults", faults},
                  {"looped", coherence.looped},
                  {"repeated", coherence.repeated},
                  {"foreign", coherence.foreign},
                  {"mixed_words", coherence.mixed_words},
                  {"noise", coherence.noise},
                  {"letters", coherence.letters}}};
}

// Runs one check and hands its result on; what it throws becomes a miss, all but an interruption.
void guarded(const std::string& model, const CheckResult& plan, const ResultSink& sink,
             const std::function<CheckResult()>& check) {
  CheckResult result = plan;
  const auto start = Clock::now();
  try {
    result = check();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled) throw;
    result.summary = error.what();
    result.details = {{"error", error.what()}};
  } catch (const std::bad_alloc&) {
    result.summary = "out of memory";
    result.details = {{"error", result.summary}};
  }
  result.model = model;
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  sink(result);
}

}  // namespace

void run_checks(const SuiteModel& model, const Suite& suite, const RegressContext& context, const ResultSink& sink) {
  ResolvedModel resolved;
  try {
    resolved = find_model(model.name, context.folder);
  } catch (const Error& error) {
    if (model.optional && error.kind() == ErrorKind::not_found) {
      sink({.model = model.name, .check = "load", .skipped = true, .summary = "there is no such model here"});
      return;
    }
    sink({.model = model.name, .check = "load", .summary = error.what(), .details = {{"error", error.what()}}});
    return;
  }
  {
    KeptModel loaded(resolved.path, context.log);
    KeptModel reference(resolved.path, context.log);
    for (const LogitCheck& check : model.logits) {
      guarded(model.name, {.check = "logits"}, sink, [&] { return run_logits(check, loaded, reference, context); });
    }
    for (const PerplexityCheck& check : model.perplexity) {
      guarded(model.name, {.check = "perplexity", .subject = printable(check.text.filename().string())}, sink,
              [&] { return run_perplexity(check, loaded, context); });
    }
  }
  std::unique_ptr<ChatSession> session;
  for (const std::size_t index : model.prompts) {
    const SuitePrompt& prompt = suite.prompts[index];
    guarded(model.name, {.check = "answer", .subject = prompt.name}, sink, [&] {
      if (!session) {
        ChatOptions options;
        options.model = context.options;
        session = load_chat(resolved, options, open_device(options.model, context.log), context.log);
      }
      return run_answer(prompt, suite.coherence, *session, context);
    });
  }
}

}  // namespace quarrel
