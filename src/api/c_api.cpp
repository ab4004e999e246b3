// The functions of quarrel_c.h, each a thin coat over quarrel.h.
#include <cstdint>
#include <memory>
#include <string>

#include "api/c_support.h"

namespace api = quarrel::api;

namespace {

// What all ways to generate share: options in, pieces out, a result at the end.
template <typename Generate>
quarrel_status generate(const quarrel_model* model, const quarrel_generate_options* options,
                        quarrel_piece_callback callback, void* user, quarrel_result** result, quarrel_error* error,
                        const Generate& work) noexcept {
  return api::run(error, [&] {
    if (result != nullptr) *result = nullptr;
    const api::Model& loaded = api::check_handle(model, "model").model;
    const api::GenerateOptions settings = api::generate_options_of(options);
    std::vector<quarrel_logprob> top;
    api::PieceCallback each;
    if (callback != nullptr) {
      each = [&](const api::Piece& piece) {
        top.clear();
        top.reserve(piece.top.size());
        for (const auto& [token, logprob] : piece.top) top.push_back({.token = token, .logprob = logprob});
        const quarrel_piece told{.size = sizeof(quarrel_piece),
                                 .token = piece.token,
                                 .logprob = piece.logprob,
                                 .top_count = static_cast<std::uint32_t>(top.size()),
                                 .text = api::text_of(piece.text),
                                 .top = top.data(),
                                 .answer = piece.answer};
        return callback(&told, user) != 0;
      };
    }
    std::vector<api::GenerateResult> answers = work(loaded, settings, each);
    if (result == nullptr) return;
    auto handle = std::make_unique<quarrel_result>();
    handle->answers.reserve(answers.size());
    for (api::GenerateResult& answer : answers) handle->answers.push_back(api::answer_of(std::move(answer)));
    *result = handle.release();
  });
}

template <typename Struct>
quarrel_status init_struct(Struct* options, std::size_t size, Struct defaults) noexcept {
  return api::run(nullptr, [&] {
    api::check_pointer(options, "the struct");
    if (size < sizeof defaults.size || size > api::kLargestStruct) {
      api::refuse(api::ErrorKind::usage, "the size of the struct cannot be {}", size);
    }
    const auto bytes = static_cast<std::uint32_t>(size);
    std::memcpy(static_cast<void*>(options), &bytes, sizeof bytes);
    api::write_struct(options, defaults, "the struct");
  });
}

}  // namespace

