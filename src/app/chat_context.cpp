#include "app/chat_context.h"

#include <fmt/format.h>

#include <algorithm>

#include <CLI/CLI.hpp>

#include "app/input.h"
#include "app/model_options.h"
#include "app/stop_on_interrupt.h"
#include "app/value_checks.h"
#include "app/workbench.h"
#include "base/error.h"
#include "base/printable.h"

namespace quarrel {
namespace {

constexpr std::int32_t kMostTexts = 32;
constexpr std::size_t kLargestTemplate = std::size_t{1} << 20;

}  // namespace

void add_context_flags(CLI::App& command, ContextFlags& flags) {
  CLI::Option* context = command.add_option(
      "--context", flags.address,
      "Give the model the texts of a Longbow dataset that are nearest to each question: longbow://host[:3000]/dataset");
  context->check(not_empty())->type_name("ADDRESS");
  command.add_option("--context-model", flags.model, "The embedding model that the dataset was filled with")
      ->check(not_empty())
      ->type_name("MODEL")
      ->capture_default_str()
      ->needs(context);
  command.add_option("--context-texts", flags.k, "How many texts at most")
      ->check(whole_number(1, kMostTexts))
      ->type_name("N")
      ->capture_default_str()
      ->needs(context);
  command
      .add_option("--context-tokens", flags.max_tokens,
                  "Most tokens of these texts together, and never more than half of the context")
      ->check(whole_number(1, 1 << 30))
      ->type_name("N")
      ->capture_default_str()
      ->needs(context);
  command
      .add_option("--context-filter", flags.filters,
                  "Only texts with matching columns: FIELD=VALUE, or with !=, <, <=, > or >=; may be repeated")
      ->type_name("FILTER")
      ->allow_extra_args(false)
      ->needs(context);
  command.add_option("--context-prefix", flags.prefix, "Put before the question when it is embedded")
      ->type_name("TEXT")
      ->needs(context);
  command
      .add_option("--context-dimensions", flags.dimensions,
                  "As the dataset was filled with: only the first N values of a vector")
      ->check(whole_number(1, 1 << 24))
      ->type_name("N")
      ->needs(context);
  command
      .add_option("--context-template", flags.template_file,
                  "What the model is asked: a file with {texts} and {question} in it")
      ->check(not_empty())
      ->type_name("FILE")
      ->needs(context);
  add_longbow_flags(command, flags.longbow, context);
}

ChatContext::ChatContext(const ContextFlags& flags, Log& log)
    : address_(read_longbow_address(flags.address)),
      options_{.max_tokens = static_cast<std::size_t>(flags.max_tokens)},
      request_{.k = flags.k} {
  for (const std::string& filter : flags.filters) request_.filters.push_back(read_row_filter(filter));
  if (!flags.template_file.empty()) {
    options_.prompt_template = read_input(flags.template_file, kLargestTemplate);
    check_context_template(options_.prompt_template);
  }
  client_ = open_longbow(address_, flags.longbow);
  if (client_->readiness(address_.dataset).state == ReadyState::missing) {
    fail(ErrorKind::not_found, "there is no dataset {} at {}", printable(address_.dataset),
         host_and_port(address_.host, address_.data_port));
  }
  const ModelOptions options;
  LoadOptions load{.executor = executor_options(options)};
  load.executor.logits = false;
  embedder_ = std::make_unique<ModelEmbedder>(load_model(flags.model, options, load, log),
                                              EmbeddingOptions{.dimensions = flags.dimensions}, flags.prefix);
}

Conversation ChatContext::asked(const Conversation& conversation, ChatSession& session, const Interrupts& interrupts) {
  Conversation with_texts = conversation;
  std::string& question = with_texts.messages.back().content;
  sources_.clear();
  const std::vector<float> vector = embedder_->embed_one(question);
  const StopOnInterrupt stop(interrupts);
  SearchRequest request = request_;
  request.vector = vector;
  const std::vector<FoundText> found = find_texts(*client_, address_.dataset, request, stop.token());
  ContextOptions options = options_;
  options.max_tokens = std::min(options.max_tokens, static_cast<std::size_t>(session.facts().context) / 2);
  PromptContext context =
      with_context(found, question, options, [&session](std::string_view text) { return session.text_tokens(text); });
  question = std::move(context.question);
  sources_ = std::move(context.sources);
  return with_texts;
}

std::string ChatContext::sources_text() const {
  if (sources_.empty()) return "No text of the dataset was used.";
  std::string text = "Sources:";
  for (const UsedText& each : sources_) {
    text += fmt::format("{} [{}] ", each.number == 1 ? "" : ",", each.number);
    const std::string name = printable(each.found.source.empty() ? each.found.doc_id : each.found.source, 60);
    text += name.empty() ? fmt::format("{}", each.found.id) : fmt::format("{} ({})", name, each.found.id);
  }
  return text;
}

nlohmann::ordered_json ChatContext::sources_json() const {
  auto list = nlohmann::ordered_json::array();
  for (const UsedText& each : sources_) list.push_back(source_json(each));
  return list;
}

}  // namespace quarrel
