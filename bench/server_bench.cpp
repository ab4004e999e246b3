// What the server's own work costs: a token's event in each dialect, on its way into a connection's buffer, and a body
// of so many bytes by either reader of JSON.
//
//   make bench-server
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "server/answer_event.h"
#include "server/json_body.h"
#include "server/ollama_writer.h"
#include "server/openai_writer.h"
#include "server/ws_protocol.h"

namespace quarrel {
namespace {

std::vector<GenerationEvent> tokens(std::int64_t count) {
  static constexpr const char* kTexts[] = {" the", " quick", " brown", ",\n", " \"fox", "es\"", " é", "."};
  std::vector<GenerationEvent> events(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < events.size(); ++i) {
    events[i].kind = GenerationEvent::Kind::piece;
    events[i].text = kTexts[i % std::size(kTexts)];
    events[i].token = static_cast<TokenId>(1000 + i);
  }
  return events;
}

void count_tokens(benchmark::State& state) {
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) * state.range(0));
}

template <typename MakeWriter>
void write_events(benchmark::State& state, const MakeWriter& make_writer) {
  const auto exchange = std::make_shared<http::Exchange>(http::Request{}, std::size_t{1} << 20, [] {});
  const std::unique_ptr<AnswerWriter> writer = make_writer(exchange);
  exchange->begin(http::stream_head("text/event-stream"));
  std::vector<GenerationEvent> events = tokens(state.range(0));
  for (auto _ : state) {
    writer->take(events);
    benchmark::DoNotOptimize(exchange->take());
  }
  count_tokens(state);
}

void openai_events(benchmark::State& state) {
  OpenAiRequest request;
  request.stream = true;
  write_events(state, [&](const std::shared_ptr<http::Exchange>& exchange) {
    return make_openai_writer(exchange, OpenAiForm::chat, request, {.model = "default", .fingerprint = "quarrel"});
  });
}

void ollama_events(benchmark::State& state) {
  OllamaRequest request;
  request.model = "default";
  write_events(state, [&](const std::shared_ptr<http::Exchange>& exchange) {
    return make_ollama_writer(exchange, OllamaForm::chat, request);
  });
}

std::vector<AnswerEvent> answer_events(std::int64_t count) {
  std::vector<AnswerEvent> events;
  for (GenerationEvent& event : tokens(count)) {
    events.push_back({.text = std::move(event.text), .token = event.token, .tokens_per_second = 41.25f});
  }
  return events;
}

void native_events(benchmark::State& state) {
  const std::vector<AnswerEvent> events = answer_events(state.range(0));
  std::string bytes;
  for (auto _ : state) {
    bytes.clear();
    for (const AnswerEvent& event : events) {
      bytes += "data: ";
      append_payload(bytes, event, "");
      bytes += "\n\n";
    }
    benchmark::DoNotOptimize(bytes.data());
  }
  count_tokens(state);
}

void websocket_events(benchmark::State& state) {
  const AnswerMessages messages("answer-1");
  const std::vector<AnswerEvent> events = answer_events(state.range(0));
  for (auto _ : state) {
    for (const AnswerEvent& event : events) benchmark::DoNotOptimize(messages.message(event, ""));
  }
  count_tokens(state);
}

// A conversation of about so many bytes.
std::string conversation(std::int64_t bytes) {
  Json messages = Json::array();
  const std::string text =
      "Is it \"true\" that a quarrel is a bolt for a crossbow?\nTell me more about it, in detail. ";
  for (std::size_t size = 0; size < static_cast<std::size_t>(bytes); size += 8 * text.size()) {
    std::string content;
    for (int i = 0; i < 8; ++i) content += text;
    messages.push_back({{"role", messages.size() % 2 == 0 ? "user" : "assistant"}, {"content", content}});
  }
  return Json{{"model", "default"}, {"messages", messages}, {"temperature", 0.5}, {"stream", true}}.dump();
}

void body_by_nlohmann(benchmark::State& state) {
  const std::string body = conversation(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(read_by_nlohmann(body));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(body.size()));
}

void body_by_simdjson(benchmark::State& state) {
  const std::string body = conversation(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(read_by_simdjson(body));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(body.size()));
}

BENCHMARK(openai_events)->Arg(1)->Arg(64);
BENCHMARK(ollama_events)->Arg(1)->Arg(64);
BENCHMARK(native_events)->Arg(1)->Arg(64);
BENCHMARK(websocket_events)->Arg(1)->Arg(64);
BENCHMARK(body_by_nlohmann)->Arg(1 << 10)->Arg(4 << 10)->Arg(16 << 10)->Arg(112 << 10)->Arg(1 << 20);
BENCHMARK(body_by_simdjson)->Arg(1 << 10)->Arg(4 << 10)->Arg(16 << 10)->Arg(112 << 10)->Arg(1 << 20);

}  // namespace
}  // namespace quarrel

BENCHMARK_MAIN();
