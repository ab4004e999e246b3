#include "app/chat_commands.h"

#include <fmt/ranges.h>

#include <filesystem>

#include "app/observation_text.h"
#include "app/progress_bar.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"

namespace quarrel {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// The first word and, trimmed, what follows it.
std::pair<std::string_view, std::string_view> split_word(std::string_view text) {
  text = trim(text);
  const std::size_t end = text.find_first_of(" \t");
  if (end == std::string_view::npos) return {text, {}};
  return {text.substr(0, end), trim(text.substr(end))};
}

std::filesystem::path path_of(std::string_view text) {
  if (text != "~" && !text.starts_with("~/")) return text;
  const std::filesystem::path home = environment("HOME").value_or("");
  return text == "~" ? home : home / text.substr(2);
}

void say(std::string_view sentence) { write_output(fmt::format("{}\n", sentence)); }

std::string rate(std::size_t count, double seconds) {
  return seconds > 0.0 ? fmt::format("{:.2f} tokens/s", static_cast<double>(count) / seconds) : "-";
}

}  // namespace

std::string timing_text(const Reply& reply, double total_seconds, double load_seconds) {
  const std::size_t fed = reply.prompt_tokens - reply.cached_tokens;
  // The first token is the prompt's doing: its time is counted there.
  const std::size_t timed = reply.tokens.empty() ? 0 : reply.tokens.size() - 1;
  std::string text;
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("{:<22}{}\n", fmt::format("{}:", name), value);
  };
  line("total duration", human_duration(total_seconds));
  line("load duration", human_duration(load_seconds));
  line("prompt eval count", fmt::format("{} token(s)", fed));
  if (reply.cached_tokens > 0) line("prompt cached count", fmt::format("{} token(s)", reply.cached_tokens));
  line("prompt eval duration", human_duration(reply.prompt_seconds));
  line("prompt eval rate", rate(fed, reply.prompt_seconds));
  line("eval count", fmt::format("{} token(s)", reply.tokens.size()));
  line("eval duration", human_duration(reply.generate_seconds));
  line("eval rate", rate(timed, reply.generate_seconds));
  line("seed", fmt::format("{}", reply.seed));
  return text + observation_text(reply.seen);
}

const ChatLoop::Command ChatLoop::kCommands[] = {
    {"help", "/help", "this list", &ChatLoop::help},
    {"set", "/set [PARAMETER VALUE]", "changes a parameter; alone, shows all of them", &ChatLoop::set},
    {"system", "/system [TEXT]", "sets the system prompt; alone, removes it", &ChatLoop::system},
    {"clear", "/clear", "forgets the conversation", &ChatLoop::clear},
    {"save", "/save FILE", "keeps the conversation as JSON", &ChatLoop::save},
    {"load", "/load FILE", "goes on with a conversation that was saved", &ChatLoop::load},
    {"show", "/show", "the model, its context, the conversation", &ChatLoop::show},
    {"bye", "/bye", "leaves, as Ctrl-D does", &ChatLoop::bye},
    {"?", nullptr, nullptr, &ChatLoop::help},
    {"exit", nullptr, nullptr, &ChatLoop::bye},
};

ChatLoop::ChatLoop(ChatSession& session, ChatParameters parameters)
    : session_(session), parameters_(std::move(parameters)), reader_(history_path()) {
  conversation_.system = parameters_.system;
}

void ChatLoop::run() {
  say(fmt::format("{} on {}, context {}. /help lists commands.", printable(session_.name()), session_.device(),
                  session_.executor().context()));
  Next next = Next::go_on;
  while (next == Next::go_on) {
    const auto [input, quoted] = read_message();
    switch (input.event) {
      case LineEvent::end: say(""); return;
      case LineEvent::interrupted: next = interrupted(input.text); break;
      case LineEvent::line:
        hinted_ = false;
        try {
          if (input.text.starts_with('/') && !quoted) {
            next = command(input.text);
          } else if (!trim(input.text).empty()) {
            next = send(input.text);
          }
        } catch (const Error& error) {
          say(fmt::format("error: {}", error.what()));
        }
    }
  }
}

ChatLoop::Typed ChatLoop::read_message() {
  // A Ctrl-C between two lines comes as a signal, which no reader would see.
  if (interrupts_.requested()) return {.input = {.event = LineEvent::interrupted, .text = {}}};
  LineInput input = reader_.read(">>> ");
  if (input.event != LineEvent::line) return {.input = std::move(input)};
  reader_.remember(input.text);
  if (!input.text.starts_with(kQuotes)) return {.input = std::move(input)};
  return {.input = read_quoted(input.text.substr(kQuotes.size())), .quoted = true};
}

LineInput ChatLoop::read_quoted(std::string first) {
  std::string text;
  std::string line = std::move(first);
  for (;;) {
    if (line.ends_with(kQuotes)) {
      text += line.substr(0, line.size() - kQuotes.size());
      return {.event = LineEvent::line, .text = std::move(text)};
    }
    text += line + "\n";
    LineInput more = reader_.read("... ");
    if (more.event != LineEvent::line) return more;
    reader_.remember(more.text);
    line = std::move(more.text);
  }
}

ChatLoop::Next ChatLoop::interrupted(const std::string& line) {
  const bool again = interrupts_.take() > 1 || (hinted_ && line.empty());
  say("");
  if (again || interrupts_.terminated()) return Next::leave;
  if (line.empty()) say("Ctrl-C once more, Ctrl-D or /bye leaves.");
  hinted_ = line.empty();
  return Next::go_on;
}

