#include "server/ollama_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "backend/sampling.h"
#include "base/printable.h"
#include "server/question.h"
#include "server/schema.h"

namespace quarrel {
namespace {

constexpr double kForeverSeconds = 100.0 * 365 * 24 * 3600;  // whoever asks for more means forever

void read_seed(const Json& value, OllamaRequest& request) {
  const auto seed = static_cast<std::int64_t>(value.get<double>());
  request.any_seed = seed < 0;
  if (seed >= 0) request.options.seed = static_cast<std::uint64_t>(seed);
}

// Both are gone from llama.cpp, which is as if they had these values.
void read_tail_free(const Json& value, OllamaRequest&) {
  if (value.get<double>() != 1.0) throw unsupported_field("tfs_z", "'tfs_z' other than 1 is not supported");
}
void read_penalize_newline(const Json& value, OllamaRequest&) {
  if (!as_flag(value)) throw unsupported_field("penalize_newline", "'penalize_newline': false is not supported");
}

using OllamaField = Field<OllamaRequest>;

#define QUARREL_SET(member, convert) [](const Json& v, OllamaRequest& r) { r.member = convert(v); }
constexpr std::array kOptions = {
    OllamaField{.name = "num_predict",
                .kind = FieldKind::integer,
                .least = -2,
                .most = kMostTokens,
                .help = "the answer's length; -1 and -2: until the context is full",
                // -2: as many as the context leaves, which is -1 here
                .read = [](const Json& v, OllamaRequest& r) { r.options.max_tokens = std::max(as_integer(v), -1); }},
    OllamaField{.name = "num_ctx",
                .kind = FieldKind::integer,
                .least = 1,
                .most = kMostTokens,
                .help = "a context that the model must have",
                .read = QUARREL_SET(options.context, as_integer)},
    OllamaField{.name = "num_keep",
                .kind = FieldKind::integer,
                .least = -1,
                .most = kMostTokens,
                .help = "a full context forgets its older half behind so many first tokens of the prompt, and the "
                        "answer goes on; -1: behind all of them",
                .read = QUARREL_SET(options.keep, as_integer)},
    OllamaField{.name = "temperature",
                .kind = FieldKind::number,
                .least = 0,
                .most = 100,
                .help = "how freely answers are drawn; 0: always the likeliest token",
                .read = QUARREL_SET(options.temperature, as_float)},
    OllamaField{.name = "top_k",
                .kind = FieldKind::integer,
                .least = -1,
                .most = kMostTokens,
                .help = "draws from this many of the likeliest tokens; 0: from all",
                .read = [](const Json& v, OllamaRequest& r) { r.options.top_k = std::max(as_integer(v), 0); }},
    OllamaField{.name = "top_p",
                .kind = FieldKind::number,
                .least = 0,
                .most = 1,
                .help = "draws from the likeliest tokens that together have this probability",
                .read = QUARREL_SET(options.top_p, as_float)},
    OllamaField{.name = "min_p",
                .kind = FieldKind::number,
                .least = 0,
                .most = 1,
                .help = "leaves out tokens less likely than this share of the likeliest one",
                .read = QUARREL_SET(options.min_p, as_float)},
    OllamaField{.name = "typical_p",
                .kind = FieldKind::number,
                .least = 0,
                .most = 1,
                .help = "draws from the tokens whose surprise is nearest to the expected one, up to this probability",
                .read = QUARREL_SET(options.typical_p, as_float)},
    OllamaField{.name = "repeat_penalty",
                .kind = FieldKind::number,
                .least = 0.01,
                .most = 10,
                .help = "makes tokens of the last `repeat_last_n` less likely; 1: not at all",
                .read = QUARREL_SET(options.repeat_penalty, as_float)},
    OllamaField{.name = "repeat_last_n",
                .kind = FieldKind::integer,
                .least = -1,
                .most = kMostTokens,
                .help = "how far the penalties look back; -1: over all",
                .read = QUARREL_SET(options.penalty_window, as_integer)},
    OllamaField{.name = "presence_penalty",
                .kind = FieldKind::number,
                .least = -100,
                .most = 100,
                .help = "makes tokens that have come less likely",
                .read = QUARREL_SET(options.presence_penalty, as_float)},
    OllamaField{.name = "frequency_penalty",
                .kind = FieldKind::number,
                .least = -100,
                .most = 100,
                .help = "makes tokens less likely the oftener they have come",
                .read = QUARREL_SET(options.frequency_penalty, as_float)},
    OllamaField{.name = "mirostat",
                .kind = FieldKind::integer,
                .least = 0,
                .most = 2,
                .help = "0: off; 2: steers towards an even surprise",
                .read = QUARREL_SET(options.mirostat, read_mirostat)},
    OllamaField{.name = "mirostat_tau",
                .kind = FieldKind::number,
                .least = 0,
                .most = 100,
                .help = "the surprise that is aimed at",
                .read = QUARREL_SET(options.mirostat_tau, as_float)},
    OllamaField{.name = "mirostat_eta",
                .kind = FieldKind::number,
                .least = 0,
                .most = 100,
                .help = "how fast it is steered",
                .read = QUARREL_SET(options.mirostat_eta, as_float)},
    OllamaField{.name = "seed",
                .kind = FieldKind::integer,
                .least = -kMostSeed,
                .most = kMostSeed,
                .help = "the same seed, the same answer; below 0: another one each time",
                .read = read_seed},
    OllamaField{.name = "stop",
                .help = "texts that end the answer before they come",
                .read = QUARREL_SET(options.stop, read_stop_strings),
                .schema = stop_strings_schema},
    OllamaField{.name = "tfs_z",
                .kind = FieldKind::number,
                .help = "only 1, which is off",
                .read = read_tail_free,
                .schema = [] { return Json{{"type", "number"}, {"const", 1}}; }},
    OllamaField{.name = "penalize_newline",
                .kind = FieldKind::boolean,
                .help = "only true",
                .read = read_penalize_newline,
                .schema = [] { return Json{{"type", "boolean"}, {"const", true}}; }},
    // How the machine is used was decided when the server was started.
    OllamaField{.name = "num_batch", .kind = FieldKind::no_effect},
    OllamaField{.name = "num_gpu", .kind = FieldKind::no_effect},
    OllamaField{.name = "main_gpu", .kind = FieldKind::no_effect},
    OllamaField{.name = "num_thread", .kind = FieldKind::no_effect},
    OllamaField{.name = "numa", .kind = FieldKind::no_effect},
    OllamaField{.name = "low_vram", .kind = FieldKind::no_effect},
    OllamaField{.name = "f16_kv", .kind = FieldKind::no_effect},
    OllamaField{.name = "use_mmap", .kind = FieldKind::no_effect},
    OllamaField{.name = "use_mlock", .kind = FieldKind::no_effect},
    OllamaField{.name = "logits_all", .kind = FieldKind::no_effect},
    OllamaField{.name = "vocab_only", .kind = FieldKind::no_effect},
    OllamaField{.name = "embedding_only", .kind = FieldKind::no_effect},
    OllamaField{.name = "draft_num_predict", .kind = FieldKind::no_effect},
};

void read_options(const Json& value, OllamaRequest& request) {
  if (!value.is_object()) throw invalid_field("options", "'options' must be an object");
  read_fields<OllamaRequest>(value, kOptions, request);
}

}  // namespace

Json ollama_options_schema() { return schema::request_of<OllamaRequest>("OllamaOptions", {}, kOptions); }
Json keep_alive_schema() { return schema::either({schema::number(), schema::text()}); }

namespace {

void read_context(const Json& value, OllamaRequest& request) {
  if (!value.is_array()) throw invalid_field("context", "'context' must be a list of token ids");
  request.context = read_token_ids(value, "context");
}

struct Message {
  Json json = Json::object();
};

// What a message of a conversation may have. Templates know the calls of tools; who made them is another matter.
void read_tool_calls(const Json& value, Message& message) {
  if (!value.is_array() || !std::ranges::all_of(value, &Json::is_object)) {
    throw invalid_field("messages", "a message's 'tool_calls' are a list of objects");
  }
  message.json["tool_calls"] = value;
}

using MessageField = Field<Message>;
constexpr std::array kMessageFields = {
    MessageField{.name = "role",
                 .kind = FieldKind::text,
                 .help = "who says it",
                 .read = [](const Json& v, Message& m) { m.json["role"] = v; },
                 .schema = [] { return schema::one_of({"system", "user", "assistant", "tool"}); }},
    MessageField{.name = "content",
                 .kind = FieldKind::text,
                 .help = "what it says",
                 .read = [](const Json& v, Message& m) { m.json["content"] = v; }},
    MessageField{.name = "tool_calls",
                 .help = "what an assistant called, for the model's template",
                 .read = read_tool_calls,
                 .schema = [] { return schema::list(Json{{"type", "object"}}); }},
    MessageField{.name = "tool_name",
                 .kind = FieldKind::text,
                 .help = "whose result a tool's message is",
                 .read = [](const Json& v, Message& m) { m.json["name"] = v; }},
    MessageField{.name = "tool_call_id",
                 .kind = FieldKind::text,
                 .help = "which call a tool's message answers",
                 .read = [](const Json& v, Message& m) { m.json["tool_call_id"] = v; }},
    MessageField{.name = "thinking",
                 .kind = FieldKind::text,
                 .help = "what an assistant thought, for the model's template",
                 .read = [](const Json& v, Message& m) { m.json["thinking"] = v; }},
    MessageField{.name = "images", .kind = FieldKind::refused, .help = kTextsAreRead},
};

void read_message(const Json& value, Json& messages) {
  if (!value.is_object()) throw invalid_field("messages", "each message is an object");
  Message message;
  read_fields<Message>(value, kMessageFields, message);
  const Json role = message.json.value("role", Json());
  if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
    throw invalid_field("messages", "a message's role is system, user, assistant or tool");
  }
  if (!message.json.contains("content")) message.json["content"] = "";
  messages.push_back(std::move(message.json));
}

Json messages_schema() { return schema::list(schema::request_of<Message>("OllamaMessage", {"role"}, kMessageFields)); }

void read_messages(const Json& value, OllamaRequest& request) {
  if (!value.is_array()) throw invalid_field("messages", "'messages' must be a list");
  for (const Json& each : value) read_message(each, request.messages);
}

constexpr std::array kSharedFields = {
    OllamaField{.name = "model",
                .kind = FieldKind::text,
                .help = "a name that GET /api/tags lists; without it, the server's default",
                .read = QUARREL_SET(model, as_text)},
    OllamaField{.name = "stream",
                .kind = FieldKind::boolean,
                .help = "the answer comes as lines of JSON, unless this is false",
                .read = QUARREL_SET(stream, as_flag)},
    OllamaField{.name = "keep_alive",
                .help = "how long the model stays afterwards: seconds, or a time such as `5m`; below 0: forever",
                .read = QUARREL_SET(keep_alive, read_keep_alive),
                .schema = keep_alive_schema},
    OllamaField{
        .name = "options", .help = "how the answer is drawn", .read = read_options, .schema = ollama_options_schema},
    OllamaField{.name = "shift",
                .kind = FieldKind::boolean,
                .help =
                    "a full context forgets its older half, and the answer goes on; so it does where `num_keep` says "
                    "what is not forgotten",
                .read = QUARREL_SET(shift, as_flag)},
    OllamaField{.name = "truncate",
                .kind = FieldKind::refused,
                .help = "a prompt that is too long is refused with the numbers, never cut"},
    OllamaField{.name = "logprobs",
                .kind = FieldKind::boolean,
                .help = "how likely each token was",
                .read = QUARREL_SET(logprobs, as_flag)},
    OllamaField{.name = "top_logprobs",
                .kind = FieldKind::integer,
                .least = 0,
                .most = kMaxTopTokens,
                .help = "so many most likely tokens in each one's place; needs `logprobs`",
                .read = QUARREL_SET(top_logprobs, as_integer)},
};

constexpr std::array kGenerateFields = {
    OllamaField{.name = "prompt",
                .kind = FieldKind::text,
                .help = "the question; without it the model is only loaded",
                .read = QUARREL_SET(prompt, as_text)},
    OllamaField{.name = "system",
                .kind = FieldKind::text,
                .help = "comes before the prompt",
                .read = QUARREL_SET(system, as_text)},
    OllamaField{.name = "raw",
                .kind = FieldKind::boolean,
                .help = "the prompt is the whole text, without the model's template",
                .read = QUARREL_SET(raw, as_flag)},
    OllamaField{.name = "context",
                .help = "the ids that an earlier answer ended with",
                .read = read_context,
                .schema = [] { return schema::list(schema::integer()); }},
    OllamaField{.name = "template",
                .kind = FieldKind::refused,
                .help = "the model's own is used; with 'raw' the prompt is the whole text"},
};

constexpr std::array kChatFields = {
    OllamaField{.name = "messages",
                .help = "the conversation; without it the model is only loaded",
                .read = read_messages,
                .schema = messages_schema},
};
#undef QUARREL_SET

[[noreturn]] void refuse_keep_alive() {
  throw invalid_field("keep_alive",
                      "'keep_alive' is a number of seconds or a time such as \"5m\", \"1h30m\" or \"-1\"");
}

// The seconds that a unit has, by its spelling at the beginning of `rest`, which it is taken off; 0: none is there.
double take_unit(std::string_view& rest) {
  struct Unit {
    std::string_view name;
    double seconds;
  };
  static constexpr std::array kUnits = {
      Unit{"ns", 1e-9}, Unit{"us", 1e-6}, Unit{"µs", 1e-6},  Unit{"ms", 1e-3},
      Unit{"s", 1.0},   Unit{"m", 60.0},  Unit{"h", 3600.0},
  };
  for (const Unit& unit : kUnits) {
    if (!rest.starts_with(unit.name)) continue;
    rest.remove_prefix(unit.name.size());
    return unit.seconds;
  }
  return 0.0;
}

// Go's durations, and plain numbers.
double seconds_of(std::string_view rest) {
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  double seconds = 0.0;
  bool first = true;
  do {
    if (rest.empty() || (rest.front() != '.' && (rest.front() < '0' || rest.front() > '9'))) refuse_keep_alive();
    double value = 0.0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value, std::chars_format::fixed);
    if (error != std::errc()) refuse_keep_alive();
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (rest.empty() && first) return negative ? -value : value;
    const double unit = take_unit(rest);
    if (unit == 0.0) refuse_keep_alive();
    seconds += value * unit;
    first = false;
  } while (!rest.empty());
  return negative ? -seconds : seconds;
}

