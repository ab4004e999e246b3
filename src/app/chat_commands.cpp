// What the lines that begin with a slash do; /show is in chat_show.cpp.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>

#include "app/chat_completion.h"
#include "app/chat_loop.h"
#include "app/chat_text.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "server/model_abilities.h"
#include "store/store.h"

namespace quarrel {
namespace {

// A model that was removed since it was listed does not.
bool generates(const ModelStore& store, const std::string& name) {
  try {
    const Json abilities = read_abilities(store.resolve_name(name).path).capabilities;
    return std::ranges::find(abilities, "completion") != abilities.end();
  } catch (const Error&) {
    return false;
  }
}

// Models to chat with that can be had without fetching anything.
std::vector<ListedModel> chat_models() {
  const ModelStore store(StorePaths::from_environment());
  std::vector<ListedModel> models = store.list();
  std::erase_if(models, [&](const ListedModel& model) { return !model.usable || !generates(store, model.name); });
  return models;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ListedModel& model : chat_models()) {
    names.push_back(model.name);
    if (!model.alias.empty()) names.push_back(model.alias);
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

}  // namespace

const ChatLoop::Command ChatLoop::kCommands[] = {
    {"help", "/help", "this list", &ChatLoop::help},
    {"set", "/set [PARAMETER [VALUE]]", "changes a parameter (\"\" clears it) or shows it; alone, all", &ChatLoop::set},
    {"model", "/model [NAME]", "continues with another model; without NAME, lists the models", &ChatLoop::model},
    {"system", "/system [TEXT]", "sets the system prompt; alone, removes it", &ChatLoop::system},
    {"clear", "/clear", "forgets the conversation", &ChatLoop::clear},
    {"save", "/save FILE", "keeps the conversation as JSON", &ChatLoop::save},
    {"load", "/load FILE", "continues a saved conversation", &ChatLoop::load},
    {"show", "/show [SUBJECT]", "info, license, messages, parameters, system or template", &ChatLoop::show},
    {"bye", "/bye", "leaves, as Ctrl-D does", &ChatLoop::bye},
    {"?", nullptr, nullptr, &ChatLoop::help},
    {"exit", nullptr, nullptr, &ChatLoop::bye},
};

Completion ChatLoop::complete(std::string_view text, std::size_t cursor) const {
  ChatWords words{.models = model_names};
  for (const Command& command : kCommands) {
    if (command.usage != nullptr) words.commands.emplace_back(command.name);
  }
  const std::vector<ParameterInfo> parameters = list_parameters(parameters_);
  for (const ParameterInfo& info : parameters) words.parameters.push_back(info.name);
  words.values = [&](std::string_view name) {
    const auto found = std::ranges::find(parameters, name, &ParameterInfo::name);
    return found == parameters.end() ? std::vector<std::string>() : found->words;
  };
  words.subjects = subject_names();
  return complete_chat(words, text, cursor);
}

ChatLoop::Next ChatLoop::command(std::string_view line) {
  const auto [word, argument] = split_word(line.substr(1));
  std::vector<std::string> names;
  for (const Command& known : kCommands) {
    if (word == known.name) {
      // How a command is written shows whether something may follow it.
      const bool alone = known.usage != nullptr && std::string_view(known.usage).find(' ') == std::string_view::npos;
      if (alone && !argument.empty()) {
        fail(ErrorKind::usage, "{} takes nothing after it, but '{}' follows", known.usage, printable(argument, 32));
      }
      return (this->*known.act)(argument);
    }
    names.emplace_back(known.name);
  }
  const std::vector<std::string> near = nearest(word, names, 1);
  say(fmt::format("There is no command /{}; {} A message that begins with a slash goes between {}.",
                  printable(word, 32), near.empty() ? "/help lists them." : "did you mean /" + near.front() + "?",
                  kQuotes));
  return Next::go_on;
}

ChatLoop::Next ChatLoop::help(std::string_view) {
  const auto row = [](std::string_view name, std::string_view text) { say_field(name, text, 28); };
  for (const Command& known : kCommands) {
    if (known.usage != nullptr) row(known.usage, known.help);
  }
  say("");
  row(kQuotes, "begins and ends a message of several lines; so does pasting them");
  row("Alt-Enter", "begins another line of the message");
  row("Tab", "completes commands, parameters, models and files");
  row("Ctrl-R", "searches what was typed before");
  row("Ctrl-C", "stops the answer; twice leaves");
  say("\nParameters of /set:");
  for (const ParameterInfo& info : list_parameters(parameters_)) row(info.name, info.help);
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
  if (!asks) give(name, value);
  const std::vector<ParameterInfo> known = list_parameters(parameters_);
  const auto info = std::find_if(known.begin(), known.end(), [&](const auto& row) { return row.name == name; });
  if (info == known.end()) set_parameter(parameters_, name, value);  // says what is wrong with the name
  say_field(info->name, printable(info->value, 256));
  if (asks) say_field("", info->help, 2);
  return Next::go_on;
}

void ChatLoop::give(std::string_view name, std::string_view value) {
  if (session_->raw() && name == "system") {
    fail(ErrorKind::usage, "a chat with --raw has no system prompt: each message is continued as it is");
  }
  ChatParameters changed = parameters_;
  set_parameter(changed, name, value);
  session_->check(changed);
  parameters_ = std::move(changed);
  given_.emplace_back(name, value);
}

ChatLoop::Next ChatLoop::model(std::string_view argument) {
  if (argument.empty()) {
    say_field("model", printable(session_->facts().name));
    std::string_view name = "available";
    for (const ListedModel& model : chat_models()) {
      const std::string alias = model.alias.empty() ? "" : fmt::format(" ({})", model.alias);
      say_field(std::exchange(name, ""), printable(model.name) + alias);
    }
    return Next::go_on;
  }
  bool others = false;  // another vocabulary
  try {
    std::unique_ptr<ChatSession> next = open_(std::string(argument), Where::anywhere);
    ChatParameters parameters = next->parameters(given_);
    next->check(parameters);
    others = session_->facts().vocabulary != next->facts().vocabulary;
    parameters_ = std::move(parameters);
    session_ = std::move(next);
    name_ = argument;
  } catch (const Error& error) {
    say_error(error.what());
    notice(fmt::format("The model is still {}.", printable(session_->facts().name)));
    return Next::go_on;
  }
  first_sent_ = 0;  // it may hold more
  say_model();
  if (others && !parameters_.sampling.logit_bias.empty()) {
    notice(
        "Its vocabulary is another one: logit_bias now means other tokens. /set logit_bias \"\" removes the biases.");
  }
  if (!session_->raw() && !conversation_.messages.empty()) {
    notice(fmt::format("It continues with the {} so far.", counted(conversation_.messages.size(), "message")));
  }
  return Next::go_on;
}

ChatLoop::Next ChatLoop::system(std::string_view argument) {
  give("system", argument);
  notice(argument.empty() ? "There is no system prompt now." : "The system prompt is set.");
  return Next::go_on;
}

ChatLoop::Next ChatLoop::clear(std::string_view) {
  conversation_.messages.clear();
  first_sent_ = 0;
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
  notice(fmt::format("Saved {} to '{}'.", counted(conversation_.messages.size(), "message"), printable(path.string())));
  return Next::go_on;
}

ChatLoop::Next ChatLoop::load(std::string_view argument) {
  if (session_->raw()) {
    fail(ErrorKind::usage, "a chat with --raw has no conversation to load: each message is continued as it is");
  }
  if (argument.empty()) fail(ErrorKind::usage, "/load needs the name of a file");
  const std::filesystem::path path = expand_home(argument);
  conversation_ = load_conversation(path);
  first_sent_ = 0;
  give("system", conversation_.system);
  notice(
      fmt::format("Loaded {} from '{}'.", counted(conversation_.messages.size(), "message"), printable(path.string())));
  return Next::go_on;
}

ChatLoop::Next ChatLoop::bye(std::string_view) { return Next::leave; }

}  // namespace quarrel
