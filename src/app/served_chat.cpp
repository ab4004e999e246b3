#include "app/served_chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "app/running_server.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/random_seed.h"
#include "gguf/file.h"
#include "model/architectures.h"
#include "session/generation.h"
#include "session/recommended_sampling.h"
#include "store/model_description.h"

namespace quarrel {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostContext = 1 << 30;
constexpr std::uint64_t kMostSeed = std::uint64_t{1} << 53;  // what a number in JSON holds

// What the server's own form takes of these; Ollama's takes more.
constexpr float kMostTemperature = 2.0F;
constexpr float kMostPenalty = 2.0F;

Json request_of(const std::string& model, Json messages, const ChatParameters& parameters, std::uint64_t seed) {
  const SamplingParams& sampling = parameters.sampling;
  Json request{{"model", model},
               {"messages", std::move(messages)},
               {"progress", true},
               {"temperature", sampling.temperature},
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
               {"max_tokens", parameters.max_tokens},
               {"seed", seed}};
  if (!parameters.stop.empty()) request["stop"] = parameters.stop;
  return request;
}

// The server-sent events of an answer, line by line.
class EventReader {
 public:
  EventReader(const ReplySink& sink, Reply& reply) : sink_(sink), reply_(reply), start_(Clock::now()) {}

  void take(std::string_view line) {
    constexpr std::string_view kKind = "event: ";
    constexpr std::string_view kData = "data: ";
    if (line.starts_with(kKind)) kind_ = line.substr(kKind.size());
    if (line.empty()) kind_.clear();
    if (!line.starts_with(kData)) return;
    line.remove_prefix(kData.size());
    const Json json = Json::parse(line, nullptr, false);
    if (kind_ == "error" && json.is_object()) {
      fail(ErrorKind::io, "the server could not finish the answer: {}", error_of({.body = std::string(line)}));
    }
    try {
      take_event(json);
    } catch (const Json::exception&) {  // it is no object, or a member is not of its type
      fail(ErrorKind::io, "the server sent something that is not part of an answer");
    }
  }

  // To be called some times a second: how much of the prompt is read, until the answer begins.
  void tell_progress() const {
    if (!begun_ && sink_.progress) sink_.progress(read_, total_);
  }
  bool whole() const noexcept { return whole_; }

 private:
  void take_event(const Json& json) {
    if (kind_ == "status") return take_status(json);
    const std::string text = json.value("token", "");
    const TokenId token = json.value("token_id", TokenId{-1});
    const bool complete = json.value("complete", false);
    if (!begun_) first_ = Clock::now();
    begun_ = true;
    if (token >= 0) reply_.tokens.push_back(token);
    reply_.text += text;
    if (!text.empty()) sink_.text(text);
    if (complete) finish(json);
  }

  void take_status(const Json& json) {
    if (json.value("state", "") != "reading") return;
    read_ = json.value("prompt_tokens_read", std::size_t{0});
    // The first one tells what the cache had.
    if (std::exchange(total_, json.value("prompt_tokens", std::size_t{0})) == 0) reply_.cached_tokens = read_;
    tell_progress();
  }

  void finish(const Json& json) {
    whole_ = true;
    reply_.prompt_tokens = json.value("prompt_tokens", std::size_t{0});
    reply_.cached_tokens = std::min(reply_.cached_tokens, reply_.prompt_tokens);
    reply_.generated = json.value("tokens_generated", std::size_t{0});
    reply_.prompt_seconds = std::chrono::duration<double>(first_ - start_).count();
    reply_.generate_seconds = seconds_since(first_);
    const std::string reason = json.value("finish_reason", "stop");
    if (reason == reason_name(FinishReason::length)) reply_.reason = FinishReason::length;
    if (reason == reason_name(FinishReason::context)) reply_.reason = FinishReason::context;
  }

  const ReplySink& sink_;
  Reply& reply_;
  const Clock::time_point start_;
  Clock::time_point first_{};
  std::string kind_;
  std::size_t read_ = 0, total_ = 0;
  bool begun_ = false;
  bool whole_ = false;
};

// A server that has too much to do still holds the model, and a second copy beside it would not make the machine
// faster.
void refuse_if_busy(const ServerAnswer& answer) {
  constexpr std::array<std::string_view, 3> kBusy{"queue_full", "out_of_memory", "timeout"};
  const bool busy =
      answer.status == 429 || (answer.status == 503 && std::ranges::find(kBusy, code_of(answer)) != kBusy.end());
  if (!busy) return;
  fail(ErrorKind::busy, "the server is busy ({}); --local loads the model here", error_of(answer));
}

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

bool same(const ModelOptions& a, const ModelOptions& b) {
  for (const ModelOptionRow& row : model_option_rows()) {
    if (!std::visit([&](const auto member) { return a.*member == b.*member; }, row.member)) return false;
  }
  return true;
}

class ServedChat final : public ChatSession {
 public:
  // `held`: what the server says of it.
  ServedChat(ServerAddress address, const ResolvedModel& model, const HeldModel& held, Log& log);

  Reply answer(const Conversation& conversation, const ChatParameters& parameters, const ReplySink& sink,
               std::size_t first) override;
  Reply complete(std::string_view text, const ChatParameters& parameters, const ReplySink& sink) override;
  std::string full_context() const override;
  std::string template_source() override;
  std::size_t text_tokens(std::string_view text) override;

