#include "convert/tokenizer_json.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/printable.h"
#include "convert/json_file.h"

namespace quarrel {
namespace {

using nlohmann::json;

// The regular expressions as these files write them.
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kOneNumber = R"(\p{N})";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                                     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                                     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct KnownSplits {
  std::string_view name;
  std::array<std::string_view, 2> splits;  // the second may be empty
  bool ignore_merges;
};

constexpr std::array kKnown = {
    KnownSplits{"gpt-2", {kGpt2}, false},   KnownSplits{"smollm", {kOneNumber, kGpt2}, false},
    KnownSplits{"dbrx", {kLlama3}, false},  KnownSplits{"llama-bpe", {kLlama3}, true},
    KnownSplits{"qwen2", {kQwen2}, false},  KnownSplits{"gpt-4o", {kGpt4o}, false},
    KnownSplits{"tekken", {kTekken}, true},
};

bool is_type(const json& part, std::string_view type) {
  return part.is_object() && part.value("type", json()) == json(type);
}

// One reader a part of the file; `what_` names the file.
class Reader {
 public:
  Reader(TokenizerJson& result, std::string what, std::uint32_t rows)
      : result_(result), what_(std::move(what)), rows_(rows) {}

  void read(const JsonFields& fields) {
    if (const json* added = fields.find("added_tokens")) read_added(*added);
    const auto model = fields.object("model");
    if (!model) fail(ErrorKind::bad_file, "{}: model is missing", what_);
    read_model(*model);
    if (const json* part = fields.find("normalizer")) read_normalizer(*part);
    if (const json* part = fields.find("pre_tokenizer")) read_pre_tokenizer(*part);
    if (const json* part = fields.find("post_processor")) read_post_processor(*part);
  }

 private:
  // Calls `each` for the parts of a sequence, or says that it is none.
  template <typename Each>
  bool in_sequence(const json& part, const char* list, const Each& each) const {
    if (!part.is_object()) fail(ErrorKind::bad_file, "{}: a part of it is not an object", what_);
    if (!is_type(part, "Sequence")) return false;
    const JsonFields fields(part, what_);
    const json* parts = fields.find(list);
    if (parts == nullptr || !parts->is_array()) fail(ErrorKind::bad_file, "{}: {} must be an array", what_, list);
    for (const json& inner : *parts) each(inner);
    return true;
  }

  void put_token(std::uint32_t id, const std::string& text) {
    if (result_.tokens.size() <= id) result_.tokens.resize(id + 1);
    std::optional<std::string>& place = result_.tokens[id];
    if (place && *place != text) {
      fail(ErrorKind::bad_file, "{}: '{}' and '{}' both have the id {}", what_, printable(*place), printable(text), id);
    }
    place = text;
  }

  void check_id(std::int64_t id, std::string_view text) const {
    if (id < 0 || id >= rows_) {
      fail(ErrorKind::bad_file, "{}: the token '{}' has the id {}, but the embedding table has {} rows", what_,
           printable(text), id, rows_);
    }
  }

  void read_added(const json& added) {
    if (!added.is_array()) fail(ErrorKind::bad_file, "{}: added_tokens must be an array", what_);
    result_.added.reserve(added.size());
    for (const json& one : added) {
      const JsonFields fields(one, what_ + ": added_tokens");
      const auto text = fields.string("content");
      if (!text || text->empty()) fail(ErrorKind::bad_file, "{}: an added token has no content", what_);
      const std::int64_t id = fields.integer("id", 0, UINT32_MAX);
      check_id(id, *text);
      put_token(static_cast<std::uint32_t>(id), *text);
      result_.added.push_back({static_cast<std::uint32_t>(id), *text, fields.boolean("special").value_or(false)});
    }
  }

  void read_model(const JsonFields& model) {
    // Old files leave the type out; only byte-level BPE is as old as that.
    result_.model = model.string("type").value_or("BPE");
    result_.byte_fallback = model.boolean("byte_fallback").value_or(false);
    result_.ignore_merges = model.boolean("ignore_merges").value_or(false);
    if (const json* unknown = model.find("unk_token"); unknown != nullptr && unknown->is_string()) {
      result_.unknown = unknown->get<std::string>();
    }
    if (result_.model != "BPE" && result_.model != "WordPiece") return;
    if (model.string("continuing_subword_prefix").value_or("##") != "##" && result_.model == "WordPiece") {
      fail(ErrorKind::unsupported, "{}: only the continuing_subword_prefix '##' is supported", what_);
    }
    const json* vocabulary = model.find("vocab");
    if (vocabulary == nullptr || !vocabulary->is_object() || vocabulary->empty()) {
      fail(ErrorKind::bad_file, "{}: model.vocab must give each token its id", what_);
    }
    for (const auto& [text, id] : vocabulary->items()) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() > UINT32_MAX) {
        fail(ErrorKind::bad_file, "{}: the token '{}' has no usable id", what_, printable(text));
      }
      check_id(static_cast<std::int64_t>(id.get<std::uint64_t>()), text);
      put_token(id.get<std::uint32_t>(), text);
    }
    if (const json* merges = model.find("merges")) read_merges(*merges);
  }

