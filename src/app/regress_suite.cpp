#include "app/regress_suite.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "app/input.h"
#include "app/perplexity.h"
#include "app/toml_text.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"

namespace quarrel {
namespace {

constexpr std::size_t kMaxSuiteBytes = 4u << 20;

// One table of the file. Every key that is asked for is a known one; `finish` refuses the others.
class TableReader {
 public:
  TableReader(const toml::table& table, std::string_view file, std::string where)
      : table_(table), file_(file), where_(std::move(where)) {}

  [[noreturn]] void refuse(const toml::node& node, std::string_view why) const {
    fail(ErrorKind::bad_input, "{}, line {}: {}", printable(file_, 256), node.source().begin.line, why);
  }
  [[noreturn]] void refuse_table(std::string_view why) const { refuse(table_, fmt::format("{} {}", where_, why)); }

  const toml::node* find(const char* key) {
    known_.emplace_back(key);
    return table_.get(key);
  }
  bool has(const char* key) { return find(key) != nullptr; }

  std::string text(const char* key, std::string otherwise = {}) {
    const toml::node* node = find(key);
    if (node == nullptr) return otherwise;
    const auto value = node->value_exact<std::string>();
    if (!value) refuse(*node, fmt::format("'{}' must be a text", key));
    return *value;
  }

  std::string one_of(const char* key, std::vector<std::string> choices, std::string otherwise) {
    std::string value = text(key, std::move(otherwise));
    if (value.empty() || std::ranges::find(choices, value) != choices.end()) return value;
    refuse(*table_.get(key), fmt::format("'{}' must be {}", key, fmt::join(choices, " or ")));
  }

  bool flag(const char* key, bool otherwise) {
    const toml::node* node = find(key);
    if (node == nullptr) return otherwise;
    const auto value = node->value_exact<bool>();
    if (!value) refuse(*node, fmt::format("'{}' must be true or false", key));
    return *value;
  }

  std::int64_t integer(const char* key, std::int64_t otherwise, std::int64_t least, std::int64_t most) {
    const toml::node* node = find(key);
    if (node == nullptr) return otherwise;
    const auto value = node->value_exact<std::int64_t>();
    if (!value || *value < least || *value > most) {
      refuse(*node, fmt::format("'{}' must be a whole number from {} to {}", key, least, most));
    }
    return *value;
  }

  double number(const char* key, double otherwise, double least, double most) {
    const toml::node* node = find(key);
    if (node == nullptr) return otherwise;
    const auto value = node->value<double>();
    if (!node->is_number() || !value || !(*value >= least && *value <= most)) {
      refuse(*node, fmt::format("'{}' must be a number from {} to {}", key, least, most));
    }
    return *value;
  }

  std::vector<std::string> texts(const char* key) {
    std::vector<std::string> values;
    for_each(key, [&](const toml::node& node) {
      const auto value = node.value_exact<std::string>();
      if (!value) refuse(node, fmt::format("'{}' must be a list of texts", key));
      values.push_back(*value);
    });
    return values;
  }

  std::vector<TokenId> ids(const char* key) {
    std::vector<TokenId> values;
    for_each(key, [&](const toml::node& node) {
      const auto value = node.value_exact<std::int64_t>();
      if (!value || *value < 0 || *value > std::numeric_limits<TokenId>::max()) {
        refuse(node, fmt::format("'{}' must be a list of token ids", key));
      }
      values.push_back(static_cast<TokenId>(*value));
    });
    return values;
  }

  // The tables of a list [[key]], each with a reader of its own.
  std::vector<TableReader> tables(const char* key) {
    std::vector<TableReader> readers;
    for_each(key, [&](const toml::node& node) {
      if (!node.is_table()) refuse(node, fmt::format("'{}' must be a list of tables: [[{}]]", key, key));
      readers.emplace_back(*node.as_table(), file_, fmt::format("'{}'", key));
    });
    return readers;
  }

