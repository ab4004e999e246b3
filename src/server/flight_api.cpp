#include "server/flight_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "server/admission.h"
#include "server/embedding_call.h"
#include "server/http/byte_budget.h"
#include "server/model_call.h"
#include "server/question.h"
#include "server/watch/metrics.h"

namespace quarrel {
namespace {

// How soon it is noticed that a client has gone.
constexpr std::chrono::milliseconds kLookForClient{50};

// What the descriptor's command says, as JSON; nothing: all as usual.
struct FlightCommand {
  std::string model = {};
  std::string prefix = {};
  std::optional<std::int32_t> dimensions = {};
  bool truncate = true;
  bool normalize = true;
};

using CommandField = Field<FlightCommand>;

constexpr std::array kCommandFields = {
    CommandField{.name = "model",
                 .kind = FieldKind::text,
                 .read = [](const Json& v, FlightCommand& c) { c.model = as_text(v); }},
    CommandField{.name = "prefix",
                 .kind = FieldKind::text,
                 .read = [](const Json& v, FlightCommand& c) { c.prefix = as_short_text(v, "prefix"); }},
    CommandField{.name = "dimensions",
                 .kind = FieldKind::integer,
                 .least = 1,
                 .most = kMostTokens,
                 .read = [](const Json& v, FlightCommand& c) { c.dimensions = as_integer(v); }},
    CommandField{.name = "truncate",
                 .kind = FieldKind::boolean,
                 .read = [](const Json& v, FlightCommand& c) { c.truncate = as_flag(v); }},
    CommandField{.name = "normalize",
                 .kind = FieldKind::boolean,
                 .read = [](const Json& v, FlightCommand& c) { c.normalize = as_flag(v); }},
};

FlightFault fault_of(unsigned status) noexcept {
  switch (status) {
    case 401: return FlightFault::unauthenticated;
    case 403: return FlightFault::unauthorized;
    case 404: return FlightFault::not_found;
    case 429:
    case 503: return FlightFault::unavailable;
    case 501: return FlightFault::unsupported;
    default: return status < 500 ? FlightFault::invalid : FlightFault::internal;
  }
}

// An answer of HTTP that says why not.
FlightRefusal refusal_of(const http::Response& answer) {
  const Json body = Json::parse(answer.body, nullptr, false);
  std::string message = "refused";
  if (body.is_object() && body.contains("error")) {
    const Json& error = body["error"];
    if (error.is_string()) message = error.get<std::string>();
    if (error.is_object() && error.contains("message")) message = error["message"].get<std::string>();
  }
  return {fault_of(answer.status), message};
}

// What a connection is to an exchange elsewhere: it waits for the answer.
class AwaitedAnswer {
 public:
  void wake() {
    const std::scoped_lock lock(mutex_);
    woken_ = true;
    changed_.notify_all();
  }
  // False: it has not been woken within that time.
  bool wait(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return std::exchange(woken_, false); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
};

class ServedFlight final : public FlightHandler {
 public:
  ServedFlight(Service& service, Admit admit) : service_(service), admit_(std::move(admit)) {}

  std::uint64_t admit(const FlightCall& call) override {
    const std::string id = id_of(call);
    return said_so(id, [&] { return admitted(call, id, "GET", "/v1/models").record->caller()->key; });
  }

  FlightVectors embed(const FlightCall& call, std::string_view command, std::vector<std::string> texts) override {
    const std::string id = id_of(call);
    return said_so(id, [&] {
      FlightCommand wanted;
      if (!command.empty()) read_fields<FlightCommand>(parse_body(command), kCommandFields, wanted);
      FlightVectors vectors;
      if (texts.empty()) vectors.dimension = width_of(call, id, wanted);
      for (std::size_t first = 0; first < texts.size(); first += kMostInputs) {
        const std::size_t count = std::min(kMostInputs, texts.size() - first);
        // Each is a request of its own.
        const std::string own_id = first == 0 ? id : fmt::format("{}-{}", id, first / kMostInputs + 1);
        embed_some(call, own_id, wanted, std::span(texts).subspan(first, count), vectors);
      }
      return vectors;
    });
  }

  FlightTable table(const FlightCall& call, std::string_view ticket) override {
    const std::string id = id_of(call);
    return said_so(id, [&]() -> FlightTable {
      if (ticket == "models") return models(*admitted(call, id, "GET", "/v1/models").record);
      if (ticket == "stats") return statistics(*admitted(call, id, "GET", "/metrics").record);
      throw FlightRefusal(FlightFault::not_found, "the tickets are: models, stats");
    });
  }