// Ollama forgets unless it is told not to. Here whoever says what is to be kept does not mind the rest.
bool shifts(const OllamaRequest& request, const LoadedModel& model) {
  return request.shift.value_or(request.options.keep.value_or(model.recommended().keep.value_or(0)) != 0);
}

void check_shift(const OllamaRequest& request) {
  if (request.shift.value_or(true) || request.options.keep.value_or(0) == 0) return;
  throw invalid_field("num_keep", "'num_keep' says what a shift keeps, and 'shift' is false");
}

void check_logprobs(const OllamaRequest& request) {
  if (request.top_logprobs > 0 && !request.logprobs) {
    throw invalid_field("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  }
}

// An answer that forgets could go on forever: without a bound of its own it ends where Ollama ends it.
void apply_shift(Ask& ask, const OllamaRequest& request, const LoadedModel& model) {
  constexpr std::int64_t kMostContexts = 10;
  const std::int32_t keep = request.options.keep.value_or(model.recommended().keep.value_or(0));
  ask.overflow = Overflow::shift;
  ask.keep = keep < 0 ? std::numeric_limits<std::int32_t>::max() : keep;
  if (ask.max_tokens >= 0) return;
  ask.max_tokens = static_cast<std::int32_t>(
      std::min<std::int64_t>(kMostContexts * model.context(), std::numeric_limits<std::int32_t>::max()));
}

// A prompt is a question to a model that can chat, and a text to continue for one that cannot.
decltype(Ask::prompt) prompt_of(const OllamaRequest& request, const LoadedModel& model) {
  if (request.prompt.empty()) return ChatInput{.messages = with_system(model.system(), request.messages)};
  if (request.raw || (model.chat_template() == nullptr && request.system.empty())) return request.prompt;
  return ChatInput{
      .messages = with_system(request.system.empty() ? model.system() : request.system, asked_by_user(request.prompt))};
}

// The conversation so far, and what is said now: one beginning of the text is enough.
std::vector<TokenId> after_context(const std::vector<TokenId>& context, const std::vector<TokenId>& now,
                                   const LoadedModel& model) {
  std::vector<TokenId> ids = context;
  const bool has_bos = !now.empty() && model.require_tokenizer().special().bos == now.front();
  ids.insert(ids.end(), now.begin() + (has_bos && model.require_tokenizer().special().add_bos ? 1 : 0), now.end());
  return ids;
}

}  // namespace

std::chrono::milliseconds read_keep_alive(const Json& value) {
  if (!value.is_number() && !value.is_string()) refuse_keep_alive();
  const double seconds = value.is_number() ? value.get<double>() : seconds_of(value.get_ref<const std::string&>());
  if (!std::isfinite(seconds)) refuse_keep_alive();
  if (seconds < 0.0 || seconds > kForeverSeconds) return std::chrono::milliseconds(-1);
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000.0)));
}

