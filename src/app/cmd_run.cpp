// quarrel run: a chat in the terminal, or one answer on standard output.

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>

#include "app/answer_view.h"
#include "app/chat_context.h"
#include "app/chat_loop.h"
#include "app/chat_parameters.h"
#include "app/command_reference.h"
#include "app/commands.h"
#include "app/input.h"
#include "app/local_chat.h"
#include "app/pull_with_progress.h"
#include "app/reply_timing.h"
#include "app/running_server.h"
#include "app/served_chat.h"
#include "app/settings_in_force.h"
#include "app/terminal.h"
#include "app/text_argument.h"
#include "app/value_checks.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/printable.h"
#include "session/generation.h"
#include "store/own_store.h"
#include "store/store.h"
#include "text/chat_template.h"

namespace quarrel {
namespace {

constexpr const char* kDefaultModel = "default";
constexpr std::size_t kPromptLimit = 64u << 20;

struct RunOptions {
  std::string model = kDefaultModel;
  std::vector<std::string> words;
  std::string file;
  ChatOptions chat;
  GivenParameters given;
  bool verbose = false;
  bool json = false;
  bool local = false;
  ContextFlags context;
};

// The first run brings its model along.
ResolvedModel find_model(const std::string& name) {
  const ModelStore store(StorePaths::from_environment());
  if (name != kDefaultModel) return store.resolve(name);
  try {
    return store.resolve(name);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::not_found) throw;
  }
  write_error("The default model is not on this machine yet: fetching it once.\n");
  pull_with_progress(name, store.paths().quarrel);
  return store.resolve(name);
}

// The newline that ends a text's last line, as `echo` writes it, is no part of a question.
std::string without_last_newline(std::string text) {
  if (!text.ends_with('\n')) return text;
  text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

// What can only be meant for a file, whether it is there or not.
bool is_written_as_path(std::string_view name) {
  constexpr std::array<std::string_view, 4> kStarts{"/", "./", "../", "~"};
  return name.ends_with(kModelExtension) ||
         std::ranges::any_of(kStarts, [&](std::string_view start) { return name.starts_with(start); });
}

// `run "Why is the sky blue?"` names no model but asks a question; so does the same without quotes.
void refuse_question_as_name(const RunOptions& options) {
  const std::string& name = options.model;
  if (is_written_as_path(name)) return;
  const bool quoted = options.words.empty() && (name.find(' ') != std::string::npos || name.ends_with('?'));
  if (!quoted && options.words.size() < 2) return;
  const std::string question = quoted ? name : fmt::format("{} {}", name, fmt::join(options.words, " "));
  try {
    ModelStore(StorePaths::from_environment()).resolve(name);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::not_found) throw;
    const std::string way = way_to_ask(question);
    if (quoted || question.ends_with('?')) {
      fail(ErrorKind::usage, "'{}' was taken for the name of a model, and there is none; {}", printable(name), way);
    }
    fail(ErrorKind::not_found, "{}; {}", error.what(), way);  // it may as well be a model's name with a mistake in it
  }
}

// The words of the command line, then the file, then what was piped in.
std::string one_shot_prompt(const RunOptions& options) {
  std::string prompt = fmt::format("{}", fmt::join(options.words, " "));
  const auto append = [&prompt](const std::string& text) {
    if (!prompt.empty() && !text.empty()) prompt += "\n\n";
    prompt += text;
  };
  if (!options.file.empty()) append(without_last_newline(read_input(options.file, kPromptLimit)));
  if (!is_terminal(Stream::input) && options.file != "-")
    append(without_last_newline(read_standard_input(kPromptLimit)));
  constexpr std::size_t kMost = TemplateLimits{}.output_bytes;
  if (!options.chat.raw && prompt.size() > kMost) {
    fail(ErrorKind::bad_input, "the prompt is too long: it has {} bytes, and a chat takes {} at most", prompt.size(),
         kMost);
  }
  if (prompt.find_first_not_of(" \t\r\n") == std::string::npos) {
    fail(ErrorKind::usage,
         "there is no prompt: give one after the model's name, in a file (-f) or on standard input, or start from a "
         "terminal to chat");
  }
  return prompt;
}

nlohmann::ordered_json reply_json(const RunOptions& options, const Reply& reply, double total, double load,
                                  const ChatContext* context) {
  nlohmann::ordered_json json{{"model", options.model},
                              {"text", reply.text},
                              {"tokens", reply.tokens},
                              {"finish_reason", reason_name(reply.reason)},
                              {"seed", reply.seed},
                              {"prompt_tokens", reply.prompt_tokens},
                              {"timings",
                               {{"total_seconds", total},
                                {"load_seconds", load},
                                {"prompt_seconds", reply.prompt_seconds},
                                {"generate_seconds", reply.generate_seconds}}}};
  if (context != nullptr) json["sources"] = context->sources_json();
  return json;
}

// Shows the answer that `make` gives, as it comes.
template <typename Make>
Reply shown(bool show, const Interrupts& interrupts, const Make& make) {
  std::optional<AnswerView> view;
  if (show) view.emplace();
  const ReplySink sink{.text =
                           [&](std::string_view piece) {
                             if (view) view->show(piece);
                           },
                       .progress =
                           [&](std::size_t done, std::size_t total) {
                             if (view) view->progress(done, total);
                           },
                       .cancelled = [&] { return interrupts.requested().load(std::memory_order_relaxed); }};
  Reply reply = make(sink);
  if (view) view->finish();
  return reply;
}

Conversation question(const ChatParameters& parameters, const std::string& prompt) {
  return {.system = parameters.system, .messages = {{.role = "user", .content = prompt}}};
}

int answer_once(ChatSession& session, const RunOptions& options, const std::string& prompt, ChatContext* context,
                Clock::time_point start, Log& log) {
  const Interrupts interrupts;
  const ChatParameters parameters = session.parameters(options.given);
  Conversation conversation = question(parameters, prompt);
  if (context != nullptr) conversation = context->asked(conversation, session, interrupts);
  const Reply reply = shown(!options.json, interrupts, [&](const ReplySink& sink) {
    return session.raw() ? session.complete(prompt, parameters, sink) : session.answer(conversation, parameters, sink);
  });
  const double total = seconds_since(start);
  const double load = session.facts().load_seconds;
  if (options.json) write_output(dump_json(reply_json(options, reply, total, load, context)) + "\n");
  if (context != nullptr && !options.json) write_error(context->sources_text() + "\n");
  if (reply.reason == FinishReason::context) log.warn("the answer was cut: {}", session.full_context());
  if (parameters.verbose) write_error("\n" + timing_text(reply, total, load));
  return reply.reason == FinishReason::cancelled ? kInterruptedExit : 0;
}

void warn_of_change(const ResolvedModel& model, Log& log) {
  if (const auto changed = change_warning(model)) log.warn("{}", *changed);
}

// A server of this user that holds the model already; null: it is to be loaded here. What is wrong with a server is
// told, and no reason to give up.
std::unique_ptr<ChatSession> find_served(const RunOptions& options, const std::string& name, Log& log) {
  if (options.local || options.json) return nullptr;
  ChatParameters asked;
  apply_given(asked, options.given);
  if (!reason_for_own_model(options.chat, asked).empty()) return nullptr;
  try {
    const ServerAddress address = server_address(settings_in_force({}, environment).settings);
    if (address.unix_socket.empty()) return nullptr;
    const ResolvedModel model = ModelStore(StorePaths::from_environment()).resolve(name);
    std::unique_ptr<ChatSession> served = find_served_chat(address, model, log);
    if (served != nullptr) warn_of_change(model, log);
    return served;
  } catch (const Error& error) {
    // A model that is not there is missed below.
    if (error.kind() != ErrorKind::not_found) log.warn("the running server cannot be used: {}", error.what());
    return nullptr;
  }
}

int run(RunOptions options, Log& log) {
  const auto start = Clock::now();
  const auto is_system = [](const auto& parameter) { return parameter.first == "system"; };
  const bool chat =
      options.words.empty() && options.file.empty() && is_terminal(Stream::input) && is_terminal(Stream::output);
  if (chat && options.json) fail(ErrorKind::usage, "--json needs a prompt");
  if (options.chat.raw && !options.chat.chat_template.empty()) {
    fail(ErrorKind::usage, "--raw uses no template, but --template was given too");
  }
  if (options.chat.raw && std::ranges::any_of(options.given, is_system)) {
    fail(ErrorKind::usage, "--raw takes no system prompt, but --system was given too");
  }
  if (options.chat.raw && !options.context.address.empty()) {
    fail(ErrorKind::usage, "--raw cannot be used with --context");
  }
  refuse_question_as_name(options);
  // Mistakes of the command line are told before a model is looked for.
  if (options.verbose) options.given.emplace_back("verbose", "on");
  check_flags(options.given);
  executor_options(options.chat.model);
  const std::string prompt = chat ? "" : one_shot_prompt(options);

  std::optional<ChatContext> context;
  if (!options.context.address.empty()) context.emplace(options.context, log);
  ChatContext* const asked_with = context ? &*context : nullptr;
  std::shared_ptr<Device> device;  // opened with the first model that is loaded here
  const auto open = [&](const std::string& name, ChatLoop::Where where) -> std::unique_ptr<ChatSession> {
    if (where == ChatLoop::Where::anywhere) {
      if (std::unique_ptr<ChatSession> served = find_served(options, name, log)) return served;
    }
    const ResolvedModel model = find_model(name);
    warn_of_change(model, log);
    if (device == nullptr) device = open_device(options.chat.model, log);
    return load_chat(model, options.chat, device, log);
  };
  std::unique_ptr<ChatSession> session = open(options.model, ChatLoop::Where::anywhere);
  session->check(session->parameters(options.given), "--logit-bias");
  if (chat) {
    ChatLoop(std::move(session), options.model, options.given, open, asked_with).run();
    return 0;
  }
  try {
    return answer_once(*session, options, prompt, asked_with, start, log);
  } catch (const ChatLostError& lost) {
    log.warn("{}: the model is loaded here", lost.what());
  }
  return answer_once(*open(options.model, ChatLoop::Where::here), options, prompt, asked_with, start, log);
}

}  // namespace