  std::optional<TableReader> table(const char* key) {
    const toml::node* node = find(key);
    if (node == nullptr) return std::nullopt;
    if (!node->is_table()) refuse(*node, fmt::format("'{}' must be a table: [{}]", key, key));
    return TableReader(*node->as_table(), file_, fmt::format("'{}'", key));
  }

  void finish() const {
    for (const auto& [key, node] : table_) {
      if (std::ranges::find(known_, key.str()) != known_.end()) continue;
      std::string why = fmt::format("{} has no key '{}'", where_, printable(key.str()));
      const std::vector<std::string> near = nearest(key.str(), known_, 1);
      why += near.empty() ? fmt::format("; it may have {}", fmt::join(known_, ", "))
                          : fmt::format("; did you mean '{}'?", near.front());
      refuse(node, why);
    }
  }

 private:
  template <typename Visit>
  void for_each(const char* key, const Visit& visit) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    if (!node->is_array()) refuse(*node, fmt::format("'{}' must be a list", key));
    for (const toml::node& element : *node->as_array()) visit(element);
  }

  const toml::table& table_;
  std::string_view file_;
  std::string where_;
  std::vector<std::string> known_;
};

CoherenceLimits read_coherence(TableReader reader) {
  CoherenceLimits limits;
  limits.max_looped = reader.number("max_looped", limits.max_looped, 0, 1);
  limits.max_repeated = reader.number("max_repeated", limits.max_repeated, 0, 1);
  limits.max_foreign = reader.number("max_foreign", limits.max_foreign, 0, 1);
  limits.max_mixed_words = reader.number("max_mixed_words", limits.max_mixed_words, 0, 1);
  limits.max_noise = reader.integer("max_noise", limits.max_noise, 0, 1'000'000);
  limits.min_letters = reader.integer("min_letters", limits.min_letters, 0, 1'000'000);
  reader.finish();
  return limits;
}

SuitePrompt read_prompt(TableReader reader) {
  SuitePrompt prompt;
  prompt.name = reader.text("name");
  prompt.text = reader.text("text");
  prompt.system = reader.text("system");
  prompt.raw = reader.flag("raw", false);
  prompt.max_tokens = static_cast<std::int32_t>(reader.integer("max_tokens", prompt.max_tokens, 1, 1 << 20));
  prompt.temperature = reader.number("temperature", 0, 0, 100);
  prompt.repeat_penalty = reader.number("repeat_penalty", 1, 0.01, 100);
  prompt.seed = static_cast<std::uint64_t>(reader.integer("seed", 0, 0, std::numeric_limits<std::int64_t>::max()));
  prompt.must_contain = reader.texts("must_contain");
  reader.finish();
  if (prompt.name.empty()) reader.refuse_table("needs a 'name'");
  if (prompt.text.empty()) reader.refuse_table("needs a 'text'");
  if (prompt.raw && !prompt.system.empty()) reader.refuse_table("is raw, so it cannot have a 'system' prompt");
  return prompt;
}

CheckOptions read_options(TableReader& reader) {
  return {.backend = reader.one_of("backend", {"reference", "cpu", "cuda", "auto"}, ""),
          .kv = reader.one_of("kv", {"f32", "f16"}, ""),
          .activations = reader.one_of("activations", {"auto", "int8x2", "int8", "f16", "f32"}, ""),
          .row_class = reader.one_of("class", {"prompt", "generated"}, "prompt")};
}

std::filesystem::path path_of(TableReader& reader, const char* key, const std::filesystem::path& folder) {
  const std::string value = reader.text(key);
  return value.empty() ? std::filesystem::path{} : folder / value;
}

LogitCheck read_logits(TableReader reader, const std::filesystem::path& folder) {
  LogitCheck check;
  check.options = read_options(reader);
  check.tokens.ids = reader.ids("tokens");
  check.tokens.file = path_of(reader, "tokens_file", folder);
  check.tokens.text = reader.text("text");
  check.tokens.random = static_cast<std::int32_t>(reader.integer("random_tokens", 0, 1, 1 << 20));
  check.golden = path_of(reader, "golden", folder);
  const bool limited = reader.has("max_nmse");
  check.max_nmse = reader.number("max_nmse", 0, 0, 1e9);
  reader.finish();
  const int sources = static_cast<int>(!check.tokens.ids.empty()) + static_cast<int>(!check.tokens.file.empty()) +
                      static_cast<int>(!check.tokens.text.empty()) + static_cast<int>(check.tokens.random > 0);
  if (sources != 1) reader.refuse_table("needs one of 'tokens', 'tokens_file', 'text' and 'random_tokens'");
  if (!limited) reader.refuse_table("needs a limit 'max_nmse'");
  return check;
}

PerplexityCheck read_perplexity(TableReader reader, const std::filesystem::path& folder) {
  PerplexityCheck check;
  check.options = read_options(reader);
  check.text = path_of(reader, "text", folder);
  check.window = static_cast<std::int32_t>(reader.integer("window", check.window, kSmallestWindow, 1 << 20));
  check.windows = static_cast<std::int32_t>(reader.integer("windows", 0, 1, 1 << 24));
  check.max = reader.number("max", 0, 1, 1e30);
  check.min = reader.number("min", 1, 1, 1e30);
  reader.finish();
  if (check.text.empty()) reader.refuse_table("needs a 'text', the path of a file");
  if (check.max == 0.0) reader.refuse_table("needs a limit 'max'");
  return check;
}

// `named` models have a name; the generic one gets it later.
SuiteModel read_model(TableReader reader, const std::filesystem::path& folder, const std::vector<SuitePrompt>& prompts,
                      bool named) {
  SuiteModel model;
  if (named) {
    model.name = reader.text("name");
    model.optional = reader.flag("optional", false);
  }
  if (reader.has("prompts")) {
    for (const std::string& name : reader.texts("prompts")) {
      const auto found = std::ranges::find(prompts, name, &SuitePrompt::name);
      if (found == prompts.end())
        reader.refuse_table(fmt::format("names no prompt of this suite: '{}'", printable(name)));
      model.prompts.push_back(static_cast<std::size_t>(found - prompts.begin()));
    }
  } else {
    for (std::size_t i = 0; i < prompts.size(); ++i) model.prompts.push_back(i);
  }
  for (TableReader& check : reader.tables("logits")) model.logits.push_back(read_logits(check, folder));
  for (TableReader& check : reader.tables("perplexity")) model.perplexity.push_back(read_perplexity(check, folder));
  reader.finish();
  if (named && model.name.empty()) reader.refuse_table("needs a 'name'");
  if (model.prompts.empty() && model.logits.empty() && model.perplexity.empty()) {
    reader.refuse_table("has nothing to check");
  }
  return model;
}

}  // namespace

Suite parse_suite(std::string_view text, const std::filesystem::path& folder, std::string_view name) {
  const toml::table root = parse_toml(text, name);
  TableReader reader(root, name, "a suite");
  Suite suite;
  if (auto coherence = reader.table("coherence")) suite.coherence = read_coherence(*coherence);
  for (TableReader& prompt : reader.tables("prompts")) {
    suite.prompts.push_back(read_prompt(prompt));
    const auto same = std::ranges::count(suite.prompts, suite.prompts.back().name, &SuitePrompt::name);
    if (same > 1) prompt.refuse_table("has the name of an earlier one");
  }
  for (TableReader& model : reader.tables("models")) {
    suite.models.push_back(read_model(model, folder, suite.prompts, true));
  }
  if (auto generic = reader.table("generic")) suite.generic = read_model(*generic, folder, suite.prompts, false);
  reader.finish();
  return suite;
}

Suite load_suite(const std::filesystem::path& path) {
  return parse_suite(read_input(path.string(), kMaxSuiteBytes), path.parent_path(), path.string());
}

}  // namespace quarrel
