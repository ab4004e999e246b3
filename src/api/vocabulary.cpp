// What a model's file says of its tokens and of itself: tokens and texts, conversations, special ids, metadata.
#include <variant>

#include "api/conversions.h"
#include "api/model_impl.h"
#include "session/generation.h"

namespace quarrel::api {
namespace {

Token id_of(const std::optional<TokenId>& id) noexcept { return id.value_or(kNoToken); }

bool is_float(GgufKind kind) noexcept { return kind == GgufKind::f32 || kind == GgufKind::f64; }

MetadataValue numbers_of(const GgufNumbers& numbers) {
  if (is_float(numbers.kind)) {
    std::vector<double> values(numbers.count);
    for (std::uint64_t i = 0; i < numbers.count; ++i) values[i] = numbers.as_double(i);
    return values;
  }
  std::vector<std::int64_t> values(numbers.count);
  for (std::uint64_t i = 0; i < numbers.count; ++i) values[i] = numbers.as_int(i);
  return values;
}

// Every kind of value by its own overload, so that a new one does not compile without a word here.
struct ToPublic {
  MetadataValue operator()(std::uint64_t value) const { return value; }
  MetadataValue operator()(std::int64_t value) const { return value; }
  MetadataValue operator()(double value) const { return value; }
  MetadataValue operator()(bool value) const { return value; }
  MetadataValue operator()(std::string_view value) const { return std::string(value); }
  MetadataValue operator()(const GgufNumbers& value) const { return numbers_of(value); }
  MetadataValue operator()(const std::vector<std::string_view>& value) const {
    return std::vector<std::string>(value.begin(), value.end());
  }
};

}  // namespace

std::vector<std::string> Model::metadata_keys() const {
  return guarded([&] {
    const auto entries = impl().loaded->file().entries();
    std::vector<std::string> keys;
    keys.reserve(entries.size());
    for (const GgufEntry& entry : entries) keys.emplace_back(entry.key);
    return keys;
  });
}

std::optional<MetadataValue> Model::metadata(std::string_view key) const {
  return guarded([&]() -> std::optional<MetadataValue> {
    const GgufFile& file = impl().loaded->file();
    const GgufEntry* entry = file.find(key);
    if (entry == nullptr) return std::nullopt;
    MetadataValue value = std::visit(ToPublic{}, entry->value);
    file.require_whole();  // texts and lists lie in the mapped file
    return value;
  });
}

SpecialTokens Model::special_tokens() const {
  return guarded([&]() -> SpecialTokens {
    const auto& from = impl().loaded->require_tokenizer().special();
    return {.bos = id_of(from.bos),
            .eos = id_of(from.eos),
            .eot = id_of(from.eot),
            .unknown = id_of(from.unknown),
            .separator = id_of(from.separator),
            .padding = id_of(from.padding),
            .cls = id_of(from.cls),
            .mask = id_of(from.mask),
            .add_bos = from.add_bos,
            .add_eos = from.add_eos,
            .end_of_generation = from.end_of_generation};
  });
}

std::string Model::token_bytes(Token token, bool show_special) const {
  return guarded([&] { return impl().loaded->require_tokenizer().piece(token, false, show_special); });
}

std::vector<Token> Model::tokenize(std::string_view text, bool add_special, bool parse_special) const {
  return guarded([&] {
    return impl().loaded->require_tokenizer().encode(text,
                                                     {.add_special = add_special, .parse_special = parse_special});
  });
}

std::string Model::detokenize(std::span<const Token> tokens, bool show_special) const {
  return guarded([&] { return impl().loaded->require_tokenizer().decode(tokens, show_special); });
}

ChatPrompt Model::chat_prompt(const Chat& chat) const {
  return guarded([&]() -> ChatPrompt {
    EncodedChat encoded = render_chat(*impl().loaded, chat_input_of(chat));
    return {.text = std::move(encoded.text), .tokens = std::move(encoded.tokens)};
  });
}

ChatPrompt Model::chat_prompt(std::span<const Message> messages) const {
  return chat_prompt(Chat{.messages = {messages.begin(), messages.end()}});
}

}  // namespace quarrel::api
