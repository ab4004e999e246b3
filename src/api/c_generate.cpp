// The functions of quarrel_c.h that wait for answers, and those that read results.
#include <cstdint>
#include <memory>
#include <string>

#include "api/c_support.h"

namespace quarrel::api {
namespace {

std::vector<std::vector<quarrel_logprob>> lists_of(const std::vector<std::vector<TokenLogprob>>& lists) {
  std::vector<std::vector<quarrel_logprob>> result;
  result.reserve(lists.size());
  for (const std::vector<TokenLogprob>& list : lists) result.push_back(logprobs_of(list));
  return result;
}

// Of a result whose kind was checked. Throws for an answer that it does not have.
const quarrel_result::Answer& answer_at(const quarrel_result& result, std::size_t answer) {
  if (answer >= result.answers.size()) {
    refuse(ErrorKind::bad_input, "the result has {} answers, but number {} was asked for", result.answers.size(),
           answer);
  }
  return result.answers[answer];
}

void give_list(const std::vector<std::vector<quarrel_logprob>>& lists, std::size_t index, const quarrel_logprob** top,
               std::size_t* count) {
  if (index >= lists.size()) {
    refuse(ErrorKind::bad_input, "there are {} lists of likely tokens, but that of {} was asked for", lists.size(),
           index);
  }
  *top = lists[index].data();
  *count = lists[index].size();
}

PieceCallback callback_of(quarrel_piece_callback callback, void* user) {
  if (callback == nullptr) return {};
  return [callback, user](const Piece& piece) {
    const std::vector<quarrel_logprob> top = logprobs_of(piece.top);
    const quarrel_piece shown{.size = sizeof(quarrel_piece),
                              .token = piece.token,
                              .logprob = piece.logprob,
                              .top_count = static_cast<std::uint32_t>(top.size()),
                              .text = text_of(piece.text),
                              .top = top.data(),
                              .answer = piece.answer};
    return callback(&shown, user) != 0;
  };
}

// What all ways to generate share: options in, pieces out, a result at the end.
template <typename ReadPrompt>
quarrel_status generate(const quarrel_model* model, const quarrel_generate_options* options,
                        quarrel_piece_callback callback, void* user, quarrel_result** result, quarrel_error* error,
                        const ReadPrompt& read_prompt) noexcept {
  return run(error, [&] {
    if (result != nullptr) *result = nullptr;
    const Model& loaded = check_handle(model, "model").model;
    const GenerateOptions settings = generate_options_of(options);
    const Prompt prompt = read_prompt();
    std::vector<GenerateResult> answers = loaded.generate_many(prompt, settings, callback_of(callback, user));
    if (answers.size() == 1 && answers.front().reason == FinishReason::failed) {
      refuse(ErrorKind::failed, "{}", answers.front().error);
    }
    if (result != nullptr) *result = result_of(std::move(answers)).release();
  });
}

}  // namespace

std::vector<quarrel_logprob> logprobs_of(std::span<const TokenLogprob> logprobs) {
  std::vector<quarrel_logprob> result;
  result.reserve(logprobs.size());
  for (const auto& [token, logprob] : logprobs) result.push_back({.token = token, .logprob = logprob});
  return result;
}

std::unique_ptr<quarrel_result> result_of(std::vector<GenerateResult> answers) {
  auto handle = std::make_unique<quarrel_result>();
  handle->answers.reserve(answers.size());
  for (GenerateResult& answer : answers) {
    quarrel_result::Answer& place = handle->answers.emplace_back();
    place.top = lists_of(answer.top);
    place.prompt_logprobs = logprobs_of(answer.prompt_logprobs);
    place.prompt_top = lists_of(answer.prompt_top);
    place.result = std::move(answer);
  }
  return handle;
}

}  // namespace quarrel::api

namespace api = quarrel::api;

