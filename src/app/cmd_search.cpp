// `quarrel search`: the texts of a dataset of Longbow that are nearest to a question.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/input.h"
#include "app/longbow_flags.h"
#include "app/model_options.h"
#include "app/text_table.h"
#include "app/value_checks.h"
#include "app/workbench.h"
#include "base/error.h"
#include "base/printable.h"
#include "ingest/found_json.h"
#include "ingest/lookup.h"
#include "ingest/model_embedder.h"
#include "ingest/text_source.h"

namespace quarrel {
namespace {

constexpr int kMostHits = 10'000;
constexpr int kShortestText = 20;  // columns
// Longer ones are what `--json` is for; also of what goes to a file.
constexpr std::size_t kLongestText = 200;

struct SearchCommand {
  std::string model;
  std::string address;
  std::string query;
  std::int32_t k = 10;
  std::vector<std::string> filters;
  std::string prefix;
  std::optional<std::int32_t> dimensions;
  bool json = false;
  ModelOptions options;
  LongbowFlags longbow;
};

// One line of a text, as much as fits.
std::string line_of(const std::string& text, std::size_t columns) {
  std::string line;
  for (const char c : text) {
    const bool space = c == '\n' || c == '\r' || c == '\t' || c == ' ';
    if (!space) line += c;
    if (space && !line.ends_with(' ') && !line.empty()) line += ' ';
    if (line.size() > 4 * columns) break;
  }
  return printable(line, columns);
}

std::string table_of(std::span<const FoundText> texts) {
  using Side = TextTable::Side;
  const bool sources = std::ranges::any_of(texts, [](const FoundText& found) { return !found.source.empty(); });
  std::vector<TextTable::Column> columns{{"SCORE", Side::right}, {"ID", Side::right}};
  if (sources) columns.push_back({"SOURCE"});
  columns.push_back({"TEXT"});
  std::size_t width = 20;
  for (const FoundText& found : texts) width = std::max(width, 20 + std::min<std::size_t>(found.source.size(), 40));
  const int room = terminal_columns(Stream::output) - static_cast<int>(width);
  const std::size_t length =
      is_terminal(Stream::output) ? static_cast<std::size_t>(std::max(room, kShortestText)) : kLongestText;
  TextTable table(std::move(columns));
  for (const FoundText& found : texts) {
    std::vector<std::string> cells{fmt::format("{:.4f}", found.score), fmt::format("{}", found.id)};
    if (sources) cells.push_back(printable(found.source, 40));
    cells.push_back(found.state == TextState::found  ? line_of(found.text, length)
                    : found.state == TextState::gone ? "(no longer stored)"
                                                     : "(not shown)");
    table.add_row(std::move(cells));
  }
  return table.text();
}

int run_search(const SearchCommand& command, Log& log) {
  if (is_blank(command.query)) fail(ErrorKind::usage, "QUERY is empty: say what is searched for");
  const LongbowAddress address = read_longbow_address(command.address);
  SearchRequest request{.k = command.k};
  for (const std::string& filter : command.filters) request.filters.push_back(read_row_filter(filter));
  const std::unique_ptr<LongbowClient> client = open_longbow(address, command.longbow);
  if (client->readiness(address.dataset).state == ReadyState::missing) {
    fail(ErrorKind::not_found, "there is no dataset {} at {}", printable(address.dataset),
         host_and_port(address.host, address.data_port));
  }
  LoadOptions load{.executor = executor_options(command.options)};
  load.executor.logits = false;
  const ModelEmbedder embedder(load_model(command.model, command.options, load, log),
                               {.dimensions = command.dimensions}, command.prefix);
  const std::vector<float> vector = embedder.embed_one(command.query);
  request.vector = vector;
  const std::vector<FoundText> texts = find_texts(*client, address.dataset, request);
  if (!texts.empty() && texts.front().state == TextState::unreachable) {
    log.warn("texts are not shown: rows can be looked up by ids of the types int64 and utf8, and those of {} are not",
             printable(address.dataset));
  }
  if (command.json) {
    auto array = nlohmann::ordered_json::array();
    for (const FoundText& found : texts) array.push_back(found_json(found));
    write_output(dump_json(array) + "\n");
    return 0;
  }
  write_output(table_of(texts));
  if (texts.empty()) write_error("Nothing was found.\n");
  return 0;
}

}  // namespace

void add_search(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<SearchCommand>();
  CLI::App* command =
      app.add_subcommand("search", "Find the texts of a Longbow dataset that are nearest to a question");
  command->add_option("MODEL", options->model, "The model that the dataset was filled with")->required();
  command->add_option("ADDRESS", options->address, "longbow://host[:3000]/dataset")->required();
  command->add_option("QUERY", options->query, "What to search for")->required();
  command->add_option("-k", options->k, "How many texts")
      ->check(whole_number(1, kMostHits))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--filter", options->filters,
                   "Only rows with matching columns: FIELD=VALUE, or with !=, <, <=, > or >=; may be repeated")
      ->type_name("FILTER")
      ->allow_extra_args(false);
  command->add_option("--prefix", options->prefix, "Put before the question when it is embedded")->type_name("TEXT");
  command->add_option("--dimensions", options->dimensions, "As the dataset was filled with: only the first N values")
      ->check(whole_number(1, 1 << 24))
      ->type_name("N");
  command->add_flag("--json", options->json, "A JSON array with whole texts");
  add_longbow_flags(*command, options->longbow);
  add_model_options(*command, options->options);
  command->footer(
      "Examples:\n"
      "  quarrel search minilm longbow://localhost/notes \"how do I renew it?\" -k 3\n"
      "  quarrel search minilm longbow://localhost/notes \"dogs\" --filter source=pets.txt --json");
  command->callback(
      [options, &context] { context.run = [options, &context] { return run_search(*options, context.log); }; });
}

}  // namespace quarrel
