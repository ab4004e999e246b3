#include "app/serve_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/progress_bar.h"
#include "app/text_table.h"
#include "base/printable.h"

namespace quarrel {
namespace {

nlohmann::ordered_json range_json(const TokenRange& range) { return {{"min", range.least}, {"max", range.most}}; }

nlohmann::ordered_json times_json(const Percentiles& times) {
  return {{"count", times.count}, {"mean", times.mean}, {"p50", times.p50},
          {"p95", times.p95},     {"p99", times.p99},   {"max", times.max}};
}

std::string range_text(const TokenRange& range) {
  return range.least == range.most ? fmt::format("{}", range.least) : fmt::format("{} to {}", range.least, range.most);
}

const char* plural(std::int64_t count) { return count == 1 ? "" : "s"; }

}  // namespace

nlohmann::ordered_json settings_json(const ServeBenchSettings& settings) {
  const LoadSettings& load = settings.load;
  nlohmann::ordered_json value{{"loop", load.open_loop() ? "open" : "closed"},
                               {"clients", nullptr},
                               {"rate", nullptr},
                               {"requests", load.requests},
                               {"prompt_tokens", range_json(load.prompt)},
                               {"output_tokens", range_json(load.output)},
                               {"shared_prefix", load.shared_prefix},
                               {"long_prompt", load.long_prompt},
                               {"seed", load.seed},
                               {"sequences", settings.sequences},
                               {"cache_tokens", settings.cache_tokens},
                               {"chunk", settings.chunk},
                               {"prefix_cache", settings.prefix_cache}};
  if (load.open_loop()) {
    value["rate"] = load.rate;
  } else {
    value["clients"] = load.clients;
  }
  return value;
}

nlohmann::ordered_json result_json(const ServeResult& result) {
  nlohmann::ordered_json value{{"seconds", result.seconds},
                               {"interrupted", result.interrupted},
                               {"requests",
                                {{"finished", result.finished},
                                 {"refused", result.refused},
                                 {"failed", result.failed},
                                 {"unfinished", result.unfinished}}},
                               {"error", nullptr},
                               {"prompt_tokens", result.prompt_tokens},
                               {"prompt_tokens_per_s", result.prompt_tokens_per_s()},
                               {"generated_tokens", result.generated_tokens},
                               {"generated_tokens_per_s", result.generated_tokens_per_s()},
                               {"first_token_ms", times_json(result.first_token)},
                               {"gap_ms", times_json(result.gap)},
                               {"latency_ms", times_json(result.latency)},
                               {"long_prompt", nullptr},
                               {"queue_peak", result.queue_peak},
                               {"running_peak", result.running_peak},
                               {"preemptions", result.preemptions},
                               {"cache",
                                {{"hit_tokens", result.cache_hit_tokens},
                                 {"miss_tokens", result.cache_miss_tokens},
                                 {"hit_rate", result.cache_hit_rate()}}},
                               {"kv_peak_share", result.kv_peak},
                               {"steps", result.steps},
                               {"failed_steps", result.failed_steps},
                               {"prompt_rows", result.prompt_rows},
                               {"generated_rows", result.generated_rows},
                               {"rows_per_step", result.rows_per_step()}};
  if (!result.error.empty()) value["error"] = result.error;
  if (result.long_prompt) {
    value["long_prompt"] = {{"tokens", result.long_prompt->tokens},
                            {"first_token_ms", result.long_prompt->first_token},
                            {"latency_ms", result.long_prompt->latency}};
  }
  return value;
}

std::string settings_text(const ServeBenchSettings& settings) {
  const LoadSettings& load = settings.load;
  std::string text =
      load.open_loop()
          ? fmt::format("load     {} requests, {:g} a second at random", load.requests, load.rate)
          : fmt::format("load     {} requests of {} client{}", load.requests, load.clients, plural(load.clients));
  text += fmt::format(", prompts of {} tokens, answers of {}", range_text(load.prompt), range_text(load.output));
  if (load.shared_prefix > 0) text += fmt::format(", the first {} shared", load.shared_prefix);
  if (load.long_prompt > 0) text += fmt::format("; one prompt of {} among them", load.long_prompt);
  text += fmt::format("\nengine   {} sequence{} at once, cache of {} tokens", settings.sequences,
                      plural(settings.sequences), settings.cache_tokens);
  if (!settings.prefix_cache) text += ", no prefix cache";
  if (settings.chunk > 0) text += fmt::format(", steps of {} rows at most", settings.chunk);
  return text + "\n";
}

std::string result_text(const ServeResult& result) {
  using Side = TextTable::Side;
  std::string text =
      fmt::format("requests {} finished, {} refused, {} failed", result.finished, result.refused, result.failed);
  if (result.unfinished > 0) text += fmt::format(", {} unfinished", result.unfinished);
  text += fmt::format(" in {}\n", human_duration(result.seconds));
  if (!result.error.empty()) text += fmt::format("error    {}\n", printable(result.error, 400));
  text += fmt::format("tokens   {:.1f} generated a second, {:.1f} of prompts\n", result.generated_tokens_per_s(),
                      result.prompt_tokens_per_s());
  text += fmt::format("steps    {}, {:.1f} rows each; {} running and {} waiting at most, {} preemption{}\n",
                      result.steps, result.rows_per_step(), result.running_peak, result.queue_peak, result.preemptions,
                      plural(static_cast<std::int64_t>(result.preemptions)));
  text += fmt::format("cache    had {:.1f} % of the prompts' tokens; running texts held {:.1f} % of it at most\n\n",
                      100.0 * result.cache_hit_rate(), 100.0 * result.kv_peak);
  TextTable table({{"milliseconds", Side::left},
                   {"p50", Side::right},
                   {"p95", Side::right},
                   {"p99", Side::right},
                   {"longest", Side::right}});
  const auto add = [&](const char* name, const Percentiles& times) {
    const auto cell = [&](double value) { return times.count > 0 ? fmt::format("{:.2f}", value) : std::string("-"); };
    table.add_row({name, cell(times.p50), cell(times.p95), cell(times.p99), cell(times.max)});
  };
  add("to the first token", result.first_token);
  add("between tokens", result.gap);
  add("whole answers", result.latency);
  text += table.text();
  if (result.long_prompt) {
    text += fmt::format("\nThe prompt of {} tokens had its first token after {} and its whole answer after {}.\n",
                        result.long_prompt->tokens, human_duration(result.long_prompt->first_token / 1e3),
                        human_duration(result.long_prompt->latency / 1e3));
  }
  return text;
}

}  // namespace quarrel
