#include "app/reply_timing.h"

#include <fmt/format.h>

#include "app/observation_text.h"
#include "app/progress_bar.h"
#include "base/counted.h"

namespace quarrel {
namespace {

std::string rate(std::size_t count, double seconds) {
  return seconds > 0.0 ? fmt::format("{:.2f} tokens/s", static_cast<double>(count) / seconds) : "-";
}

}  // namespace

std::string timing_text(const Reply& reply, double total_seconds, double load_seconds) {
  const std::size_t fed = reply.prompt_tokens - reply.cached_tokens;
  // The first token is the prompt's doing: its time is counted there.
  const std::size_t timed = reply.generated == 0 ? 0 : reply.generated - 1;
  std::string text;
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("{:<22}{}\n", fmt::format("{}:", name), value);
  };
  line("total duration", human_duration(total_seconds));
  line("load duration", human_duration(load_seconds));
  line("prompt eval count", counted(fed, "token"));
  if (reply.cached_tokens > 0) line("prompt cached count", counted(reply.cached_tokens, "token"));
  line("prompt eval duration", human_duration(reply.prompt_seconds));
  line("prompt eval rate", rate(fed, reply.prompt_seconds));
  line("eval count", counted(reply.generated, "token"));
  line("eval duration", human_duration(reply.generate_seconds));
  line("eval rate", rate(timed, reply.generate_seconds));
  line("seed", fmt::format("{}", reply.seed));
  return text + observation_text(reply.seen);
}

}  // namespace quarrel