 private:
  // What is thrown elsewhere as an answer of HTTP is one of Flight here.
  template <typename Work>
  auto said_so(const std::string& id, const Work& work) -> decltype(work()) {
    try {
      return work();
    } catch (const FlightRefusal&) {
      throw;
    } catch (...) {
      const ApiError error = api_error(std::current_exception());
      log_fault(service_.log(), id, error, std::current_exception());
      throw FlightRefusal(fault_of(error.status), error.what());
    }
  }

  // With the request's record, which has what it holds of its key's limits.
  http::Admission admitted(const FlightCall& call, const std::string& id, const char* method, const char* path) const {
    http::Admission admission = admit_(request_of(call, id, method, path));
    if (admission.refusal != 0) throw refusal_of(admission.answer);
    if (method == std::string_view("GET")) {
      admission.record->update([](RequestFacts& facts) { facts.status = 200; });  // nothing more comes of it
    }
    return admission;
  }

  // The caller's own where it may be written to a log.
  static std::string id_of(const FlightCall& call) {
    return http::usable_request_id(call.request_id) ? call.request_id : http::new_request_id();
  }

  static http::Request request_of(const FlightCall& call, const std::string& id, const char* method, const char* path) {
    http::Request request{.method = method, .path = path, .id = id, .address = call.peer};
    request.loopback = is_loopback_address(call.peer);
    if (!call.authorization.empty()) request.headers.emplace_back("Authorization", call.authorization);
    return request;
  }

  static EmbeddingOptions options_of(const FlightCommand& wanted) {
    return {.normalize = wanted.normalize, .dimensions = wanted.dimensions, .priority = Priority::batch};
  }

  // One request for vectors, as over HTTP: what `start` begins with the exchange and the model. Returns when there is
  // an answer.
  template <typename Start>
  void request_vectors(const FlightCall& call, const std::string& id, const FlightCommand& wanted,
                       const std::shared_ptr<RequestRecord>& record, const Start& start) {
    http::Request request = request_of(call, id, "POST", "/v1/embeddings");
    request.record = record;
    const auto awaited = std::make_shared<AwaitedAnswer>();
    const auto exchange =
        std::make_shared<http::Exchange>(std::move(request), std::size_t{1} << 20, [awaited] { awaited->wake(); });
    exchange->on_head(
        [record](http::Response& head) { record->update([&](RequestFacts& facts) { facts.status = head.status; }); });
    start(exchange, service_.find(wanted.model, *record->caller()));
    const http::Response answer = answer_of(call, *exchange, *awaited);
    if (answer.status != 200) throw refusal_of(answer);
  }

  // Of the vectors that texts would have, had there been any.
  std::int32_t width_of(const FlightCall& call, const std::string& id, const FlightCommand& wanted) {
    const http::Admission admission = admitted(call, id, "POST", "/v1/embeddings");
    const auto width = std::make_shared<std::int32_t>(0);  // the call may outlive this one
    request_vectors(call, id, wanted, admission.record,
                    [&](const std::shared_ptr<http::Exchange>& exchange, const OfferedModel& model) {
                      start_model_call(service_, exchange, model,
                                       [width, options = options_of(wanted)](const LoadedModel& loaded) {
                                         *width = vector_width(loaded, options);
                                         return http::Response{};
                                       });
                    });
    return *width;
  }

  void embed_some(const FlightCall& call, const std::string& id, const FlightCommand& wanted,
                  std::span<std::string> texts, FlightVectors& vectors) {
    const http::Admission admission = admitted(call, id, "POST", "/v1/embeddings");
    const std::shared_ptr<RequestRecord> record = admission.record;
    require_small(texts, admission.body_bytes);
    EmbeddingAsk ask{.options = options_of(wanted), .truncate = wanted.truncate};
    for (const std::string& text : texts) ask.inputs.emplace_back(wanted.prefix + text);
    const auto found = std::make_shared<FlightVectors>();  // the call may outlive this one
    const auto respond = [found](std::span<const Embedding> embeddings, double) {
      for (const Embedding& each : embeddings) {
        found->dimension = static_cast<std::int32_t>(each.values.size());
        found->values.insert(found->values.end(), each.values.begin(), each.values.end());
      }
      return http::Response{};
    };
    request_vectors(
        call, id, wanted, record, [&](const std::shared_ptr<http::Exchange>& exchange, const OfferedModel& model) {
          start_embedding_call(service_, exchange, model, std::move(ask), {.respond = respond, .fail = openai_error});
        });
    if (vectors.dimension != 0 && vectors.dimension != found->dimension) {
      throw FlightRefusal(FlightFault::unavailable, "the model was exchanged for another in the middle of the texts");
    }
    vectors.dimension = found->dimension;
    reserve_bytes(vectors, found->values.size(), record->caller()->key);
    vectors.values.insert(vectors.values.end(), found->values.begin(), found->values.end());
  }