extern "C" {

quarrel_status quarrel_chat_prompt(const quarrel_model* model, const quarrel_message* messages, size_t message_count,
                                   quarrel_token* tokens, size_t capacity, size_t* count, quarrel_error* error) {
  return api::give_array(model, tokens, capacity, count, error, [&](const api::Model& loaded) {
    return loaded.chat_prompt(api::messages_of(messages, message_count)).tokens;
  });
}

quarrel_status quarrel_chat_tokens(const quarrel_model* model, const quarrel_chat_input* chat, quarrel_token* tokens,
                                   size_t capacity, size_t* count, quarrel_error* error) {
  return api::give_array(model, tokens, capacity, count, error,
                         [&](const api::Model& loaded) { return loaded.chat_prompt(api::chat_of(chat)).tokens; });
}

quarrel_status quarrel_chat_text(const quarrel_model* model, const quarrel_chat_input* chat, char* text,
                                 size_t capacity, size_t* bytes, quarrel_error* error) {
  return api::give_array(model, text, capacity, bytes, error,
                         [&](const api::Model& loaded) { return loaded.chat_prompt(api::chat_of(chat)).text; });
}

quarrel_status quarrel_generate(const quarrel_model* model, const quarrel_token* prompt, size_t count,
                                const quarrel_generate_options* options, quarrel_piece_callback callback, void* user,
                                quarrel_result** result, quarrel_error* error) {
  return api::generate(model, options, callback, user, result, error,
                       [&]() -> api::Prompt { return api::check_array(prompt, count, "the prompt"); });
}

quarrel_status quarrel_generate_text(const quarrel_model* model, quarrel_text prompt,
                                     const quarrel_generate_options* options, quarrel_piece_callback callback,
                                     void* user, quarrel_result** result, quarrel_error* error) {
  return api::generate(model, options, callback, user, result, error,
                       [&]() -> api::Prompt { return api::view_of(prompt, "the prompt"); });
}

quarrel_status quarrel_chat(const quarrel_model* model, const quarrel_message* messages, size_t message_count,
                            const quarrel_generate_options* options, quarrel_piece_callback callback, void* user,
                            quarrel_result** result, quarrel_error* error) {
  return api::generate(model, options, callback, user, result, error,
                       [&]() -> api::Prompt { return api::messages_of(messages, message_count); });
}

quarrel_status quarrel_generate_prompt(const quarrel_model* model, const quarrel_prompt* prompt,
                                       const quarrel_generate_options* options, quarrel_piece_callback callback,
                                       void* user, quarrel_result** result, quarrel_error* error) {
  return api::generate(model, options, callback, user, result, error, [&] { return api::prompt_of(prompt); });
}

quarrel_status quarrel_result_get_info(const quarrel_result* result, quarrel_result_info* info, quarrel_error* error) {
  return quarrel_result_get_answer_info(result, 0, info, error);
}

quarrel_status quarrel_result_get_top(const quarrel_result* result, size_t index, const quarrel_logprob** top,
                                      size_t* count, quarrel_error* error) {
  return quarrel_result_get_answer_top(result, 0, index, top, count, error);
}

quarrel_status quarrel_result_get_answer_info(const quarrel_result* result, size_t answer, quarrel_result_info* info,
                                              quarrel_error* error) {
  return api::run(error, [&] {
    const quarrel_result& all = api::check_handle(result, "result");
    const quarrel_result::Answer& place = api::answer_at(all, answer);
    const api::GenerateResult& from = place.result;
    const quarrel_result_info shown{.size = sizeof(quarrel_result_info),
                                    .reason = static_cast<std::int32_t>(from.reason),
                                    .prompt_tokens = from.prompt_tokens,
                                    .cached_tokens = from.cached_tokens,
                                    .seed = from.seed,
                                    .text = api::text_of(from.text),
                                    .tokens = from.tokens.data(),
                                    .logprobs = from.logprobs.data(),
                                    .token_count = from.tokens.size(),
                                    .answer_count = all.answers.size(),
                                    .error = api::text_of(from.error),
                                    .prompt_logprobs = place.prompt_logprobs.data(),
                                    .prompt_logprob_count = place.prompt_logprobs.size(),
                                    .queue_seconds = from.queue_seconds,
                                    .prompt_seconds = from.prompt_seconds,
                                    .generate_seconds = from.generate_seconds};
    api::write_struct(info, shown, "the result's info");
  });
}

quarrel_status quarrel_result_get_answer_top(const quarrel_result* result, size_t answer, size_t index,
                                             const quarrel_logprob** top, size_t* count, quarrel_error* error) {
  return api::run(error, [&] {
    api::check_pointer(top, "the place for the list") = nullptr;
    api::check_pointer(count, "the place for the count") = 0;
    api::give_list(api::answer_at(api::check_handle(result, "result"), answer).top, index, top, count);
  });
}

quarrel_status quarrel_result_get_prompt_top(const quarrel_result* result, size_t index, const quarrel_logprob** top,
                                             size_t* count, quarrel_error* error) {
  return api::run(error, [&] {
    api::check_pointer(top, "the place for the list") = nullptr;
    api::check_pointer(count, "the place for the count") = 0;
    api::give_list(api::answer_at(api::check_handle(result, "result"), 0).prompt_top, index, top, count);
  });
}

void quarrel_result_free(quarrel_result* result) { api::free_handle(result); }

}  // extern "C"

// The numbers of the two interfaces are the same.
static_assert(QUARREL_FINISH_STOP == static_cast<int>(api::FinishReason::stop));
static_assert(QUARREL_FINISH_LENGTH == static_cast<int>(api::FinishReason::length));
static_assert(QUARREL_FINISH_CONTEXT == static_cast<int>(api::FinishReason::context));
static_assert(QUARREL_FINISH_CANCELLED == static_cast<int>(api::FinishReason::cancelled));
static_assert(QUARREL_FINISH_TIMEOUT == static_cast<int>(api::FinishReason::timeout));
static_assert(QUARREL_FINISH_FAILED == static_cast<int>(api::FinishReason::failed));
static_assert(QUARREL_FINISH_NO_TOKEN == static_cast<int>(api::FinishReason::no_token));
