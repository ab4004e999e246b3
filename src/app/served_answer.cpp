#include "app/served_answer.h"

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
    if (!json.is_object()) fail(ErrorKind::io, "the server sent something that is no part of an answer");
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

bool same(const ModelOptions& a, const ModelOptions& b) {
  for (const ModelOptionRow& row : model_option_rows()) {
    if (!std::visit([&](const auto member) { return a.*member == b.*member; }, row.member)) return false;
  }
  return true;
}

}  // namespace

std::string reason_for_own_model(const ChatOptions& options, const ChatParameters& parameters) {
  if (options.raw || !options.chat_template.empty()) return "its template is the server's";
  if (!same(options.model, ModelOptions{})) return "how it runs is the server's choice";
  if (!parameters.sampling.logit_bias.empty()) return "--logit-bias is not offered by servers";
  if (parameters.seed && *parameters.seed > kMostSeed) return "the seed is too large for a server";
  return "";
}

std::optional<ServedModel> ServedModel::find(const ServerAddress& address, const ResolvedModel& model) {
  std::unique_ptr<ServerClient> client =
      ServerClient::connect({.unix_socket = address.unix_socket, .key = address.key});
  if (client == nullptr) return std::nullopt;
  const std::vector<HeldModel> held = held_models(*client);
  const auto found = std::ranges::find(held, model_digest(model.path), &HeldModel::digest);
  if (found == held.end()) return std::nullopt;
  return ServedModel(std::move(client), model, found->name, found->context);
}

ChatParameters ServedModel::parameters(const GivenParameters& given, Log& log) const {
  ChatParameters result;
  result.system = model_.system.value_or("");
  const GgufFile file = GgufFile::open(model_.path);
  apply_recommended(result, read_recommended_sampling(file, model_.params.value_or(""), log));
  apply_given(result, given);
  return result;
}

std::optional<Reply> ServedModel::answer(const Conversation& conversation, const ChatParameters& parameters,
                                         const ReplySink& sink, Log& log) {
  // Where the request has no system prompt the server would take the store's.
  if (conversation.system.empty() && model_.system) return std::nullopt;
  Reply reply;
  reply.seed = parameters.seed ? *parameters.seed : random_seed();
  const Json body{{"model", name_},
                  {"messages", conversation.to_template()},
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
  const ServerAnswer answer =
      client_->read_lines("/api/chat", body.dump(-1, ' ', false, Json::error_handler_t::replace), reading);
  if (stopped) {
    reply.reason = FinishReason::cancelled;
    return reply;
  }
  if (answer.status != 200) {
    log.warn("the server at {} does not take this request ({}): the model is loaded here", client_->where(),
             error_of(answer));
    return std::nullopt;
  }
  if (!reader.whole()) fail(ErrorKind::io, "the server at {} ended before the answer was whole", client_->where());
  return reply;
}

}  // namespace quarrel
