#include "app/chat_commands.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "app/answer_view.h"
#include "app/chat_completion.h"
#include "app/observation_text.h"
#include "app/progress_bar.h"
#include "app/word_wrap.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "store/store.h"

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

// Broken between words, as an answer is.
void say(std::string_view sentence) {
  const bool wraps = moves_cursor(Stream::output);
  WordWrap wrap([&] { return wraps ? terminal_columns(Stream::output) : 0; });
  write_output(wrap.push(fmt::format("{}\n", sentence)));
}
void say_field(std::string_view name, std::string_view value) { say(fmt::format("  {:<24}{}", name, value)); }

// Names of models that can be had without fetching anything.
std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ListedModel& model : ModelStore(StorePaths::from_environment()).list()) {
    if (model.problem.empty()) names.push_back(model.name);
  }
  return names;
}

// Anything else is not overwritten at all.
bool is_conversation(const std::filesystem::path& path) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) return false;
  try {
    load_conversation(path);
    return true;
  } catch (const Error&) {
    return false;
  }
}

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
    {"set", "/set [PARAMETER [VALUE]]", "changes a parameter (\"\" clears it) or shows it; alone, all", &ChatLoop::set},
    {"system", "/system [TEXT]", "sets the system prompt; alone, removes it", &ChatLoop::system},
    {"clear", "/clear", "forgets the conversation", &ChatLoop::clear},
    {"save", "/save FILE", "keeps the conversation as JSON", &ChatLoop::save},
    {"load", "/load FILE", "goes on with a conversation that was saved", &ChatLoop::load},
    {"show", "/show [SUBJECT]", "info, license, messages, parameters, system or template", &ChatLoop::show},
    {"bye", "/bye", "leaves, as Ctrl-D does", &ChatLoop::bye},
    {"?", nullptr, nullptr, &ChatLoop::help},
    {"exit", nullptr, nullptr, &ChatLoop::bye},
};

const ChatLoop::Subject ChatLoop::kSubjects[] = {
    {"info", "the model, its context, the conversation", &ChatLoop::show_info},
    {"license", "under which the model is given", &ChatLoop::show_license},
    {"messages", "what was said so far", &ChatLoop::show_messages},
    {"parameters", "what /set changes", &ChatLoop::show_parameters},
    {"system", "the system prompt", &ChatLoop::show_system},
    {"template", "the chat template's source", &ChatLoop::show_template},
};

ChatLoop::ChatLoop(ChatSession& session, ChatParameters parameters)
    : session_(session),
      parameters_(std::move(parameters)),
      reader_(history_path(), [this](std::string_view text, std::size_t cursor) { return complete(text, cursor); }) {
  conversation_.system = parameters_.system;
}

Completion ChatLoop::complete(std::string_view text, std::size_t cursor) const {
  ChatWords words{.models = model_names};
  for (const Command& command : kCommands) {
    if (command.usage != nullptr) words.commands.emplace_back(command.name);
  }
  for (const ParameterInfo& info : list_parameters(parameters_)) words.parameters.push_back(info.name);
  for (const Subject& subject : kSubjects) words.subjects.emplace_back(subject.name);
  return complete_chat(words, text, cursor);
}

void ChatLoop::say_error(std::string_view sentence) const {
  say(fmt::format("{} {}", palette_.paint(Style::error, "error:"), sentence));
}

void ChatLoop::notice(std::string_view sentence) const { say(palette_.paint(Style::notice, sentence)); }

bool ChatLoop::confirm(std::string_view question) {
  const std::string prompt = fmt::format("{} [y/N] ", question);
  const LineInput answer = reader_.read({.plain = prompt, .shown = prompt}, LineUse::answer);
  if (answer.event != LineEvent::line) {
    interrupts_.take();
    say("");
  }
  const std::string_view word = trim(answer.text);
  return answer.event == LineEvent::line && (word == "y" || word == "Y" || word == "yes");
}

void ChatLoop::run() {
  say(fmt::format("{} on {}, context {}. /help lists commands.", printable(session_.model().name()),
                  session_.model().device_description(), session_.model().context()));
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
          say_error(error.what());
        }
    }
  }
}

