#include "server/native_request.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "server/question.h"
#include "server/schema.h"

namespace quarrel {
namespace {

using NativeField = Field<NativeRequest>;

// "topk" is the name that Quarrel always had, "top_k" what its guide and everybody else writes: both are one field.
template <void (*read)(const Json&, NativeRequest&)>
constexpr NativeField number(std::string_view name, double least, double most, std::string_view help) {
  return {.name = name, .kind = FieldKind::number, .least = least, .most = most, .help = help, .read = read};
}
template <void (*read)(const Json&, NativeRequest&)>
constexpr NativeField integer(std::string_view name, double least, double most, std::string_view help) {
  return {.name = name, .kind = FieldKind::integer, .least = least, .most = most, .help = help, .read = read};
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kSpellings = {
    {{"topk", "top_k"}, {"topp", "top_p"}, {"minp", "min_p"}, {"repeat_penalty", "repetition_penalty"}}};

constexpr std::string_view kTopK = "draws from this many of the likeliest tokens; 0: from all";
constexpr std::string_view kTopP = "draws from the likeliest tokens that together have this probability";
constexpr std::string_view kRepeatPenalty = "makes tokens of the last `repeat_last_n` less likely; 1: not at all";
constexpr std::string_view kMinP = "leaves out tokens less likely than this share of the likeliest one";

void read_top_k(const Json& v, NativeRequest& r) { r.options.top_k = as_integer(v); }
void read_top_p(const Json& v, NativeRequest& r) { r.options.top_p = as_float(v); }
void read_min_p(const Json& v, NativeRequest& r) { r.options.min_p = as_float(v); }
void read_typical_p(const Json& v, NativeRequest& r) { r.options.typical_p = as_float(v); }
void read_temperature(const Json& v, NativeRequest& r) { r.options.temperature = as_float(v); }
void read_repeat_penalty(const Json& v, NativeRequest& r) { r.options.repeat_penalty = as_float(v); }
void read_repeat_last_n(const Json& v, NativeRequest& r) { r.options.penalty_window = as_integer(v); }
void read_mirostat_kind(const Json& v, NativeRequest& r) { r.options.mirostat = read_mirostat(v); }
void read_mirostat_tau(const Json& v, NativeRequest& r) { r.options.mirostat_tau = as_float(v); }
void read_mirostat_eta(const Json& v, NativeRequest& r) { r.options.mirostat_eta = as_float(v); }
void read_presence_penalty(const Json& v, NativeRequest& r) { r.options.presence_penalty = as_float(v); }
void read_frequency_penalty(const Json& v, NativeRequest& r) { r.options.frequency_penalty = as_float(v); }
void read_max_tokens(const Json& v, NativeRequest& r) { r.options.max_tokens = as_integer(v); }
void read_seed(const Json& v, NativeRequest& r) { r.options.seed = static_cast<std::uint64_t>(v.get<double>()); }

void read_resume(const Json& value, NativeRequest& request) {
  if (value.is_boolean()) {
    request.resume = value.get<bool>();
    return;
  }
  if (value.is_string()) request.reattach = read_resume_point(value.get_ref<const std::string&>());
  if (!request.reattach) {
    throw invalid_field("resume", "'resume' is true, false, or where an answer is taken up again: \"<id>:<event>\"");
  }
}

Json resume_schema() {
  return schema::either({schema::boolean(), schema::text("\"<id>:<event>\": takes such an answer up after that event")},
                        "the answer may outlive its connection; for answers token by token");
}

// Ollama's form has it on the same path, as a text or a number.
void refuse_keep_alive(const Json& value, NativeRequest&) {
  if (as_text(value).empty()) return;
  throw unsupported_field("keep_alive", fmt::format("'keep_alive' is not supported: {}", kStays));
}

constexpr std::array kFields = {
    NativeField{.name = "model",
                .kind = FieldKind::text,
                .help = "a name that GET /v1/models lists; without it, the server's default",
                .read = [](const Json& v, NativeRequest& r) { r.model = as_text(v); }},
    NativeField{.name = "keep_alive",
                .kind = FieldKind::text,
                .help = "none: the server's settings say how long a model stays",
                .read = refuse_keep_alive},
    NativeField{.name = "prompt",
                .kind = FieldKind::text,
                .help = "the text to answer",
                .read = [](const Json& v, NativeRequest& r) { r.prompt = as_text(v); }},
    NativeField{.name = "messages",
                .help = "a conversation, in place of a prompt",
                .read = [](const Json& v, NativeRequest& r) { r.messages = read_conversation(v); },
                .schema = conversation_schema},
    number<read_temperature>("temperature", 0, 2, "how freely answers are drawn; 0: always the likeliest token"),
    integer<read_top_k>("topk", 0, kMostTokens, kTopK),
    integer<read_top_k>("top_k", 0, kMostTokens, kTopK),
    number<read_top_p>("topp", 0, 1, kTopP),
    number<read_top_p>("top_p", 0, 1, kTopP),
    number<read_min_p>("minp", 0, 1, kMinP),
    number<read_min_p>("min_p", 0, 1, kMinP),
    number<read_typical_p>("typical_p", 0, 1, "draws from the tokens whose surprise is closest to what is expected"),
    number<read_repeat_penalty>("repeat_penalty", 0.01, 10, kRepeatPenalty),
    number<read_repeat_penalty>("repetition_penalty", 0.01, 10, kRepeatPenalty),
    integer<read_repeat_last_n>("repeat_last_n", -1, kMostTokens, "how far the penalties look back; -1: over all"),
    number<read_presence_penalty>("presence_penalty", -2, 2, "makes tokens that came before less likely"),
    number<read_frequency_penalty>("frequency_penalty", -2, 2, "the same for each time that they came"),
    integer<read_mirostat_kind>("mirostat", 0, 2, "0: off; 2: steers towards an even surprise"),
    number<read_mirostat_tau>("mirostat_tau", 0, 100, "the surprise that is aimed at"),
    number<read_mirostat_eta>("mirostat_eta", 0, 100, "how fast it is steered"),
    NativeField{.name = "logit_bias",
                .help = "token ids with what is added to their logits",
                .read = [](const Json& v, NativeRequest& r) { r.logit_bias = read_logit_bias(v); },
                .schema = logit_bias_schema},
    integer<read_max_tokens>("max_tokens", -1, kMostTokens, "the answer's length; -1: until the context is full"),
    integer<read_seed>("seed", 0, kMostSeed, "the same seed, the same answer"),
    NativeField{.name = "stop",
                .help = "texts that end the answer before they come",
                .read = [](const Json& v, NativeRequest& r) { r.options.stop = read_stop_strings(v); },
                .schema = stop_strings_schema},
    NativeField{.name = "stream",
                .kind = FieldKind::boolean,
                .help = "whether the answer comes token by token: true for /api/stream, false for /api/generate",
                .read = [](const Json& v, NativeRequest& r) { r.stream = as_flag(v); }},
    NativeField{
        .name = "continue",
        .kind = FieldKind::boolean,
        .help = "the last of the messages is the assistant's: the beginning of the answer, which goes on from there",
        .read = [](const Json& v, NativeRequest& r) { r.go_on = as_flag(v); }},
    NativeField{.name = "progress",
                .kind = FieldKind::boolean,
                .help =
                    "tells how many are ahead in the queue, and after each step how much of the prompt is read; for "
                    "answers token by token",
                .read = [](const Json& v, NativeRequest& r) { r.progress = as_flag(v); }},
    NativeField{.name = "retrieval",
                .help = "texts of a vector store that the question is asked with; the answer tells its `sources`",
                .read = [](const Json& v, NativeRequest& r) { r.retrieval = read_retrieval(v); },
                .schema = retrieval_schema},
    NativeField{.name = "resume",
                .help = "the answer may outlive its connection; for answers token by token",
                .read = read_resume,
                .schema = resume_schema},
    NativeField{.name = "response_format",
                .help = "only `{\"type\": \"text\"}`",
                .read = [](const Json& v, NativeRequest&) { check_response_format(v); },
                .schema = response_format_schema},
};

}  // namespace

Json native_request_schema() { return schema::question_of<NativeRequest>("GenerateRequest", {}, kFields); }

NativeRequest read_native_request(const Json& body) {
  auto request = read_request<NativeRequest>(body, kFields);
  for (const auto& [old, name] : kSpellings) require_one_spelling(body, old, name);
  if (request.reattach) {
    if (body.size() > 1) throw invalid_field("resume", "'resume' with an answer's id stands alone: the rest is known");
    return request;
  }
  if (request.messages.is_null() == request.prompt.empty()) {
    throw invalid_field("prompt", "give either 'prompt' or 'messages', and not both");
  }
  if (request.go_on && (request.messages.is_null() || request.messages.back()["role"] != "assistant")) {
    throw invalid_field("continue", "'continue' needs 'messages' whose last is the assistant's");
  }
  return request;
}

namespace {

// A conversation whose last message is where the answer begins.
ChatInput with_beginning(Json messages) {
  const Json last = messages.back();
  messages.erase(messages.size() - 1);
  return {.messages = std::move(messages), .answer_start = last["content"].is_string() ? as_text(last["content"]) : ""};
}

}  // namespace

Ask ask_of(const NativeRequest& request, const LoadedModel& model) {
  Ask ask;
  if (request.go_on) {
    ask.prompt = with_beginning(with_system(model.system(), request.messages));
  } else if (!request.messages.is_null()) {
    ask.prompt = ChatInput{.messages = with_system(model.system(), request.messages)};
  } else if (model.chat_template() != nullptr) {
    ask.prompt = ChatInput{.messages = with_system(model.system(), asked_by_user(request.prompt))};
  } else {
    ask.prompt = request.prompt;
  }
  ask.tell_reading = request.progress;
  apply_options(ask, request.options, model);
  apply_logit_bias(ask, request.logit_bias, model);
  return ask;
}

}  // namespace quarrel