  void read_merges(const json& merges) {
    if (!merges.is_array()) fail(ErrorKind::bad_file, "{}: model.merges must be an array", what_);
    result_.merges.reserve(merges.size());
    for (const json& merge : merges) {
      std::string text;
      if (merge.is_string()) {
        text = merge.get<std::string>();
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        text = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
      }
      const std::size_t space = text.find(' ');
      if (space == std::string::npos || space == 0 || space + 1 == text.size()) {
        fail(ErrorKind::bad_file, "{}: model.merges[{}] is not two pieces", what_, result_.merges.size());
      }
      result_.merges.push_back(std::move(text));
    }
  }

  void read_normalizer(const json& part) {
    if (in_sequence(part, "normalizers", [&](const json& inner) { read_normalizer(inner); })) return;
    const JsonFields fields(part, what_ + ": normalizer");
    if (is_type(part, "BertNormalizer")) {
      result_.lowercase = fields.boolean("lowercase");
      result_.strip_accents = fields.boolean("strip_accents");
    } else if (is_type(part, "Lowercase")) {
      result_.lowercase = true;
    } else if (is_type(part, "Prepend")) {
      result_.adds_space = true;
    }
  }

  void read_pre_tokenizer(const json& part) {
    if (in_sequence(part, "pretokenizers", [&](const json& inner) { read_pre_tokenizer(inner); })) return;
    const JsonFields fields(part, what_ + ": pre_tokenizer");
    const std::string type = fields.string("type").value_or("");
    if (type == "ByteLevel") {
      result_.byte_level = true;
      if (fields.boolean("use_regex").value_or(true)) result_.splits.emplace_back(kGpt2);
      if (fields.boolean("add_prefix_space").value_or(false)) result_.adds_space = true;
    } else if (type == "Split") {
      const auto pattern = fields.object("pattern");
      result_.splits.push_back(pattern ? pattern->string("Regex").value_or(pattern->string("String").value_or(""))
                                       : "");
    } else if (type == "Digits") {
      result_.splits.emplace_back(fields.boolean("individual_digits").value_or(false) ? R"(\p{N})" : R"(\p{N}+)");
    } else if (type == "Metaspace") {
      const std::string scheme = fields.string("prepend_scheme").value_or("always");
      result_.adds_space = fields.boolean("add_prefix_space").value_or(true) && scheme != "never";
    } else {
      result_.splits.push_back(type);
    }
  }

  void read_post_processor(const json& part) {
    if (in_sequence(part, "processors", [&](const json& inner) { read_post_processor(inner); })) return;
    const JsonFields fields(part, what_ + ": post_processor");
    if (is_type(part, "BertProcessing") || is_type(part, "RobertaProcessing")) {
      result_.has_template = true;
      result_.begins = first_text(fields.find("cls"));
      result_.ends = first_text(fields.find("sep"));
      return;
    }
    const json* single = fields.find("single");
    if (!is_type(part, "TemplateProcessing") || single == nullptr || !single->is_array()) return;
    result_.has_template = true;
    bool text_seen = false;
    for (const json& piece : *single) {
      if (!piece.is_object()) continue;
      text_seen = text_seen || piece.contains("Sequence");
      const JsonFields inner(piece, fields.what());
      const auto token = inner.object("SpecialToken");
      if (token) (text_seen ? result_.ends : result_.begins) = token->string("id").value_or("");
    }
  }

  // Of ["[SEP]", 102].
  static std::string first_text(const json* pair) {
    const bool usable = pair != nullptr && pair->is_array() && !pair->empty() && pair->front().is_string();
    return usable ? pair->front().get<std::string>() : std::string();
  }

  TokenizerJson& result_;
  std::string what_;
  std::uint32_t rows_;
};

}  // namespace

TokenizerJson TokenizerJson::read(const std::filesystem::path& path, std::uint32_t rows) {
  const json content = read_json_file(path);
  TokenizerJson result;
  Reader(result, "tokenizer.json", rows).read(JsonFields(content, "tokenizer.json"));
  return result;
}

std::string_view pre_tokenizer_of(const std::vector<std::string>& splits, bool ignore_merges) noexcept {
  std::string_view found;
  for (const KnownSplits& known : kKnown) {
    const auto count = static_cast<std::size_t>(
        std::ranges::count_if(known.splits, [](std::string_view split) { return !split.empty(); }));
    if (splits.size() != count || !std::equal(splits.begin(), splits.end(), known.splits.begin())) continue;
    if (found.empty() || known.ignore_merges == ignore_merges) found = known.name;
  }
  return found;
}

std::vector<std::string_view> convertible_pre_tokenizers() {
  std::vector<std::string_view> names;
  names.reserve(kKnown.size());
  for (const KnownSplits& known : kKnown) names.push_back(known.name);
  return names;
}

}  // namespace quarrel