ChatLoop::Typed ChatLoop::read_message() {
  // A Ctrl-C between two lines comes as a signal, which no reader would see.
  if (interrupts_.requested()) return {.input = {.event = LineEvent::interrupted, .text = {}}};
  LineInput input = reader_.read({.plain = ">>> ", .shown = palette_.paint(Style::prompt, ">>> ")});
  if (input.event != LineEvent::line) return {.input = std::move(input)};
  if (input.dropped > 0) notice(fmt::format("That was too long: the last {} bytes were left out.", input.dropped));
  if (input.text.starts_with(kQuotes)) {
    return {.input = read_quoted(input.text.substr(kQuotes.size())), .quoted = true};
  }
  reader_.remember(input.text);
  return {.input = std::move(input)};
}

LineInput ChatLoop::read_quoted(std::string first) {
  std::string text;
  std::string line = std::move(first);
  for (;;) {
    if (line.ends_with(kQuotes)) {
      text += line.substr(0, line.size() - kQuotes.size());
      reader_.remember(fmt::format("{}{}{}", kQuotes, text, kQuotes));
      return {.event = LineEvent::line, .text = std::move(text)};
    }
    text += line + "\n";
    LineInput more = reader_.read({.plain = "... ", .shown = palette_.paint(Style::prompt, "... ")});
    if (more.event != LineEvent::line) return more;
    line = std::move(more.text);
  }
}

ChatLoop::Next ChatLoop::interrupted(const std::string& line) {
  const bool again = interrupts_.take() > 1 || (hinted_ && line.empty());
  say("");
  if (again || interrupts_.terminated()) return Next::leave;
  if (line.empty()) notice("Ctrl-C once more, Ctrl-D or /bye leaves.");
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
  try {
    AnswerView view;
    const auto show_text = [&](std::string_view piece) { view.show(piece); };
    reply = session_.raw() ? session_.complete(text, parameters_, interrupts_.requested(), show_text)
                           : session_.answer(conversation_, parameters_, interrupts_.requested(), show_text);
    view.finish();
  } catch (const Error& error) {
    conversation_.messages.pop_back();
    say_error(error.what());
    notice("Your message was not kept. /clear begins a new conversation, /save keeps this one.");
    return Next::go_on;
  }
  say("");
  if (reply.reason == FinishReason::cancelled && reply.text.empty()) {
    conversation_.messages.pop_back();
    notice("Stopped before the answer began; your message was not kept.");
  } else {
    conversation_.messages.push_back({.role = "assistant", .content = reply.text});
  }
  if (reply.reason == FinishReason::context) {
    notice(fmt::format("The context of {} tokens is full. /clear begins a new conversation, /save keeps this one.",
                       session_.model().context()));
  }
  if (parameters_.verbose) {
    const double total = seconds_since(start);
    write_error(timing_text(reply, total, session_.model().load_seconds()));
  }
  say("");
  const int presses = interrupts_.take();
  hinted_ = presses > 0;
  return presses > 1 || interrupts_.terminated() ? Next::leave : Next::go_on;
}

ChatLoop::Next ChatLoop::help(std::string_view) {
  for (const Command& known : kCommands) {
    if (known.usage != nullptr) say(fmt::format("  {:<26}{}", known.usage, known.help));
  }
  say("");
  say(fmt::format("  {:<26}{}", kQuotes, "begins and ends a message of several lines; so does pasting them"));
  say(fmt::format("  {:<26}{}", "Alt-Enter", "begins another line of the message"));
  say(fmt::format("  {:<26}{}", "Tab", "completes commands, parameters and files"));
  say(fmt::format("  {:<26}{}", "Ctrl-R", "searches what was typed before"));
  say(fmt::format("  {:<26}{}", "Ctrl-C", "stops the answer; twice leaves"));
  say("\nParameters of /set:");
  for (const ParameterInfo& info : list_parameters(parameters_)) say(fmt::format("  {:<26}{}", info.name, info.help));
  return Next::go_on;
}

