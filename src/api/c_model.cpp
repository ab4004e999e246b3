// The functions of quarrel_c.h that load a model and say what can be known of it, each a thin coat over quarrel.h.
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include <nlohmann/json.hpp>

#include "api/c_support.h"

namespace api = quarrel::api;

namespace {

std::string name_of(quarrel_text name) {
  std::string text(api::view_of(name, "the model's name"));
  if (text.empty()) api::refuse(api::ErrorKind::usage, "the model's name is empty");
  return text;
}

std::unique_ptr<quarrel_model> handle_of(api::Model model) {
  auto handle = std::make_unique<quarrel_model>(quarrel_model{.model = std::move(model)});
  handle->metadata_keys = handle->model.metadata_keys();
  handle->recommended = handle->model.recommended();
  for (const std::string& stop : handle->recommended.stop) handle->recommended_stops.push_back(api::text_of(stop));
  try {
    handle->special = handle->model.special_tokens();
  } catch (const api::Error& error) {
    if (error.kind() != api::ErrorKind::unsupported) throw;  // it has no vocabulary
  }
  return handle;
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
    case QUARREL_NOTHING: return "nothing in time";
    case QUARREL_END: return "end";
    default: return "unknown";
  }
}

quarrel_status quarrel_model_load(quarrel_text name, const quarrel_load_options* options, quarrel_model** model,
                                  quarrel_error* error) {
  return api::run(error, [&] {
    api::check_pointer(model, "the place for the model") = nullptr;
    const api::LoadOptions settings = api::load_options_of(options);
    *model = handle_of(api::Model::load(name_of(name), settings)).release();
  });
}

quarrel_status quarrel_model_estimate(quarrel_text name, const quarrel_load_options* options,
                                      quarrel_memory_estimate* estimate, quarrel_error* error) {
  return api::run(error, [&] {
    const api::MemoryEstimate from = api::Model::estimate(name_of(name), api::load_options_of(options));
    const quarrel_memory_estimate result{.size = sizeof(quarrel_memory_estimate),
                                         .context = from.context,
                                         .trained_context = from.trained_context,
                                         .sequences = from.sequences,
                                         .total = from.total,
                                         .mapped = from.mapped,
                                         .weights = from.weights,
                                         .experts = from.experts,
                                         .kv = from.kv,
                                         .state = from.state,
                                         .workspace = from.workspace,
                                         .available = from.available};
    api::write_struct(estimate, result, "the estimate");
  });
}

void quarrel_model_free(quarrel_model* model) { api::free_handle(model); }

quarrel_status quarrel_model_get_info(const quarrel_model* model, quarrel_model_info* info, quarrel_error* error) {
  return api::run(error, [&] {
    const api::ModelInfo& from = api::check_handle(model, "model").model.info();
    const quarrel_model_info result{.size = sizeof(quarrel_model_info),
                                    .context = from.context,
                                    .vocabulary = from.vocabulary,
                                    .embedding_width = from.embedding_width,
                                    .generates = from.generates ? 1 : 0,
                                    .reserved = 0,
                                    .name = api::text_of(from.name),
                                    .architecture = api::text_of(from.architecture),
                                    .device = api::text_of(from.device),
                                    .path = api::text_of(from.path),
                                    .template_from = api::text_of(from.template_from),
                                    .trained_context = from.trained_context,
                                    .most_answers = from.most_answers,
                                    .pooling = 1 + static_cast<std::int32_t>(from.pooling),
                                    .embeds = from.embeds ? 1 : 0,
                                    .ranks = from.ranks ? 1 : 0,
                                    .reserved2 = 0,
                                    .load_seconds = from.load_seconds};
    api::write_struct(info, result, "the model's info");
  });
}

quarrel_status quarrel_model_get_metrics(const quarrel_model* model, quarrel_metrics* metrics, quarrel_error* error) {
  return api::run(error, [&] {
    const api::Metrics from = api::check_handle(model, "model").model.metrics();
    const quarrel_metrics result{.size = sizeof(quarrel_metrics),
                                 .running = from.running,
                                 .waiting = from.waiting,
                                 .returning = from.returning,
                                 .accepted = from.accepted,
                                 .finished = from.finished,
                                 .refused = from.refused,
                                 .waiting_tokens = from.waiting_tokens,
                                 .steps = from.steps,
                                 .failed_steps = from.failed_steps,
                                 .prompt_rows = from.prompt_rows,
                                 .generated_rows = from.generated_rows,
                                 .tokens = from.tokens,
                                 .preemptions = from.preemptions,
                                 .shifts = from.shifts,
                                 .cache_hit_tokens = from.cache_hit_tokens,
                                 .cache_miss_tokens = from.cache_miss_tokens,
                                 .blocks_total = from.blocks_total,
                                 .blocks_used = from.blocks_used,
                                 .blocks_cached = from.blocks_cached,
                                 .divergences = from.divergences,
                                 .kv_saturated = from.kv_saturated,
                                 .expert_hits = from.expert_hits,
                                 .expert_misses = from.expert_misses};
    api::write_struct(metrics, result, "the metrics");
  });
}