void check_ollama_options(const Json& options) {
  OllamaRequest ignored;
  read_options(options, ignored);
}

void check_context(std::int32_t wanted, std::int32_t given, std::int32_t trained) {
  if (wanted <= given || given >= trained) return;
  throw invalid_field("num_ctx", fmt::format("'num_ctx' is {} and the model has a context of {} tokens here: the "
                                             "server's --ctx decides",
                                             wanted, given));
}

namespace {

// Most of these stand at the top of everybody else's bodies.
void refuse_misplaced_options(const Json& body) {
  for (const OllamaField& option : kOptions) {
    if (option.kind == FieldKind::no_effect || !body.contains(option.name) || is_neutral(body[option.name])) continue;
    throw unsupported_field(std::string(option.name),
                            fmt::format("'{0}' is one of the 'options': {{\"options\": {{\"{0}\": …}}}}", option.name));
  }
}

}  // namespace

OllamaRequest read_ollama_generate(const Json& body) {
  refuse_misplaced_options(body);
  OllamaRequest request = read_request(body, kSharedFields, kGenerateFields);
  check_shift(request);
  check_logprobs(request);
  if (request.raw && (!request.system.empty() || !request.context.empty())) {
    throw invalid_field("raw", "with 'raw' the prompt is the whole text: 'system' and 'context' do not go with it");
  }
  return request;
}