  // Texts count as a body of HTTP does.
  static void require_small(std::span<const std::string> texts, std::uint64_t most_bytes) {
    std::uint64_t bytes = 0;
    for (const std::string& text : texts) bytes += text.size();
    if (bytes <= most_bytes) return;
    throw FlightRefusal(
        FlightFault::invalid,
        fmt::format("the texts of a batch may have at most {} bytes in each {} rows", most_bytes, kMostInputs));
  }

  // All vectors that are on their way together have a bound, over HTTP and here.
  void reserve_bytes(FlightVectors& vectors, std::size_t more, std::uint64_t key) const {
    using Share = http::ByteBudget::Share;
    if (vectors.share == nullptr) vectors.share = std::make_shared<Share>(service_.vector_bytes(), key);
    auto& share = *static_cast<Share*>(vectors.share.get());
    if (share.grow_to((vectors.values.size() + more) * sizeof(float))) return;
    throw FlightRefusal(FlightFault::unavailable, "too many vectors are on their way to clients");
  }

  static http::Response answer_of(const FlightCall& call, http::Exchange& exchange, AwaitedAnswer& awaited) {
    for (;;) {
      http::Exchange::Output output = exchange.take();
      if (output.has_head) return std::move(output.head);
      if (output.broken) throw FlightRefusal(FlightFault::internal, "there is no answer");
      if (awaited.wait(kLookForClient) || !call.cancelled || !call.cancelled()) continue;
      exchange.close();
      throw FlightRefusal(FlightFault::cancelled, "the caller has gone");
    }
  }

  FlightTable models(RequestRecord& record) const {
    std::vector<std::string> names, states;
    std::vector<std::int64_t> sizes;
    const std::vector<ModelRegistry::Status> loaded = service_.registry().list();
    for (const OfferedModel& model : service_.models(*record.caller())) {
      const auto found = std::ranges::find(loaded, model.name, &ModelRegistry::Status::name);
      const bool is_loading = found != loaded.end() && found->state == ModelRegistry::State::loading;
      names.push_back(model.name);
      states.emplace_back(found == loaded.end() ? "unloaded" : is_loading ? "loading" : "loaded");
      sizes.push_back(static_cast<std::int64_t>(model.bytes));
    }
    return {{.name = "name", .values = std::move(names)},
            {.name = "state", .values = std::move(states)},
            {.name = "bytes", .values = std::move(sizes)}};
  }

  // A row a figure; of a histogram its count and its sum.
  FlightTable statistics(const RequestRecord& record) const {
    std::vector<std::string> names, labels;
    std::vector<double> values;
    const auto add = [&](const Json& family, const char* end, const Json& member, const char* figure) {
      names.push_back(family["name"].get<std::string>() + end);
      labels.push_back(member["labels"].dump());
      values.push_back(member[figure].get<double>());
    };
    const Json told = Json::parse(service_.metrics().json(*record.caller()));
    for (const Json& family : told["metrics"]) {
      for (const Json& member : family["metrics"]) {
        if (member.contains("value")) {
          add(family, "", member, "value");
        } else {
          add(family, "_count", member, "count");
          add(family, "_sum", member, "sum");
        }
      }
    }
    return {{.name = "name", .values = std::move(names)},
            {.name = "labels", .values = std::move(labels)},
            {.name = "value", .values = std::move(values)}};
  }

  Service& service_;
  const Admit admit_;
};

std::string pem_text(const std::string& path) {
  if (path.empty()) return {};
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file || text.empty()) fail(ErrorKind::usage, "cannot read '{}'", printable(path, 512));
  return text;
}

}  // namespace

std::shared_ptr<FlightHandler> make_flight_handler(Service& service, Admit admit) {
  return std::make_shared<ServedFlight>(service, std::move(admit));
}

std::unique_ptr<FlightListener> serve_flight(const http::ServerOptions& http, std::uint16_t port, Service& service,
                                             Admit admit) {
  const FlightListenerOptions options{.address = http.address,
                                      .port = port,
                                      .certificate = pem_text(http.tls.certificate),
                                      .key = pem_text(http.tls.key),
                                      .message_time = http.limits.idle_time + http.limits.body_time};
  return listen_flight(options, make_flight_handler(service, std::move(admit)));
}

}  // namespace quarrel