ChatLoop::Next ChatLoop::command(std::string_view line) {
  const auto [word, argument] = split_word(line.substr(1));
  std::vector<std::string> names;
  for (const Command& known : kCommands) {
    if (word == known.name) return (this->*known.act)(argument);
    names.emplace_back(known.name);
  }
  const std::vector<std::string> near = nearest(word, names, 1);
  say(fmt::format("There is no command /{}{}. A message that begins with a slash goes between {}.", printable(word, 32),
                  near.empty() ? "; /help lists them" : "; did you mean /" + near.front() + "?", kQuotes));
  return Next::go_on;
}

ChatLoop::Next ChatLoop::send(const std::string& text) {
  conversation_.system = parameters_.system;
  conversation_.messages.push_back({.role = "user", .content = text});
  const auto start = Clock::now();
  Reply reply;
  interrupts_.take();
  const auto show_text = [](std::string_view piece) { write_output(without_control(piece)); };
  try {
    reply = session_.raw() ? session_.complete(text, parameters_, interrupts_.requested(), show_text)
                           : session_.answer(conversation_, parameters_, interrupts_.requested(), show_text);
  } catch (const Error& error) {
    conversation_.messages.pop_back();
    say(fmt::format("error: {}", error.what()));
    say("Your message was not kept. /clear begins a new conversation, /save keeps this one.");
    return Next::go_on;
  }
  say("");
  if (reply.reason == FinishReason::cancelled && reply.text.empty()) {
    conversation_.messages.pop_back();
    say("Stopped before the answer began; your message was not kept.");
  } else {
    conversation_.messages.push_back({.role = "assistant", .content = reply.text});
  }
  if (reply.reason == FinishReason::context) {
    say(fmt::format("The context of {} tokens is full. /clear begins a new conversation, /save keeps this one.",
                    session_.executor().context()));
  }
  if (parameters_.verbose) {
    const double total = seconds_since(start);
    write_error(timing_text(reply, total, session_.load_seconds()));
  }
  say("");
  const int presses = interrupts_.take();
  hinted_ = presses > 0;
  return presses > 1 || interrupts_.terminated() ? Next::leave : Next::go_on;
}

ChatLoop::Next ChatLoop::help(std::string_view) {
  for (const Command& known : kCommands) {
    if (known.usage != nullptr) say(fmt::format("  {:<24}{}", known.usage, known.help));
  }
  say(fmt::format("\n  {}                     begins and ends a message of several lines", kQuotes));
  say("  Ctrl-C                  stops the answer; twice leaves");
  say("\nParameters of /set:");
  for (const ParameterInfo& info : list_parameters(parameters_)) say(fmt::format("  {:<24}{}", info.name, info.help));
  return Next::go_on;
}

ChatLoop::Next ChatLoop::set(std::string_view argument) {
  auto [name, value] = split_word(argument);
  if (name == "parameter") std::tie(name, value) = split_word(value);
  if (name.empty()) {
    for (const ParameterInfo& info : list_parameters(parameters_)) {
      say(fmt::format("  {:<24}{}", info.name, printable(info.value, 256)));
    }
    return Next::go_on;
  }
  set_parameter(parameters_, name, value);
  return Next::go_on;
}

ChatLoop::Next ChatLoop::system(std::string_view argument) {
  parameters_.system = argument;
  say(argument.empty() ? "There is no system prompt now." : "The system prompt is set.");
  return Next::go_on;
}

ChatLoop::Next ChatLoop::clear(std::string_view) {
  conversation_.messages.clear();
  say("The conversation is forgotten.");
  return Next::go_on;
}

ChatLoop::Next ChatLoop::save(std::string_view argument) {
  if (argument.empty()) fail(ErrorKind::usage, "/save needs the name of a file");
  const std::filesystem::path path = path_of(argument);
  conversation_.system = parameters_.system;
  save_conversation(conversation_, path);
  say(fmt::format("Saved {} message(s) to '{}'.", conversation_.messages.size(), printable(path.string())));
  return Next::go_on;
}

ChatLoop::Next ChatLoop::load(std::string_view argument) {
  if (argument.empty()) fail(ErrorKind::usage, "/load needs the name of a file");
  const std::filesystem::path path = path_of(argument);
  conversation_ = load_conversation(path);
  parameters_.system = conversation_.system;
  say(fmt::format("Loaded {} message(s) from '{}'.", conversation_.messages.size(), printable(path.string())));
  return Next::go_on;
}

ChatLoop::Next ChatLoop::show(std::string_view) {
  const Executor& executor = session_.executor();
  say(fmt::format("  {:<24}{}", "model", printable(session_.name())));
  say(fmt::format("  {:<24}{}", "file", printable(executor.file().path().string(), 512)));
  say(fmt::format("  {:<24}{}", "architecture", printable(executor.spec().architecture)));
  say(fmt::format("  {:<24}{}", "runs on", session_.device()));
  say(fmt::format("  {:<24}{} of {} tokens", "context", session_.cached_tokens(), executor.context()));
  say(fmt::format("  {:<24}{}", "template", session_.raw() ? "none" : printable(session_.template_origin())));
  say(fmt::format("  {:<24}{}", "messages", conversation_.messages.size()));
  say(fmt::format("  {:<24}{}", "system", printable(parameters_.system, 256)));
  return Next::go_on;
}

ChatLoop::Next ChatLoop::bye(std::string_view) { return Next::leave; }

}  // namespace quarrel