OllamaRequest read_ollama_chat(const Json& body) {
  refuse_misplaced_options(body);
  OllamaRequest request = read_request(body, kSharedFields, kChatFields);
  check_shift(request);
  check_logprobs(request);
  return request;
}

Ask ask_of(const OllamaRequest& request, const LoadedModel& model) {
  if (request.options.context) check_context(*request.options.context, model.context(), model.spec().context_length);
  Ask ask;
  ask.prompt = prompt_of(request, model);
  if (!request.context.empty()) ask.prompt = after_context(request.context, encode_prompt(model, ask), model);
  apply_options(ask, request.options, model);
  if (request.any_seed) ask.seed = request.options.seed;
  if (shifts(request, model)) apply_shift(ask, request, model);
  ask.top = request.top_logprobs;
  ask.priority = request.stream ? Priority::interactive : Priority::normal;
  return ask;
}

namespace {

using EmbedField = Field<OllamaEmbedRequest>;

void read_inputs(const Json& value, OllamaEmbedRequest& request) {
  if (value.is_string()) {
    if (!value.get_ref<const std::string&>().empty()) request.inputs.push_back(as_text(value));
    return;
  }
  const bool texts = value.is_array() && value.size() <= kMostInputs && std::ranges::all_of(value, &Json::is_string);
  if (!texts) {
    throw invalid_field("input", fmt::format("'input' must be a text or a list of at most {} texts", kMostInputs));
  }
  for (const Json& each : value) request.inputs.push_back(as_text(each));
}

Json inputs_schema() {
  Json several = schema::list(schema::text());
  several["maxItems"] = kMostInputs;
  return schema::either({schema::text(), several});
}

// Those that say how texts are generated mean nothing here, and are checked all the same.
void read_embed_options(const Json& value, OllamaEmbedRequest&) { check_ollama_options(value); }

constexpr std::array kSharedEmbedFields = {
    EmbedField{.name = "model",
               .kind = FieldKind::text,
               .help = "a name that GET /api/tags lists; without it, the server's default",
               .read = [](const Json& v, OllamaEmbedRequest& r) { r.model = as_text(v); }},
    EmbedField{.name = "keep_alive",
               .help = "how long the model stays afterwards: seconds, or a time such as `5m`; below 0: forever",
               .read = [](const Json& v, OllamaEmbedRequest& r) { r.keep_alive = read_keep_alive(v); },
               .schema = keep_alive_schema},
    EmbedField{.name = "options",
               .help = "taken, and without effect on vectors",
               .read = read_embed_options,
               .schema = ollama_options_schema},
};

constexpr std::array kEmbedFields = {
    EmbedField{.name = "input",
               .help = "a text or several; without it the model is only loaded",
               .read = read_inputs,
               .schema = inputs_schema},
    EmbedField{.name = "truncate",
               .kind = FieldKind::boolean,
               .help = "texts that are too long are cut, unless this is false",
               .read = [](const Json& v, OllamaEmbedRequest& r) { r.truncate = as_flag(v); }},
    EmbedField{.name = "dimensions",
               .kind = FieldKind::integer,
               .least = 0,  // all
               .most = 1 << 20,
               .help = "the first so many numbers alone, of models that were trained for it; 0: all",
               .read =
                   [](const Json& v, OllamaEmbedRequest& r) {
                     if (as_integer(v) > 0) r.dimensions = as_integer(v);
                   }},
};

constexpr std::array kEmbeddingsFields = {
    EmbedField{.name = "prompt", .kind = FieldKind::text, .help = "the text", .read = read_inputs},
};

using ModelField = Field<OllamaModelRequest>;
constexpr auto kReadName = [](const Json& v, OllamaModelRequest& r) {
  if (!v.get_ref<const std::string&>().empty()) r.model = as_text(v);
};
constexpr std::array kModelFields = {
    ModelField{.name = "model", .kind = FieldKind::text, .help = "which one", .read = kReadName},
    ModelField{.name = "name", .kind = FieldKind::text, .help = "an older name of `model`", .read = kReadName},
    ModelField{.name = "verbose",
               .kind = FieldKind::boolean,
               .help = "long lists too",
               .read = [](const Json& v, OllamaModelRequest& r) { r.verbose = as_flag(v); }},
    ModelField{.name = "system", .kind = FieldKind::refused, .help = "it belongs to a question"},
    ModelField{.name = "template", .kind = FieldKind::refused, .help = "the model's own is used"},
    ModelField{.name = "options", .kind = FieldKind::refused, .help = "they belong to a question"},
};

using CopyField = Field<OllamaCopyRequest>;
constexpr std::array kCopyFields = {
    CopyField{.name = "source",
              .kind = FieldKind::text,
              .help = "a model that is there",
              .read = [](const Json& v, OllamaCopyRequest& r) { r.source = as_text(v); }},
    CopyField{.name = "destination",
              .kind = FieldKind::text,
              .help = "its further name",
              .read = [](const Json& v, OllamaCopyRequest& r) { r.destination = as_text(v); }},
};

}  // namespace