quarrel_status quarrel_model_get_special_tokens(const quarrel_model* model, quarrel_special_tokens* special,
                                                quarrel_error* error) {
  return api::run(error, [&] {
    const quarrel_model& handle = api::check_handle(model, "model");
    handle.model.special_tokens();  // throws where there is no vocabulary
    const api::SpecialTokens& from = handle.special;
    const quarrel_special_tokens result{
        .size = sizeof(quarrel_special_tokens),
        .bos = from.bos,
        .eos = from.eos,
        .eot = from.eot,
        .unknown = from.unknown,
        .separator = from.separator,
        .padding = from.padding,
        .cls = from.cls,
        .mask = from.mask,
        .add_bos = from.add_bos ? 1 : 0,
        .add_eos = from.add_eos ? 1 : 0,
        .reserved = 0,
        .end_of_generation = {.tokens = from.end_of_generation.data(), .count = from.end_of_generation.size()}};
    api::write_struct(special, result, "the special tokens");
  });
}

quarrel_status quarrel_model_get_recommended(const quarrel_model* model, quarrel_generate_options* options,
                                             quarrel_error* error) {
  return api::run(error, [&] {
    const quarrel_model& handle = api::check_handle(model, "model");
    handle.model.info();  // throws in a forked child
    quarrel_generate_options result = api::c_options_of(handle.recommended);
    result.stop = handle.recommended_stops.data();
    result.stop_count = handle.recommended_stops.size();
    api::write_struct(options, result, "the generate options");
  });
}

quarrel_status quarrel_model_get_metadata_key(const quarrel_model* model, size_t index, quarrel_text* key,
                                              quarrel_error* error) {
  return api::run(error, [&] {
    api::check_pointer(key, "the place for the key") = {.data = nullptr, .bytes = 0};
    const quarrel_model& handle = api::check_handle(model, "model");
    if (index >= handle.metadata_keys.size()) {
      api::refuse(api::ErrorKind::not_found, "the file has {} keys, but number {} was asked for",
                  handle.metadata_keys.size(), index);
    }
    *key = api::text_of(handle.metadata_keys[index]);
  });
}

quarrel_status quarrel_model_get_metadata(const quarrel_model* model, quarrel_text key, int32_t* kind, char* value,
                                          size_t capacity, size_t* bytes, quarrel_error* error) {
  return api::run(error, [&] {
    size_t& count = api::check_pointer(bytes, "the place for the count");
    count = 0;
    const std::string_view name = api::view_of(key, "the key");
    const auto found = api::check_handle(model, "model").model.metadata(name);
    if (!found) api::refuse(api::ErrorKind::not_found, "the file has no such key");
    const auto* text = std::get_if<std::string>(&*found);
    if (kind != nullptr) *kind = text != nullptr ? QUARREL_METADATA_TEXT : QUARREL_METADATA_JSON;
    if (text != nullptr) return api::write_array(*text, value, capacity, count);
    const auto to_json = [](const auto& from) -> nlohmann::json { return from; };
    const nlohmann::json json = std::visit(to_json, *found);
    api::write_array(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), value, capacity, count);
  });
}

quarrel_status quarrel_tokenize(const quarrel_model* model, quarrel_text text, int add_special, quarrel_token* tokens,
                                size_t capacity, size_t* count, quarrel_error* error) {
  return quarrel_tokenize_special(model, text, add_special, 0, tokens, capacity, count, error);
}

quarrel_status quarrel_tokenize_special(const quarrel_model* model, quarrel_text text, int add_special,
                                        int parse_special, quarrel_token* tokens, size_t capacity, size_t* count,
                                        quarrel_error* error) {
  return api::give_array(model, tokens, capacity, count, error, [&](const api::Model& loaded) {
    return loaded.tokenize(api::view_of(text, "the text"), add_special != 0, parse_special != 0);
  });
}

quarrel_status quarrel_detokenize(const quarrel_model* model, const quarrel_token* tokens, size_t count, char* text,
                                  size_t capacity, size_t* bytes, quarrel_error* error) {
  return quarrel_detokenize_special(model, tokens, count, 0, text, capacity, bytes, error);
}

quarrel_status quarrel_detokenize_special(const quarrel_model* model, const quarrel_token* tokens, size_t count,
                                          int show_special, char* text, size_t capacity, size_t* bytes,
                                          quarrel_error* error) {
  return api::give_array(model, text, capacity, bytes, error, [&](const api::Model& loaded) {
    return loaded.detokenize(api::check_array(tokens, count, "the list of tokens"), show_special != 0);
  });
}

quarrel_status quarrel_token_bytes(const quarrel_model* model, quarrel_token token, int show_special, char* bytes,
                                   size_t capacity, size_t* count, quarrel_error* error) {
  return api::give_array(model, bytes, capacity, count, error,
                         [&](const api::Model& loaded) { return loaded.token_bytes(token, show_special != 0); });
}

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

}  // extern "C"
