#include "server/known_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "server/question.h"

namespace quarrel {
namespace {

constexpr std::string_view kAnswersAreText = "answers are text";
constexpr std::string_view kTextsAreWritten = "models write texts, no images";

// Without tools this is so anyway.
bool calls_nothing(const Json& value) { return value == "none" || value == "auto"; }
bool is_none(const Json& value) { return value == "none"; }
bool is_zero(const Json& value) { return value == 0; }
bool is_one(const Json& value) { return value == 1; }

// What the server decided when it was started, what is so in any case, and what only a service for many would use.
constexpr KnownField without_effect(std::string_view name) { return {.name = name, .kind = FieldKind::no_effect}; }
// What another form offers.
constexpr KnownField of_another_form(std::string_view name, Nothing nothing = Nothing::none,
                                     bool (*is_default)(const Json&) = nullptr) {
  return {.name = name, .is_default = is_default, .nothing = nothing};
}

bool asks_for_nothing(const Json& value, Nothing nothing) {
  if (value.is_null() || nothing == Nothing::any) return is_neutral(value);
  const Nothing kind = value.is_boolean()  ? Nothing::flag
                       : value.is_string() ? Nothing::text
                       : value.is_array()  ? Nothing::list
                       : value.is_object() ? Nothing::object
                                           : Nothing::none;
  return (static_cast<unsigned>(kind) & static_cast<unsigned>(nothing)) != 0 && is_neutral(value);
}

constexpr std::array kKnownFields = {
    without_effect("user"),
    without_effect("metadata"),
    without_effect("store"),
    without_effect("service_tier"),
    without_effect("safety_identifier"),
    without_effect("prompt_cache_key"),
    without_effect("prompt_cache_options"),
    without_effect("prompt_cache_retention"),
    without_effect("cache_prompt"),  // an answer has the same bits with the cache and without
    without_effect("parallel_tool_calls"),
    without_effect("num_batch"),
    without_effect("num_gpu"),
    without_effect("main_gpu"),
    without_effect("num_thread"),
    without_effect("numa"),
    without_effect("low_vram"),
    without_effect("f16_kv"),
    without_effect("use_mmap"),
    without_effect("use_mlock"),
    without_effect("logits_all"),
    without_effect("vocab_only"),
    without_effect("embedding_only"),
    without_effect("draft_num_predict"),

    KnownField{.name = "tools", .help = kNotOfferedYet},
    KnownField{.name = "tool_choice", .help = kNotOfferedYet, .is_default = calls_nothing},
    KnownField{.name = "functions", .help = kNotOfferedYet},
    KnownField{.name = "function_call", .help = kNotOfferedYet, .is_default = calls_nothing},
    KnownField{.name = "reasoning", .help = kNotOfferedYet},
    KnownField{.name = "reasoning_effort", .help = kNotOfferedYet, .is_default = is_none},
    KnownField{.name = "think", .help = kNotOfferedYet},
    KnownField{.name = "enable_thinking",
               .help = "`chat_template_kwargs` of /v1/chat/completions has what a model's template knows"},
    KnownField{.name = "format", .help = kNotOfferedYet},
    KnownField{.name = "response_format",
               .help = kNotOfferedYet,
               .is_default = [](const Json& v) { return v.is_object() && v == Json{{"type", "text"}}; }},
    KnownField{.name = "grammar", .help = kNotOfferedYet},
    KnownField{.name = "json_schema", .help = kNotOfferedYet},
    KnownField{.name = "modalities",
               .help = kAnswersAreText,
               .is_default = [](const Json& v) { return v.is_array() && v.size() == 1 && v.front() == "text"; }},
    KnownField{.name = "audio", .help = kAnswersAreText},
    KnownField{.name = "images", .help = kTextsAreRead},
    KnownField{.name = "width", .help = kTextsAreWritten, .is_default = is_zero},
    KnownField{.name = "height", .help = kTextsAreWritten, .is_default = is_zero},
    KnownField{.name = "steps", .help = kTextsAreWritten, .is_default = is_zero},
    KnownField{.name = "prediction", .help = "answers are not predicted from outside"},
    KnownField{.name = "verbosity",
               .help = "say in the prompt how long the answer is to be",
               .is_default = [](const Json& v) { return v == "medium"; }},
    KnownField{.name = "moderation", .help = "nothing is moderated here"},
    KnownField{.name = "web_search_options", .help = "nothing is searched for"},
    KnownField{.name = "suffix", .help = "texts are continued, not filled in"},
    KnownField{.name = "template", .help = "the model's own is used"},
    KnownField{.name = "keep_alive", .help = kStays},
    KnownField{.name = "ttl", .help = kStays},
    KnownField{.name = "dry_multiplier", .help = "it is not among the ways to draw answers", .is_default = is_zero},
    KnownField{.name = "xtc_probability", .help = "it is not among the ways to draw answers", .is_default = is_zero},

    of_another_form("stream", Nothing::flag),
    of_another_form("stream_options", Nothing::object),
    of_another_form("system", Nothing::text),
    of_another_form("raw", Nothing::flag),
    of_another_form("context", Nothing::list),
    of_another_form("options", Nothing::object),
    of_another_form("shift", Nothing::flag),
    of_another_form("truncate", Nothing::flag),
    of_another_form("max_tokens"),
    of_another_form("max_completion_tokens"),
    of_another_form("num_predict"),
    of_another_form("num_ctx"),
    of_another_form("num_keep"),
    of_another_form("temperature"),
    of_another_form("topk"),
    of_another_form("top_k"),
    of_another_form("topp"),
    of_another_form("top_p"),
    of_another_form("minp"),
    of_another_form("min_p"),
    of_another_form("typical_p"),
    of_another_form("repeat_penalty"),
    of_another_form("repetition_penalty"),
    of_another_form("repeat_last_n"),
    of_another_form("presence_penalty"),
    of_another_form("frequency_penalty"),
    of_another_form("penalize_newline", Nothing::flag),
    of_another_form("tfs_z", Nothing::none, is_one),
    of_another_form("mirostat", Nothing::none, is_zero),
    of_another_form("mirostat_tau"),
    of_another_form("mirostat_eta"),
    of_another_form("logit_bias", Nothing::object),
    of_another_form("logprobs", Nothing::flag),
    of_another_form("top_logprobs", Nothing::none, is_zero),
    of_another_form("seed"),
    of_another_form("stop", Nothing::text_or_list),
    of_another_form("n", Nothing::none, is_one),
    of_another_form("best_of", Nothing::none, is_one),
    of_another_form("echo", Nothing::flag),
    of_another_form("chat_template_kwargs", Nothing::object),
    of_another_form("retrieval", Nothing::object),
    of_another_form("continue", Nothing::flag),
    of_another_form("progress", Nothing::flag),
    of_another_form("resume", Nothing::flag),
    of_another_form("encoding_format", Nothing::text, [](const Json& v) { return v == "float"; }),
    of_another_form("dimensions", Nothing::none, is_zero),
    of_another_form("normalize", Nothing::flag),
};

// What is asked itself: in a form that does not read it, it would be an answer to nothing.
constexpr std::array<std::string_view, 3> kQuestions = {"messages", "prompt", "input"};

}  // namespace

std::span<const KnownField> known_fields() noexcept { return kKnownFields; }

bool take_known_field(std::string_view name, const Json& value) {
  if (std::ranges::find(kQuestions, name) != kQuestions.end()) return value.is_null();
  const auto found = std::ranges::find(kKnownFields, name, &KnownField::name);
  if (found == kKnownFields.end()) return false;
  if (found->kind == FieldKind::no_effect || asks_for_nothing(value, found->nothing)) return true;
  if (found->is_default != nullptr && found->is_default(value)) return true;
  if (found->help.empty()) return false;
  throw unsupported_field(std::string(name), fmt::format("'{}' is not supported: {}", name, found->help));
}

void append_known_names(std::vector<std::string_view>& names) {
  for (const KnownField& field : kKnownFields) {
    if (field.kind == FieldKind::no_effect || !field.help.empty()) names.push_back(field.name);
  }
}

}  // namespace quarrel
