#include "app/served_chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "app/running_server.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random_seed.h"
#include "gguf/file.h"
#include "session/recommended_sampling.h"
#include "store/model_description.h"

namespace quarrel {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostContext = 1 << 30;
constexpr std::uint64_t kMostSeed = std::uint64_t{1} << 53;  // what a number in JSON holds

Json options_of(const ChatParameters& parameters, std::uint64_t seed) {
  const SamplingParams& sampling = parameters.sampling;
  Json options{{"temperature", sampling.temperature},
               {"top_k", sampling.top_k},
               {"top_p", sampling.top_p},
               {"min_p", sampling.min_p},
               {"typical_p", sampling.typical_p},
               {"repeat_penalty", sampling.repeat_penalty},
               {"repeat_last_n", sampling.penalty_window},
               {"presence_penalty", sampling.presence_penalty},
               {"frequency_penalty", sampling.frequency_penalty},
               {"mirostat", sampling.mirostat ? 2 : 0},
               {"mirostat_tau", sampling.mirostat_tau},
               {"mirostat_eta", sampling.mirostat_eta},
               {"num_predict", parameters.max_tokens},
               {"seed", seed}};
  if (!parameters.stop.empty()) options["stop"] = parameters.stop;
  return options;
}

// The lines of Ollama's chat, one by one.
class LineReader {
 public:
  LineReader(const ReplySink& sink, const ChatParameters& parameters, Reply& reply)
      : sink_(sink), parameters_(parameters), reply_(reply) {}

  void take(std::string_view line) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object()) fail(ErrorKind::io, "the server sent something that is not part of an answer");
    if (const auto error = json.find("error"); error != json.end()) {
      fail(ErrorKind::io, "the server could not finish the answer: {}", error_of({.body = std::string(line)}));
    }
    begun_ = true;
    if (const auto message = json.find("message"); message != json.end() && message->is_object()) {
      const std::string text = message->value("content", "");
      reply_.text += text;
      if (!text.empty()) sink_.text(text);
    }
    if (json.value("done", false)) finish(json);
  }

  bool begun() const noexcept { return begun_; }
  bool whole() const noexcept { return whole_; }

 private:
  void finish(const Json& json) {
    constexpr double kNanosecond = 1e-9;
    whole_ = true;
    reply_.prompt_tokens = json.value("prompt_eval_count", std::size_t{0});
    reply_.generated = json.value("eval_count", std::size_t{0});
    reply_.prompt_seconds = json.value("prompt_eval_duration", 0.0) * kNanosecond;
    reply_.generate_seconds = json.value("eval_duration", 0.0) * kNanosecond;
    if (json.value("done_reason", "stop") != "length") return;
    // Ollama has one word for both.
    const bool asked =
        parameters_.max_tokens >= 0 && reply_.generated >= static_cast<std::size_t>(parameters_.max_tokens);
    reply_.reason = asked ? FinishReason::length : FinishReason::context;
  }

  const ReplySink& sink_;
  const ChatParameters& parameters_;
  Reply& reply_;
  bool begun_ = false;
  bool whole_ = false;
};

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

bool same(const ModelOptions& a, const ModelOptions& b) {
  for (const ModelOptionRow& row : model_option_rows()) {
    if (!std::visit([&](const auto member) { return a.*member == b.*member; }, row.member)) return false;
  }
  return true;
}

class ServedChat final : public ChatSession {
 public:
  // `name`: the server's for it.
  ServedChat(ServerAddress address, const ResolvedModel& model, std::string name, std::int64_t context, Log& log);

  Reply answer(const Conversation& conversation, const ChatParameters& parameters, const ReplySink& sink,
               std::size_t first) override;
  Reply complete(std::string_view text, const ChatParameters& parameters, const ReplySink& sink) override;
  std::string full_context() const override;
  std::string template_source() override;
  std::size_t text_tokens(std::string_view text) override;

 private:
  std::size_t prompt_tokens(const Conversation& conversation, std::size_t first) override;
  std::unique_ptr<ServerClient> connect() const;
  // A call whose answer is JSON.
  Json call(const char* path, const Json& body) const;

  const ServerAddress address_;
  const std::string name_;
  const bool has_system_ = false;  // the store keeps a system prompt with it
};

}  // namespace

std::string reason_for_own_model(const ChatOptions& options, const ChatParameters& parameters) {
  if (options.raw || !options.chat_template.empty()) return "its template is the server's";
  if (!same(options.model, ModelOptions{})) return "how it runs is the server's choice";
  if (!parameters.sampling.logit_bias.empty()) return "--logit-bias is not offered by servers";
  if (parameters.seed && *parameters.seed > kMostSeed) return "the seed is too large for a server";
  return "";
}

