// The C interface's values: errors, options, messages and answers as C++ has them.
#include <array>
#include <new>

#include "api/c_support.h"

namespace quarrel::api {
namespace {

quarrel_status status_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::usage: return QUARREL_USAGE;
    case ErrorKind::not_found: return QUARREL_NOT_FOUND;
    case ErrorKind::bad_file: return QUARREL_BAD_FILE;
    case ErrorKind::bad_input: return QUARREL_BAD_INPUT;
    case ErrorKind::unsupported: return QUARREL_UNSUPPORTED;
    case ErrorKind::out_of_memory: return QUARREL_OUT_OF_MEMORY;
    case ErrorKind::io: return QUARREL_IO;
    case ErrorKind::cancelled: return QUARREL_CANCELLED;
    case ErrorKind::busy: return QUARREL_BUSY;
    case ErrorKind::failed: return QUARREL_FAILED;
    case ErrorKind::internal: return QUARREL_INTERNAL;
  }
  return QUARREL_INTERNAL;
}

quarrel_status tell_and_give(quarrel_error* error, quarrel_status status, std::string_view message) noexcept {
  tell(error, status, message);
  return status;
}

}  // namespace

void tell(quarrel_error* error, quarrel_status status, std::string_view message) noexcept {
  if (error == nullptr) return;
  const std::size_t size = std::min<std::size_t>(error->size, sizeof(quarrel_error));
  constexpr std::size_t kMessage = offsetof(quarrel_error, message);
  if (size < kMessage) return;
  error->status = status;
  if (size == kMessage) return;
  std::size_t length = std::min(message.size(), size - kMessage - 1);
  // Not within a character.
  if (length < message.size()) {
    while (length > 0 && (static_cast<unsigned char>(message[length]) & 0xc0u) == 0x80u) --length;
  }
  std::copy_n(message.begin(), length, error->message);
  error->message[length] = '\0';
}

quarrel_status status_of_exception(quarrel_error* error) noexcept {
  try {
    throw;
  } catch (const TooSmall& small) {
    std::array<char, 96> text{};
    const auto end = fmt::format_to_n(text.data(), text.size(), "the array holds {}, but {} are needed", small.capacity,
                                      small.needed);
    return tell_and_give(error, QUARREL_TOO_SMALL, {text.data(), std::min(end.size, text.size())});
  } catch (const Error& failure) {
    return tell_and_give(error, status_of(failure.kind()), failure.what());
  } catch (const std::bad_alloc&) {
    return tell_and_give(error, QUARREL_OUT_OF_MEMORY, "there is not enough memory");
  } catch (const std::exception& failure) {
    return tell_and_give(error, QUARREL_INTERNAL, failure.what());
  } catch (...) {
    return tell_and_give(error, QUARREL_INTERNAL, "a callback threw something");
  }
}

quarrel_result::Answer answer_of(GenerateResult&& result) {
  quarrel_result::Answer answer;
  answer.top.reserve(result.top.size());
  for (const auto& likely : result.top) {
    auto& list = answer.top.emplace_back();
    list.reserve(likely.size());
    for (const auto& [token, logprob] : likely) list.push_back({.token = token, .logprob = logprob});
  }
  answer.result = std::move(result);
  return answer;
}

const quarrel_result::Answer& answer_at(const quarrel_result& result, std::size_t answer) {
  if (answer >= result.answers.size()) {
    refuse(ErrorKind::bad_input, "the result has {} answers, but number {} was asked for", result.answers.size(),
           answer);
  }
  return result.answers[answer];
}

GenerateOptions generate_options_of(const quarrel_generate_options* options) {
  quarrel_generate_options defaults;
  quarrel_generate_options_init(&defaults, sizeof defaults);
  const quarrel_generate_options given = read_struct(options, defaults, "the generate options");
  GenerateOptions result{.max_tokens = given.max_tokens,
                         .temperature = given.temperature,
                         .top_k = given.top_k,
                         .top_p = given.top_p,
                         .min_p = given.min_p,
                         .repeat_penalty = given.repeat_penalty,
                         .presence_penalty = given.presence_penalty,
                         .frequency_penalty = given.frequency_penalty,
                         .penalty_window = given.penalty_window,
                         .logprobs = given.logprobs,
                         .timeout = std::chrono::milliseconds(given.timeout_ms),
                         .answers = given.answers,
                         .best_of = given.best_of};
  if (given.has_seed != 0) result.seed = given.seed;
  const auto stops = check_array(given.stop, given.stop_count, "the list of stop strings");
  result.stop.reserve(stops.size());
  for (const quarrel_text& stop : stops) result.stop.emplace_back(view_of(stop, "a stop string"));
  if (given.has_stop_tokens != 0) {
    const auto tokens = check_array(given.stop_tokens, given.stop_token_count, "the list of stop tokens");
    result.stop_tokens.emplace(tokens.begin(), tokens.end());
  }
  if (given.cancel != nullptr) result.cancel = check_handle(given.cancel, "cancel handle").token;
  return result;
}

std::vector<Message> messages_of(const quarrel_message* messages, std::size_t count) {
  const auto list = check_array(messages, count, "the list of messages");
  std::vector<Message> result;
  result.reserve(list.size());
  for (const quarrel_message& message : list) {
    result.push_back({.role = std::string(view_of(message.role, "a message's role")),
                      .content = std::string(view_of(message.content, "a message's content"))});
  }
  return result;
}

}  // namespace quarrel::api
