#include "convert/hugging_face_tokenizer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "convert/json_file.h"
#include "convert/tokenizer_json.h"
#include "text/vocabulary.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kWordStart = "\xE2\x96\x81";  // "▁"
constexpr std::string_view kContinuation = "##";

// The tokens with a task: what the tokenizer's files call them, GGUF's key, and how WordPiece vocabularies spell them.
struct Task {
  std::string_view name;
  std::string_view key;
  std::string_view word_piece;
};
constexpr std::array kTasks = {
    Task{"bos_token", "tokenizer.ggml.bos_token_id", ""},
    Task{"eos_token", "tokenizer.ggml.eos_token_id", ""},
    Task{"unk_token", "tokenizer.ggml.unknown_token_id", "[UNK]"},
    Task{"sep_token", "tokenizer.ggml.seperator_token_id", "[SEP]"},  // the format's own spelling
    Task{"pad_token", "tokenizer.ggml.padding_token_id", "[PAD]"},
    Task{"cls_token", "tokenizer.ggml.cls_token_id", "[CLS]"},
    Task{"mask_token", "tokenizer.ggml.mask_token_id", "[MASK]"},
};

// Places in that table.
constexpr std::size_t kBos = 0;
constexpr std::size_t kEos = 1;
constexpr std::size_t kUnknown = 2;
constexpr std::size_t kSep = 3;
constexpr std::size_t kCls = 5;

// A token is written as its text, or as an object that holds it.
std::optional<std::string> text_of(const json* token) {
  if (token == nullptr) return std::nullopt;
  if (token->is_string()) return token->get<std::string>();
  const auto content = token->is_object() ? token->find("content") : token->end();
  if (token->is_object() && content != token->end() && content->is_string()) return content->get<std::string>();
  return std::nullopt;
}

class TokenizerWriter {
 public:
  TokenizerWriter(const fs::path& folder, std::uint32_t rows, GgufWriter& writer, Log& log)
      : folder_(folder),
        rows_(rows),
        writer_(writer),
        log_(log),
        settings_(read_json_file_if_any(folder / "tokenizer_config.json")),
        special_map_(read_json_file_if_any(folder / "special_tokens_map.json")),
        config_(read_json_file_if_any(folder / "config.json")) {}

  void put() {
    std::error_code fault;
    if (fs::exists(folder_ / "tokenizer.json", fault)) {
      tokenizer_ = TokenizerJson::read(folder_ / "tokenizer.json", rows_);
    } else if (fs::exists(folder_ / "vocab.txt", fault)) {
      read_word_list();
    } else {
      fail(ErrorKind::not_found, "'{}' has neither tokenizer.json nor vocab.txt", printable(folder_.string(), 512));
    }
    spread_tokens();
    if (tokenizer_.model == "WordPiece") {
      put_word_piece();
    } else if (tokenizer_.model == "BPE" && tokenizer_.byte_level) {
      put_byte_level();
    } else if (tokenizer_.model == "BPE" && tokenizer_.byte_fallback) {
      put_byte_fallback();
    } else {
      fail(ErrorKind::unsupported,
           "tokenizer.json: a {} model{} cannot be converted; WordPiece, byte-level BPE and BPE with byte_fallback can",
           printable(tokenizer_.model), tokenizer_.model == "BPE" ? " without bytes" : "");
    }
    writer_.put_strings("tokenizer.ggml.tokens", texts_);
    writer_.put_i32s("tokenizer.ggml.token_type", kinds_);
    put_special_ids();
    put_chat_template();
  }

 private:
  static std::int32_t number(TokenKind kind) { return static_cast<std::int32_t>(kind); }

  JsonFields settings() const { return {settings_, "tokenizer_config.json"}; }

