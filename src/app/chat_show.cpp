// What /show tells.
#include <fmt/ranges.h>

#include "app/chat_loop.h"
#include "app/chat_text.h"
#include "base/error.h"
#include "base/printable.h"

namespace quarrel {

const ChatLoop::Subject ChatLoop::kSubjects[] = {
    {"info", "the model, its context, the conversation", &ChatLoop::show_info},
    {"license", "the model's license", &ChatLoop::show_license},
    {"messages", "what was said so far", &ChatLoop::show_messages},
    {"parameters", "what /set changes", &ChatLoop::show_parameters},
    {"system", "the system prompt", &ChatLoop::show_system},
    {"template", "the chat template's source", &ChatLoop::show_template},
};

ChatLoop::Next ChatLoop::show(std::string_view argument) {
  for (const Subject& subject : kSubjects) {
    if (argument != subject.name && !(argument.empty() && &subject == kSubjects)) continue;
    (this->*subject.show)();
    return Next::go_on;
  }
  fail(ErrorKind::usage, "/show does not know '{}'; it knows {}", printable(argument, 32),
       fmt::join(subject_names(), ", "));
}

std::vector<std::string> ChatLoop::subject_names() {
  std::vector<std::string> names;
  for (const Subject& subject : kSubjects) names.emplace_back(subject.name);
  return names;
}

void ChatLoop::show_info() const {
  const ChatModelFacts& facts = session_->facts();
  say_field("model", printable(facts.name));
  say_field("file", printable(facts.path, 512));
  say_field("architecture", printable(facts.architecture));
  say_field("runs on", facts.runs_on);
  say_field("context", fmt::format("{} of {} tokens", session_->cached_tokens(), facts.context));
  say_field("template", session_->raw() ? "none" : printable(facts.template_origin));
  say_field("sampling", facts.recommended.origin.empty() ? "nothing is recommended" : facts.recommended.summary());
  say_field("messages", fmt::format("{}{}", conversation_.messages.size(),
                                    first_sent_ == 0 ? "" : fmt::format(", the first {} dropped", first_sent_)));
  say_field("system", printable(parameters_.system, 256));
}

void ChatLoop::show_parameters() const {
  for (const ParameterInfo& info : list_parameters(parameters_)) say_field(info.name, printable(info.value, 256));
  const std::string recommended = session_->facts().recommended.summary();
  if (!recommended.empty()) notice(fmt::format("  Recommended: {}.", recommended));
}

void ChatLoop::show_messages() const {
  if (conversation_.messages.empty()) notice("No messages yet.");
  for (const ChatMessage& message : conversation_.messages) {
    say(fmt::format("{} {}", palette_.paint(Style::prompt, message.role + ":"), without_control(message.content)));
  }
}

void ChatLoop::show_system() const {
  if (parameters_.system.empty()) return notice("There is no system prompt.");
  say(without_control(parameters_.system));
}

void ChatLoop::show_template() const {
  if (session_->raw()) return notice("There is no template: texts are continued as they are.");
  say(without_control(session_->template_source()));
}

void ChatLoop::show_license() const {
  const std::string& license = session_->facts().license;
  if (license.empty()) return notice("The model's file names no license.");
  say(without_control(license));
}

}  // namespace quarrel