extern "C" {

uint32_t quarrel_abi_version(void) { return QUARREL_ABI_VERSION; }

const char* quarrel_version(void) { return api::version(); }

const char* quarrel_status_name(quarrel_status status) {
  switch (status) {
    case QUARREL_OK: return "ok";
    case QUARREL_USAGE: return "usage";
    case QUARREL_NOT_FOUND: return "not found";
    case QUARREL_BAD_FILE: return "bad file";
    case QUARREL_BAD_INPUT: return "bad input";
    case QUARREL_UNSUPPORTED: return "unsupported";
    case QUARREL_OUT_OF_MEMORY: return "out of memory";
    case QUARREL_IO: return "input or output";
    case QUARREL_CANCELLED: return "cancelled";
    case QUARREL_BUSY: return "busy";
    case QUARREL_FAILED: return "failed";
    case QUARREL_INTERNAL: return "internal";
    case QUARREL_TOO_SMALL: return "too small";
    default: return "unknown";
  }
}

quarrel_status quarrel_load_options_init(quarrel_load_options* options, size_t size) {
  quarrel_load_options defaults{};
  defaults.sequences = api::LoadOptions{}.sequences;
  return init_struct(options, size, defaults);
}

quarrel_status quarrel_generate_options_init(quarrel_generate_options* options, size_t size) {
  const api::GenerateOptions from{};
  quarrel_generate_options defaults{};
  defaults.max_tokens = from.max_tokens;
  defaults.temperature = from.temperature;
  defaults.top_k = from.top_k;
  defaults.top_p = from.top_p;
  defaults.min_p = from.min_p;
  defaults.repeat_penalty = from.repeat_penalty;
  defaults.presence_penalty = from.presence_penalty;
  defaults.frequency_penalty = from.frequency_penalty;
  defaults.penalty_window = from.penalty_window;
  defaults.answers = from.answers;
  return init_struct(options, size, defaults);
}

quarrel_status quarrel_model_load(quarrel_text name, const quarrel_load_options* options, quarrel_model** model,
                                  quarrel_error* error) {
  return api::run(error, [&] {
    api::check_pointer(model, "the place for the model") = nullptr;
    quarrel_load_options defaults;
    quarrel_load_options_init(&defaults, sizeof defaults);
    const quarrel_load_options given = api::read_struct(options, defaults, "the load options");
    if (given.reserved != 0) api::refuse(api::ErrorKind::unsupported, "a reserved field of the load options is set");
    api::LoadOptions settings{
        .threads = given.threads,
        .context = given.context,
        .sequences = given.sequences,
        .embeddings = given.embeddings != 0,
        .memory = given.memory,
        .chat_template = std::string(api::view_of(given.chat_template, "the chat template")),
    };
    const std::string_view device = api::view_of(given.device, "the device's name");
    if (!device.empty()) settings.device = device;
    if (given.progress != nullptr) {
      settings.progress = [&](std::uint64_t done, std::uint64_t total) {
        return given.progress(done, total, given.user) != 0;
      };
    }
    const std::string text(api::view_of(name, "the model's name"));
    if (text.empty()) api::refuse(api::ErrorKind::usage, "the model's name is empty");
    *model = new quarrel_model{.model = api::Model::load(text, settings)};
  });
}

void quarrel_model_free(quarrel_model* model) { api::free_handle(model); }

quarrel_status quarrel_model_get_info(const quarrel_model* model, quarrel_model_info* info, quarrel_error* error) {
  return api::run(error, [&] {
    const api::ModelInfo& from = api::check_handle(model, "model").model.info();
    const quarrel_model_info told{.size = sizeof(quarrel_model_info),
                                  .context = from.context,
                                  .vocabulary = from.vocabulary,
                                  .embedding_width = from.embedding_width,
                                  .generates = from.generates ? 1 : 0,
                                  .reserved = 0,
                                  .name = api::text_of(from.name),
                                  .architecture = api::text_of(from.architecture),
                                  .device = api::text_of(from.device)};
    api::write_struct(info, told, "the model's info");
  });
}

quarrel_status quarrel_tokenize(const quarrel_model* model, quarrel_text text, int add_special, quarrel_token* tokens,
                                size_t capacity, size_t* count, quarrel_error* error) {
  return api::run(error, [&] {
    size_t& told = api::check_pointer(count, "the place for the count");
    told = 0;
    const api::Model& loaded = api::check_handle(model, "model").model;
    api::write_array(loaded.tokenize(api::view_of(text, "the text"), add_special != 0), tokens, capacity, told);
  });
}

quarrel_status quarrel_detokenize(const quarrel_model* model, const quarrel_token* tokens, size_t count, char* text,
                                  size_t capacity, size_t* bytes, quarrel_error* error) {
  return api::run(error, [&] {
    size_t& told = api::check_pointer(bytes, "the place for the count");
    told = 0;
    const api::Model& loaded = api::check_handle(model, "model").model;
    api::write_array(loaded.detokenize(api::check_array(tokens, count, "the list of tokens")), text, capacity, told);
  });
}

quarrel_status quarrel_chat_prompt(const quarrel_model* model, const quarrel_message* messages, size_t message_count,
                                   quarrel_token* tokens, size_t capacity, size_t* count, quarrel_error* error) {
  return api::run(error, [&] {
    size_t& told = api::check_pointer(count, "the place for the count");
    told = 0;
    const api::Model& loaded = api::check_handle(model, "model").model;
    api::write_array(loaded.chat_prompt(api::messages_of(messages, message_count)).tokens, tokens, capacity, told);
  });
}

quarrel_status quarrel_generate(const quarrel_model* model, const quarrel_token* prompt, size_t count,
                                const quarrel_generate_options* options, quarrel_piece_callback callback, void* user,
                                quarrel_result** result, quarrel_error* error) {
  return generate(model, options, callback, user, result, error,
                  [&](const api::Model& loaded, const auto& settings, const auto& each) {
                    return loaded.generate_many(api::check_array(prompt, count, "the prompt"), settings, each);
                  });
}

quarrel_status quarrel_generate_text(const quarrel_model* model, quarrel_text prompt,
                                     const quarrel_generate_options* options, quarrel_piece_callback callback,
                                     void* user, quarrel_result** result, quarrel_error* error) {
  return generate(model, options, callback, user, result, error,
                  [&](const api::Model& loaded, const auto& settings, const auto& each) {
                    return loaded.generate_many(api::view_of(prompt, "the prompt"), settings, each);
                  });
}

quarrel_status quarrel_chat(const quarrel_model* model, const quarrel_message* messages, size_t message_count,
                            const quarrel_generate_options* options, quarrel_piece_callback callback, void* user,
                            quarrel_result** result, quarrel_error* error) {
  return generate(model, options, callback, user, result, error,
                  [&](const api::Model& loaded, const auto& settings, const auto& each) {
                    return loaded.chat_many(api::messages_of(messages, message_count), settings, each);
                  });
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
    const api::GenerateResult& from = api::answer_at(all, answer).result;
    const quarrel_result_info told{.size = sizeof(quarrel_result_info),
                                   .reason = static_cast<std::int32_t>(from.reason),
                                   .prompt_tokens = from.prompt_tokens,
                                   .cached_tokens = from.cached_tokens,
                                   .seed = from.seed,
                                   .text = api::text_of(from.text),
                                   .tokens = from.tokens.data(),
                                   .logprobs = from.logprobs.data(),
                                   .token_count = from.tokens.size(),
                                   .answer_count = all.answers.size()};
    api::write_struct(info, told, "the result's info");
  });
}

