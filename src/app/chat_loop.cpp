#include "app/chat_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "app/answer_view.h"
#include "app/chat_text.h"
#include "app/reply_timing.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"

namespace quarrel {
namespace {

constexpr std::string_view kNotBegun = "Stopped before the answer began; your message was not kept.";

}  // namespace

ChatLoop::ChatLoop(std::unique_ptr<ChatSession> session, std::string name, GivenParameters given, Open open,
                   ChatContext* context)
    : session_(std::move(session)),
      name_(std::move(name)),
      given_(std::move(given)),
      open_(std::move(open)),
      context_(context),
      parameters_(session_->parameters(given_)),
      reader_(history_path(), [this](std::string_view text, std::size_t cursor) { return complete(text, cursor); }) {
  conversation_.system = parameters_.system;
}

void ChatLoop::say_model() const {
  const ChatModelFacts& facts = session_->facts();
  say(fmt::format("{} on {}, context {}.", printable(facts.name), facts.runs_on, facts.context));
}

void ChatLoop::say_error(std::string_view sentence) const {
  say(fmt::format("{} {}", palette_.paint(Style::error, "error:"), sentence));
}

void ChatLoop::notice(std::string_view sentence) const { say(palette_.paint(Style::notice, sentence)); }

bool ChatLoop::confirm(std::string_view question) {
  // On a line of its own: a prompt that leaves no room for what is typed is not shown at all.
  notice(question);
  const LineInput answer = reader_.read({.plain = "[y/N] ", .shown = "[y/N] "}, LineUse::answer);
  if (answer.event != LineEvent::line) {
    interrupts_.take();
    say("");
  }
  const std::string_view word = trim(answer.text);
  return answer.event == LineEvent::line && (word == "y" || word == "Y" || word == "yes");
}

void ChatLoop::run() {
  say_model();
  notice("/help lists commands.");
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
        } catch (const std::bad_alloc&) {
          say_error("out of memory");
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

ChatLoop::Next ChatLoop::send(const std::string& text) {
  conversation_.system = parameters_.system;
  conversation_.messages.push_back({.role = "user", .content = text});
  // Nothing of a turn that fails is kept: neither the message nor what was dropped to make room for it.
  const auto take_back = [this, first_sent = first_sent_] {
    conversation_.messages.pop_back();
    first_sent_ = first_sent;
  };
  const auto start = Clock::now();
  Reply reply;
  interrupts_.take();
  try {
    reply = reply_to(text);
    if (reply.reason == FinishReason::cancelled && reply.text.empty()) fail(ErrorKind::cancelled, "{}", kNotBegun);
  } catch (const Error& error) {
    take_back();
    if (error.kind() == ErrorKind::cancelled) {
      notice(kNotBegun);
      return after_turn();
    }
    say_error(error.what());
    notice(fmt::format("Your message was not kept.{}", way_on()));
    return Next::go_on;
  } catch (...) {
    take_back();
    throw;
  }
  end_turn(reply);
  if (parameters_.verbose) write_error(timing_text(reply, seconds_since(start), session_->facts().load_seconds));
  say("");
  return after_turn();
}

// What may help after a turn that failed: nothing of this, where no earlier turn could be in the way.
std::string ChatLoop::way_on() const {
  if (conversation_.messages.empty() || session_->raw()) return "";
  return fmt::format(
      " /clear begins a new conversation, /save keeps this one{}.",
      parameters_.overflow == ContextOverflow::stop ? ", /set overflow drop continues without the oldest turns" : "");
}

ChatLoop::Next ChatLoop::after_turn() {
  return interrupts_.take() > 1 || interrupts_.terminated() ? Next::leave : Next::go_on;
}

// A server that held the model may have ended since the last turn: then it is loaded here, and the chat goes on.
Reply ChatLoop::reply_to(const std::string& text) {
  const auto try_it = [&] {
    const Conversation conversation = sent();
    if (!session_->raw() && parameters_.overflow == ContextOverflow::drop) drop_turns(conversation);
    return answer(text, conversation);
  };
  try {
    return try_it();
  } catch (const ChatLostError& lost) {
    notice(fmt::format("{}: the model is loaded here.", lost.what()));
    session_ = open_(name_, Where::here);
    session_->check(parameters_);  // a server's vocabulary was not known
  }
  return try_it();
}

Conversation ChatLoop::sent() {
  return context_ == nullptr ? conversation_ : context_->asked(conversation_, *session_, interrupts_);
}

// What does not fit even without them is refused by the engine, with both numbers.
void ChatLoop::drop_turns(const Conversation& sent) {
  const auto first = session_->first_fitting(sent, parameters_, first_sent_);
  if (!first || *first == first_sent_) return;
  const auto turns = std::ranges::count_if(turn_starts(conversation_),
                                           [&](std::size_t start) { return start >= first_sent_ && start < *first; });
  first_sent_ = *first;
  notice(fmt::format("The context of {} tokens is full: {} dropped.", session_->facts().context,
                     turns == 1 ? "the oldest turn was" : fmt::format("the {} oldest turns were", turns)));
}

Reply ChatLoop::answer(const std::string& text, const Conversation& sent) {
  AnswerView view;
  const ReplySink sink{.text = [&](std::string_view piece) { view.show(piece); },
                       .progress = [&](std::size_t done, std::size_t total) { view.progress(done, total); },
                       .cancelled = [&] { return interrupts_.requested().load(std::memory_order_relaxed); }};
  Reply reply = session_->raw() ? session_->complete(text, parameters_, sink)
                                : session_->answer(sent, parameters_, sink, first_sent_);
  view.finish();
  if (context_ != nullptr) notice(context_->sources_text());
  return reply;
}

void ChatLoop::end_turn(const Reply& reply) {
  conversation_.messages.push_back({.role = "assistant", .content = reply.text});
  if (reply.reason != FinishReason::context) return;
  warn(fmt::format("The answer was cut: {}.{}", session_->full_context(),
                   parameters_.overflow == ContextOverflow::drop ? "" : way_on()));
}

}  // namespace quarrel
