// What is wanted, checked and made a request to the engine.
#include "session/ask.h"

#include "base/error.h"
#include "base/random_seed.h"
#include "session/loaded_model.h"

namespace quarrel {
namespace {

constexpr std::size_t kMostStops = 256;
constexpr std::size_t kLongestStop = 1u << 16;

void check_stops(const Ask& ask, const LoadedModel& model) {
  if (ask.stop.size() > kMostStops) {
    fail(ErrorKind::bad_input, "there are {} stop strings; {} are the most", ask.stop.size(), kMostStops);
  }
  for (const std::string& stop : ask.stop) {
    if (stop.size() <= kLongestStop) continue;
    fail(ErrorKind::bad_input, "a stop string has {} bytes; {} are the most", stop.size(), kLongestStop);
  }
  if (!ask.stop.empty() && model.tokenizer() == nullptr) {
    fail(ErrorKind::unsupported, "the model's file has no vocabulary, so there is no text to stop at");
  }
}

void check_ask(const Ask& ask, const LoadedModel& model) {
  if (ask.max_tokens < -1) fail(ErrorKind::bad_input, "max_tokens is -1 or more, not {}", ask.max_tokens);
  if (ask.max_tokens != 0 || ask.prompt_scores) model.require_generation();
  if (ask.timeout.count() < 0 || ask.patience.count() < 0) fail(ErrorKind::bad_input, "the timeout is negative");
  check_stops(ask, model);
  const std::int32_t most = model.engine().most_branches();
  if (ask.answers < 1 || ask.answers > most) {
    fail(ErrorKind::bad_input, "answers can be 1 to {}, not {}", most, ask.answers);
  }
  if (ask.best_of != 0 && (ask.best_of < ask.answers || ask.best_of > most)) {
    fail(ErrorKind::bad_input, "best_of can be {} (the answers asked for) to {}, or 0, not {}", ask.answers, most,
         ask.best_of);
  }
}

}  // namespace

std::int32_t branch_count(const Ask& ask) noexcept { return ask.best_of == 0 ? ask.answers : ask.best_of; }

EncodedChat render_chat(const LoadedModel& model, const ChatInput& input) {
  const Tokenizer& tokenizer = model.require_tokenizer();
  return encode_chat(tokenizer, model.require_template(), input);
}

std::vector<TokenId> encode_prompt(const LoadedModel& model, const Ask& ask) {
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&ask.prompt)) return *ids;
  if (const auto* chat = std::get_if<ChatInput>(&ask.prompt)) return render_chat(model, *chat).tokens;
  const Tokenizer& tokenizer = model.require_tokenizer();
  std::vector<TokenId> tokens = tokenizer.encode(std::get<std::string>(ask.prompt), {.parse_special = true});
  put_bos(tokenizer, tokens);
  return tokens;
}

EngineRequest request_for(const Ask& ask, const LoadedModel& model) {
  check_ask(ask, model);
  EngineRequest request;
  request.prompt = encode_prompt(model, ask);
  request.max_tokens = ask.max_tokens;
  if (ask.stop_tokens) {
    request.stop_tokens = *ask.stop_tokens;
  } else if (model.tokenizer() != nullptr) {
    request.stop_tokens = model.tokenizer()->special().end_of_generation;
  }
  request.branches = branch_count(ask);
  request.priority = ask.priority;
  request.overflow = ask.overflow;
  request.keep = ask.keep;
  request.key = ask.key;
  request.salt = ask.salt;
  request.pinned = ask.pinned;
  request.use_cache = ask.use_cache;
  request.tell_reading = ask.tell_reading;
  request.prompt_outputs = ask.prompt_scores ? PromptOutputs::scores : PromptOutputs::none;
  request.sampling = ask.sampling;
  request.sampling.seed = ask.seed ? *ask.seed : random_seed();
  request.top = ask.top;
  request.timeout = ask.timeout;
  request.patience = ask.patience;
  request.mask = ask.mask;
  return request;
}

}  // namespace quarrel