void add_run(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("run", "Chat with a model, or answer one prompt");
  auto options = std::make_shared<RunOptions>();
  command->add_option("MODEL", options->model, "A GGUF file or the name of a model; default: a small one")
      ->capture_default_str();
  add_texts(*command, "PROMPT", options->words, "What to answer; without it, a chat on a terminal");
  command->add_option("-f,--file", options->file, "A text file that joins the prompt; -: standard input")
      ->check(not_empty())
      ->type_name("FILE");
  command->add_flag("--verbose", options->verbose, "Timings after each answer, on standard error");
  command->add_flag("--json", options->json, "One JSON object with text, tokens, finish reason and timings");
  command->add_flag("--local", options->local, "Load the model here, even if your own running server holds it");
  command->add_option("--template", options->chat.chat_template, "Chat template: a built-in name or a Jinja file")
      ->check(not_empty())
      ->type_name("NAME|FILE");
  command->add_flag("--raw", options->chat.raw, "No template: continue the prompt as it is, control tokens included");
  add_context_flags(*command, options->context);
  add_parameter_options(*command, options->given);
  add_model_options(*command, options->chat.model);
  command->footer(
      "What is piped in joins the prompt, without its last newline. What the model's makers recommend\n"
      "takes the place of the defaults above (quarrel inspect MODEL shows it); options that you give\n"
      "override both. Ctrl-C stops an answer, twice leaves. Your own server that holds the model and listens on\n"
      "a Unix socket answers in place of a second copy of the model.\n\nExamples:\n  quarrel "
      "run\n"
      "  quarrel run default \"Why is the sky blue?\"\n  quarrel run model.gguf \"Summarise this:\" -f letter.txt\n"
      "  git diff | quarrel run default \"Describe this change:\"\n"
      "  quarrel run default \"How is it renewed?\" --context longbow://localhost/notes");
  command->callback([options, &context] { context.run = [options, &context] { return run(*options, context.log); }; });
}

}  // namespace quarrel