std::unique_ptr<ChatSession> find_served_chat(const ServerAddress& address, const ResolvedModel& model, Log& log) {
  const ServerAddress socket{.unix_socket = address.unix_socket, .key = address.key};
  const std::unique_ptr<ServerClient> client = ServerClient::connect(socket);
  if (client == nullptr) return nullptr;
  const std::vector<HeldModel> held = held_models(*client);
  const auto found = std::ranges::find(held, model_digest(model.path), &HeldModel::digest);
  if (found == held.end() || found->context <= 0) return nullptr;
  return std::make_unique<ServedChat>(socket, model, found->name, found->context, log);
}

namespace {

ServedChat::ServedChat(ServerAddress address, const ResolvedModel& model, std::string name, std::int64_t context,
                       Log& log)
    : address_(std::move(address)), name_(std::move(name)), has_system_(model.system.has_value()) {
  const GgufFile file = GgufFile::open(model.path);
  const auto text = [&](const char* key) { return std::string(file.string(key).value_or("")); };
  system_ = model.system.value_or("");
  facts_ = {.name = model.name.empty() ? name_ : model.name,
            .runs_on = fmt::format("the server at {}", address_.unix_socket),
            .path = model.path.string(),
            .architecture = text("general.architecture"),
            .license = text("general.license"),
            .template_origin = "the server's",
            .context = static_cast<std::int32_t>(std::min<std::int64_t>(context, kMostContext)),
            .recommended = read_recommended_sampling(file, model.params.value_or(""), log)};
}

std::unique_ptr<ServerClient> ServedChat::connect() const {
  std::unique_ptr<ServerClient> client = ServerClient::connect(address_);
  if (client == nullptr) throw ChatLostError(fmt::format("no server is at {} any more", address_.unix_socket));
  return client;
}

Json ServedChat::call(const char* path, const Json& body) const {
  const ServerAnswer answer = connect()->call("POST", path, text_of(body));
  Json json = Json::parse(answer.body, nullptr, false);
  if (answer.status == 200 && json.is_object()) return json;
  throw ChatLostError(fmt::format("the server at {} does not continue ({})", address_.unix_socket, error_of(answer)));
}

std::size_t ServedChat::prompt_tokens(const Conversation& conversation, std::size_t first) {
  const Json prompt = call("/apply-template", {{"model", name_}, {"messages", conversation.to_template(first)}});
  return text_tokens(prompt.value("prompt", ""));
}

std::size_t ServedChat::text_tokens(std::string_view text) {
  return call("/tokenize", {{"model", name_}, {"content", text}}).value("count", std::size_t{0});
}

std::string ServedChat::template_source() { return call("/api/show", {{"model", name_}}).value("template", ""); }

std::string ServedChat::full_context() const {
  return fmt::format("the context of {} tokens that the server has for it is full", facts_.context);
}

Reply ServedChat::complete(std::string_view, const ChatParameters&, const ReplySink&) {
  fail(ErrorKind::internal, "a server is not asked to continue a text as it is");
}

Reply ServedChat::answer(const Conversation& conversation, const ChatParameters& parameters, const ReplySink& sink,
                         std::size_t first) {
  // Where the request has no system prompt the server would take the store's.
  if (conversation.system.empty() && has_system_) throw ChatLostError("the server would add a system prompt");
  // Parameters may have been set since the chat began.
  if (const std::string reason = reason_for_own_model({}, parameters); !reason.empty()) throw ChatLostError(reason);
  const std::unique_ptr<ServerClient> client = connect();
  Reply reply;
  reply.seed = parameters.seed ? *parameters.seed : random_seed();
  const Json body{{"model", name_},
                  {"messages", conversation.to_template(first)},
                  {"stream", true},
                  {"options", options_of(parameters, reply.seed)}};
  LineReader reader(sink, parameters, reply);
  bool stopped = false;
  const ServerClient::Reading reading{.line = [&](std::string_view line) { reader.take(line); },
                                      .goes_on =
                                          [&] {
                                            if (!reader.begun() && sink.progress) sink.progress(0, 0);
                                            stopped = stopped || (sink.cancelled && sink.cancelled());
                                            return !stopped;
                                          }};
  const ServerAnswer answer = client->read_lines("/api/chat", text_of(body), reading);
  if (stopped) {
    reply.reason = FinishReason::cancelled;
    return reply;
  }
  if (answer.status != 200) {
    throw ChatLostError(
        fmt::format("the server at {} does not take this request ({})", client->where(), error_of(answer)));
  }
  if (!reader.whole()) fail(ErrorKind::io, "the server at {} ended before the answer was whole", client->where());
  cached_tokens_ = reply.prompt_tokens + reply.generated;
  return reply;
}

}  // namespace
}  // namespace quarrel