ChatLoop::Next ChatLoop::set(std::string_view argument) {
  auto [name, value] = split_word(argument);
  if (name == "parameter") std::tie(name, value) = split_word(value);
  if (name.empty()) {
    show_parameters();
    return Next::go_on;
  }
  // A name alone asks; two quotes are how nothing is written.
  const bool asks = value.empty() && name != "verbose";
  if (value == "\"\"") value = {};
  if (!asks) set_parameter(parameters_, name, value);
  const std::vector<ParameterInfo> known = list_parameters(parameters_);
  const auto info = std::find_if(known.begin(), known.end(), [&](const auto& row) { return row.name == name; });
  if (info == known.end()) set_parameter(parameters_, name, value);  // says what is wrong with the name
  say_field(info->name, info->value.empty() ? "(none)" : printable(info->value, 256));
  if (asks) notice(fmt::format("  {}", info->help));
  return Next::go_on;
}

ChatLoop::Next ChatLoop::system(std::string_view argument) {
  parameters_.system = argument;
  notice(argument.empty() ? "There is no system prompt now." : "The system prompt is set.");
  return Next::go_on;
}

ChatLoop::Next ChatLoop::clear(std::string_view) {
  conversation_.messages.clear();
  notice("The conversation is forgotten.");
  return Next::go_on;
}

ChatLoop::Next ChatLoop::save(std::string_view argument) {
  if (argument.empty()) fail(ErrorKind::usage, "/save needs the name of a file");
  const std::filesystem::path path = expand_home(argument);
  conversation_.system = parameters_.system;
  if (is_conversation(path) && !confirm(fmt::format("'{}' already exists. Overwrite it?", printable(path.string())))) {
    notice("Nothing was saved.");
    return Next::go_on;
  }
  save_conversation(conversation_, path);
  notice(fmt::format("Saved {} message(s) to '{}'.", conversation_.messages.size(), printable(path.string())));
  return Next::go_on;
}

ChatLoop::Next ChatLoop::load(std::string_view argument) {
  if (argument.empty()) fail(ErrorKind::usage, "/load needs the name of a file");
  const std::filesystem::path path = expand_home(argument);
  conversation_ = load_conversation(path);
  parameters_.system = conversation_.system;
  notice(fmt::format("Loaded {} message(s) from '{}'.", conversation_.messages.size(), printable(path.string())));
  return Next::go_on;
}

ChatLoop::Next ChatLoop::show(std::string_view argument) {
  std::vector<std::string> names;
  for (const Subject& subject : kSubjects) {
    if (argument == subject.name || (argument.empty() && &subject == kSubjects)) {
      (this->*subject.show)();
      return Next::go_on;
    }
    names.emplace_back(subject.name);
  }
  fail(ErrorKind::usage, "/show does not know '{}'; it knows {}", printable(argument, 32), fmt::join(names, ", "));
}

void ChatLoop::show_info() const {
  const Executor& executor = session_.model().executor();
  say_field("model", printable(session_.model().name()));
  say_field("file", printable(executor.file().path().string(), 512));
  say_field("architecture", printable(executor.spec().architecture));
  say_field("runs on", session_.model().device_description());
  say_field("context", fmt::format("{} of {} tokens", session_.cached_tokens(), executor.context()));
  say_field("template", session_.raw() ? "none" : printable(session_.model().template_origin()));
  say_field("messages", fmt::format("{}", conversation_.messages.size()));
  say_field("system", printable(parameters_.system, 256));
}

void ChatLoop::show_parameters() const {
  for (const ParameterInfo& info : list_parameters(parameters_)) say_field(info.name, printable(info.value, 256));
}

void ChatLoop::show_messages() const {
  if (conversation_.messages.empty()) notice("Nothing was said yet.");
  for (const ChatMessage& message : conversation_.messages) {
    say(fmt::format("{} {}", palette_.paint(Style::prompt, message.role + ":"), without_control(message.content)));
  }
}

void ChatLoop::show_system() const {
  if (parameters_.system.empty()) return notice("There is no system prompt.");
  say(without_control(parameters_.system));
}

void ChatLoop::show_template() const {
  if (session_.raw()) return notice("There is no template: texts are continued as they are.");
  say(without_control(session_.model().require_template().source()));
}

void ChatLoop::show_license() const {
  const std::string_view license = session_.model().executor().file().string("general.license").value_or("");
  if (license.empty()) return notice("The model's file names no license.");
  say(without_control(license));
}

ChatLoop::Next ChatLoop::bye(std::string_view) { return Next::leave; }

}  // namespace quarrel