 private:
  std::size_t prompt_tokens(const Conversation& conversation, std::size_t first) override;
  std::unique_ptr<ServerClient> connect() const;
  // A member of a call's answer, which is JSON; `fallback` where it has none.
  template <typename Value>
  Value call(const char* path, const Json& body, const char* member, Value fallback) const;

  const ServerAddress address_;
  const std::string name_;
  const std::string context_limit_;  // what made the server's context shorter than the model's own
  const bool has_system_ = false;    // the store keeps a system prompt with it
  std::int32_t trained_context_ = 0;
};

}  // namespace

std::string reason_for_own_model(const ChatOptions& options, const ChatParameters& parameters) {
  if (options.raw || !options.chat_template.empty()) return "its template is the server's";
  if (!same(options.model, ModelOptions{})) return "how it runs is the server's choice";
  if (!parameters.sampling.logit_bias.empty()) return "--logit-bias is not offered by servers";
  if (parameters.seed && *parameters.seed > kMostSeed) return "the seed is too large for a server";
  const SamplingParams& sampling = parameters.sampling;
  if (sampling.temperature > kMostTemperature) return "the temperature is too high for a server";
  if (std::abs(sampling.presence_penalty) > kMostPenalty || std::abs(sampling.frequency_penalty) > kMostPenalty) {
    return "the penalties are too large for a server";
  }
  return "";
}

std::unique_ptr<ChatSession> find_served_chat(const ServerAddress& address, const ResolvedModel& model, Log& log) {
  const ServerAddress socket{.unix_socket = address.unix_socket, .key = address.key};
  const std::unique_ptr<ServerClient> client = ServerClient::connect(socket);
  if (client == nullptr) return nullptr;
  const std::vector<HeldModel> held = held_models(*client);
  const auto found = std::ranges::find(held, model_digest(model.path), &HeldModel::digest);
  if (found == held.end() || found->context <= 0) return nullptr;
  return std::make_unique<ServedChat>(socket, model, *found, log);
}

namespace {

ServedChat::ServedChat(ServerAddress address, const ResolvedModel& model, const HeldModel& held, Log& log)
    : address_(std::move(address)),
      name_(held.name),
      context_limit_(printable(held.context_limit)),
      has_system_(model.system.has_value()) {
  const GgufFile file = GgufFile::open(model.path);
  trained_context_ = read_spec(file).context_length;
  const auto text = [&](const char* key) { return std::string(file.string(key).value_or("")); };
  system_ = model.system.value_or("");
  facts_ = {.name = model.name.empty() ? name_ : model.name,
            .runs_on = fmt::format("the server at {}", address_.unix_socket),
            .path = model.path.string(),
            .architecture = text("general.architecture"),
            .license = text("general.license"),
            .template_origin = "the server's",
            .context = static_cast<std::int32_t>(std::min<std::int64_t>(held.context, kMostContext)),
            .recommended = read_recommended_sampling(file, model.params.value_or(""), log)};
}

std::unique_ptr<ServerClient> ServedChat::connect() const {
  std::unique_ptr<ServerClient> client = ServerClient::connect(address_);
  if (client == nullptr) throw ChatLostError(fmt::format("no server is at {} any more", address_.unix_socket));
  return client;
}

template <typename Value>
Value ServedChat::call(const char* path, const Json& body, const char* member, Value fallback) const {
  const ServerAnswer answer = connect()->call("POST", path, text_of(body));
  const auto lost = [&](const std::string& why) {
    return ChatLostError(fmt::format("the server at {} does not continue ({})", address_.unix_socket, why));
  };
  refuse_if_busy(answer);
  if (answer.status != 200) throw lost(error_of(answer));
  try {
    return Json::parse(answer.body).value(member, std::move(fallback));
  } catch (const Json::exception&) {  // it is no object, or the member is not of its type
    throw lost(fmt::format("its answer to {} cannot be read", path));
  }
}

std::size_t ServedChat::prompt_tokens(const Conversation& conversation, std::size_t first) {
  const Json body{{"model", name_}, {"messages", conversation.to_template(first)}};
  return text_tokens(call("/apply-template", body, "prompt", std::string()));
}

std::size_t ServedChat::text_tokens(std::string_view text) {
  return call("/tokenize", {{"model", name_}, {"content", text}}, "count", std::size_t{0});
}

std::string ServedChat::template_source() { return call("/api/show", {{"model", name_}}, "template", std::string()); }

std::string ServedChat::full_context() const {
  const std::string text = fmt::format("the context of {} tokens that the server has for it is full", facts_.context);
  if (facts_.context >= trained_context_) return text;
  return text + fmt::format(" ({}the model was trained for {})",
                            context_limit_.empty() ? "" : fmt::format("because of {}; ", context_limit_),
                            trained_context_);
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
  const Json body = request_of(name_, conversation.to_template(first), parameters, reply.seed);
  EventReader reader(sink, reply);
  bool stopped = false;
  const ServerClient::Reading reading{.line = [&](std::string_view line) { reader.take(line); },
                                      .goes_on =
                                          [&] {
                                            reader.tell_progress();
                                            stopped = stopped || (sink.cancelled && sink.cancelled());
                                            return !stopped;
                                          }};
  const ServerAnswer answer = client->read_lines("/api/stream", text_of(body), reading);
  if (stopped) {
    reply.reason = FinishReason::cancelled;
    return reply;
  }
  refuse_if_busy(answer);
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