OllamaEmbedRequest read_ollama_embed(const Json& body) { return read_request(body, kSharedEmbedFields, kEmbedFields); }
OllamaEmbedRequest read_ollama_embeddings(const Json& body) {
  return read_request(body, kSharedEmbedFields, kEmbeddingsFields);
}

OllamaModelRequest read_ollama_model(const Json& body) {
  OllamaModelRequest request;
  read_fields<OllamaModelRequest>(body, kModelFields, request);
  require_same_text(body, "model", "name");
  if (request.model.empty()) throw invalid_field("model", "'model' is missing");
  return request;
}

OllamaCopyRequest read_ollama_copy(const Json& body) {
  OllamaCopyRequest request;
  read_fields<OllamaCopyRequest>(body, kCopyFields, request);
  if (request.source.empty()) throw invalid_field("source", "'source' is missing");
  if (request.destination.empty()) throw invalid_field("destination", "'destination' is missing");
  return request;
}

Json ollama_generate_schema() {
  return schema::question_of<OllamaRequest>("OllamaGenerateRequest", {}, kSharedFields, kGenerateFields);
}
Json ollama_chat_schema() {
  return schema::question_of<OllamaRequest>("OllamaChatRequest", {}, kSharedFields, kChatFields);
}
Json ollama_embed_schema() {
  return schema::question_of<OllamaEmbedRequest>("OllamaEmbedRequest", {}, kSharedEmbedFields, kEmbedFields);
}
Json ollama_embeddings_schema() {
  return schema::question_of<OllamaEmbedRequest>("OllamaEmbeddingsRequest", {}, kSharedEmbedFields, kEmbeddingsFields);
}
Json ollama_model_schema() { return schema::request_of<OllamaModelRequest>("OllamaModelRequest", {}, kModelFields); }
Json ollama_copy_schema() {
  return schema::request_of<OllamaCopyRequest>("OllamaCopyRequest", {"source", "destination"}, kCopyFields);
}

}  // namespace quarrel