  // vocab.txt: a token a line, its number the id.
  void read_word_list() {
    const std::string text = read_text_file(folder_ / "vocab.txt");
    tokenizer_.model = "WordPiece";
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      std::string line = text.substr(at, end - at);
      if (line.ends_with('\r')) line.pop_back();
      if (tokenizer_.tokens.size() == rows_) {
        fail(ErrorKind::bad_file, "vocab.txt has more lines than the {} rows of the embedding table", rows_);
      }
      tokenizer_.tokens.emplace_back(std::move(line));
      at = end + 1;
    }
  }

  // Tokens by id, with names for the rows that have none, and their kinds in as far as every algorithm sees them alike.
  void spread_tokens() {
    texts_.reserve(rows_);
    kinds_.assign(rows_, number(TokenKind::normal));
    tokenizer_.tokens.resize(rows_);
    for (std::uint32_t id = 0; id < rows_; ++id) {
      const std::optional<std::string>& token = tokenizer_.tokens[id];
      texts_.push_back(token ? *token : fmt::format("[PAD{}]", id));
      if (token) {
        ids_.emplace(*token, id);
      } else {
        kinds_[id] = number(TokenKind::unused);
      }
    }
    for (const AddedToken& token : tokenizer_.added) {
      kinds_[token.id] = number(token.special ? TokenKind::control : TokenKind::user_defined);
    }
  }

  std::optional<std::uint32_t> id_of(const std::optional<std::string>& text) const {
    const auto found = text ? ids_.find(*text) : ids_.end();
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  // From the tokenizer's own files, or by the number that config.json has.
  std::optional<std::uint32_t> special_id(const Task& task) const {
    for (const json* source : {&settings_, &special_map_}) {
      if (const auto id = id_of(text_of(JsonFields(*source, "tokenizer_config.json").find(task.name)))) return id;
    }
    const json* value = JsonFields(config_, "config.json").find(fmt::format("{}_id", task.name));
    if (value != nullptr && value->is_array() && !value->empty()) value = &value->front();
    if (value != nullptr && value->is_number_unsigned() && value->get<std::uint64_t>() < rows_) {
      return value->get<std::uint32_t>();
    }
    if (task.name == "unk_token" && !tokenizer_.unknown.empty()) return id_of(tokenizer_.unknown);
    return tokenizer_.model == "WordPiece" ? id_of(std::string(task.word_piece)) : std::nullopt;
  }

  void put_special_ids() {
    const bool word_piece = tokenizer_.model == "WordPiece";
    for (const Task& task : kTasks) {
      // WordPiece texts begin with CLS and end with SEP, whatever else the files call so.
      const bool begins = word_piece && task.name == "bos_token";
      const bool ends = word_piece && task.name == "eos_token";
      const auto id = special_id(begins ? kTasks[kCls] : ends ? kTasks[kSep] : task);
      if (id) writer_.put_u32(task.key, *id);
    }
  }

  void put_word_piece() {
    writer_.put_string("tokenizer.ggml.model", "bert");
    for (const Task& task : kTasks) {
      if (task.word_piece.empty()) continue;
      if (const auto id = special_id(task)) kinds_[*id] = number(TokenKind::control);
    }
    for (std::size_t id = 0; id < texts_.size(); ++id) {
      if (kinds_[id] != number(TokenKind::normal)) continue;
      std::string& text = texts_[id];
      if (text.starts_with(kContinuation) && text.size() > kContinuation.size()) {
        text.erase(0, kContinuation.size());
      } else {
        text.insert(0, kWordStart);
      }
    }
    const bool lowercase = tokenizer_.lowercase.value_or(settings().boolean("do_lower_case").value_or(true));
    const std::optional<bool> own_accents = settings().boolean("strip_accents");
    writer_.put_bool("tokenizer.ggml.normalizer.lowercase", lowercase);
    writer_.put_bool("tokenizer.ggml.normalizer.strip_accents",
                     tokenizer_.strip_accents.value_or(own_accents.value_or(lowercase)));
    // Every text stands between these two.
    writer_.put_bool("tokenizer.ggml.add_bos_token", true);
    writer_.put_bool("tokenizer.ggml.add_eos_token", true);
  }

  void put_byte_level() {
    if (tokenizer_.adds_space.value_or(false)) {
      fail(ErrorKind::unsupported, "tokenizer.json: a byte-level vocabulary with add_prefix_space is not supported");
    }
    const std::string_view name = pre_tokenizer_of(tokenizer_.splits, tokenizer_.ignore_merges);
    if (name.empty()) {
      std::string splits;
      for (const std::string& split : tokenizer_.splits) splits += fmt::format(" '{}'", printable(split, 400));
      fail(ErrorKind::unsupported, "tokenizer.json: this pre_tokenizer is not supported:{}; supported are {}", splits,
           fmt::join(convertible_pre_tokenizers(), ", "));
    }
    writer_.put_string("tokenizer.ggml.model", "gpt2");
    writer_.put_string("tokenizer.ggml.pre", name);
    writer_.put_strings("tokenizer.ggml.merges", tokenizer_.merges);
    put_frame();
  }

  // SentencePiece merges what has the highest score; the files' merges stand in that order, so a token's place among
  // them is its score. Single characters come out of no merge, and theirs is never asked for.
  void put_byte_fallback() {
    writer_.put_string("tokenizer.ggml.model", "llama");
    std::vector<float> scores(rows_, -static_cast<float>(tokenizer_.merges.size()));
    std::vector<bool> seen(rows_, false);
    for (std::size_t i = 0; i < tokenizer_.merges.size(); ++i) {
      std::string joined = tokenizer_.merges[i];
      joined.erase(joined.find(' '), 1);
      const auto id = id_of(joined);
      if (!id || seen[*id]) continue;
      seen[*id] = true;
      scores[*id] = -static_cast<float>(i);
    }
    for (std::uint32_t id = 0; id < rows_; ++id) {
      if (byte_of_spelling(texts_[id])) kinds_[id] = number(TokenKind::byte);
    }
    if (const auto unknown = special_id(kTasks[kUnknown])) kinds_[*unknown] = number(TokenKind::unknown);
    writer_.put_f32s("tokenizer.ggml.scores", scores);
    writer_.put_bool("tokenizer.ggml.add_space_prefix", tokenizer_.adds_space.value_or(true));
    put_frame();
  }

  // Whether a text begins and ends with special tokens: the file that says it by name, else the template.
  void put_frame() {
    const auto adds = [&](std::string_view setting, const Task& task, const std::string& token) {
      if (const auto own = settings().boolean(setting)) return *own;
      if (!tokenizer_.has_template || token.empty()) return false;
      const auto id = id_of(token);
      if (id && id == special_id(task)) return true;
      log_.warn("tokenizer.json puts '{}' around a text, which is not the model's {}: it is left out", printable(token),
                task.name);
      return false;
    };
    writer_.put_bool("tokenizer.ggml.add_bos_token", adds("add_bos_token", kTasks[kBos], tokenizer_.begins));
    writer_.put_bool("tokenizer.ggml.add_eos_token", adds("add_eos_token", kTasks[kEos], tokenizer_.ends));
  }

  // In a file of its own, as a text, or as a list of texts with names.
  void put_chat_template() {
    std::error_code fault;
    std::optional<std::string> text;
    if (fs::exists(folder_ / "chat_template.jinja", fault)) text = read_text_file(folder_ / "chat_template.jinja");
    const json* setting = settings().find("chat_template");
    if (!text && setting != nullptr && setting->is_array()) {
      for (const json& one : *setting) {
        const JsonFields fields(one, "tokenizer_config.json: chat_template");
        if (fields.string("name") == "default") text = fields.string("template");
      }
    } else if (!text && setting != nullptr) {
      text = settings().string("chat_template");
    }
    if (text) writer_.put_string("tokenizer.chat_template", *text);
  }

  const fs::path& folder_;
  std::uint32_t rows_;
  GgufWriter& writer_;
  Log& log_;
  json settings_;
  json special_map_;
  json config_;
  TokenizerJson tokenizer_;
  std::vector<std::string> texts_;
  std::vector<std::int32_t> kinds_;
  std::unordered_map<std::string, std::uint32_t> ids_;
};

}  // namespace

void put_tokenizer(const fs::path& folder, std::uint32_t rows, GgufWriter& writer, Log& log) {
  TokenizerWriter(folder, rows, writer, log).put();
}

}  // namespace quarrel