quarrel_status quarrel_result_get_answer_top(const quarrel_result* result, size_t answer, size_t index,
                                             const quarrel_logprob** top, size_t* count, quarrel_error* error) {
  return api::run(error, [&] {
    api::check_pointer(top, "the place for the list") = nullptr;
    api::check_pointer(count, "the place for the count") = 0;
    const auto& lists = api::answer_at(api::check_handle(result, "result"), answer).top;
    if (index >= lists.size()) {
      api::refuse(api::ErrorKind::bad_input, "there are {} lists of likely tokens, but that of {} was asked for",
                  lists.size(), index);
    }
    *top = lists[index].data();
    *count = lists[index].size();
  });
}

void quarrel_result_free(quarrel_result* result) { api::free_handle(result); }

quarrel_status quarrel_cancel_new(quarrel_cancel** cancel, quarrel_error* error) {
  return api::run(error, [&] {
    api::check_pointer(cancel, "the place for the handle") = nullptr;
    *cancel = new quarrel_cancel{};
  });
}

quarrel_status quarrel_cancel_now(const quarrel_cancel* cancel, quarrel_error* error) {
  return api::run(error, [&] { api::check_handle(cancel, "cancel handle").token.cancel(); });
}

void quarrel_cancel_free(quarrel_cancel* cancel) { api::free_handle(cancel); }

quarrel_status quarrel_embed(const quarrel_model* model, const quarrel_text* texts, size_t count, float* values,
                             size_t capacity, size_t* needed, quarrel_error* error) {
  return api::run(error, [&] {
    size_t& told = api::check_pointer(needed, "the place for the count");
    told = 0;
    const api::Model& loaded = api::check_handle(model, "model").model;
    std::vector<std::string> list;
    const auto given = api::check_array(texts, count, "the list of texts");
    list.reserve(given.size());
    for (const quarrel_text& text : given) list.emplace_back(api::view_of(text, "a text"));
    const auto width = static_cast<std::size_t>(loaded.info().embedding_width);
    told = width * list.size();
    if (told > capacity) throw api::TooSmall{.needed = told, .capacity = capacity};
    if (told > 0) api::check_pointer(values, "the array");
    float* next = values;
    for (const std::vector<float>& vector : loaded.embed(list)) next = std::copy(vector.begin(), vector.end(), next);
  });
}

}  // extern "C"

// The numbers of the two interfaces are the same.
static_assert(QUARREL_FINISH_STOP == static_cast<int>(api::FinishReason::stop));
static_assert(QUARREL_FINISH_LENGTH == static_cast<int>(api::FinishReason::length));
static_assert(QUARREL_FINISH_CONTEXT == static_cast<int>(api::FinishReason::context));
static_assert(QUARREL_FINISH_CANCELLED == static_cast<int>(api::FinishReason::cancelled));
static_assert(QUARREL_FINISH_TIMEOUT == static_cast<int>(api::FinishReason::timeout));
