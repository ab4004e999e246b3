#include "app/token_list.h"

#include <charconv>
#include <limits>

#include "app/input.h"
#include "base/error.h"
#include "base/printable.h"

namespace quarrel {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// The list without the brackets of a JSON array, if it has any.
std::string_view without_brackets(std::string_view text) {
  text = trim(text);
  const bool opens = text.starts_with('[');
  const bool closes = text.ends_with(']');
  if (opens != closes || (opens && text.size() < 2)) {
    fail(ErrorKind::bad_input, "the token list has an unmatched bracket");
  }
  return opens ? trim(text.substr(1, text.size() - 2)) : text;
}

TokenId parse_id(std::string_view text) {
  TokenId id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error == std::errc::result_out_of_range && end == text.data() + text.size()) {
    fail(ErrorKind::bad_input, "the token id {} is too large", printable(text));
  }
  if (error != std::errc{} || end != text.data() + text.size()) {
    fail(ErrorKind::bad_input, "'{}' in the token list is not a token id", printable(text));
  }
  return id;
}

}  // namespace

std::vector<TokenId> parse_token_list(std::string_view text) {
  text = without_brackets(text);
  if (text.empty()) fail(ErrorKind::bad_input, "the token list is empty");
  std::vector<TokenId> tokens;
  for (;;) {
    std::size_t length = 0;
    while (length < text.size() && !is_space(text[length]) && text[length] != ',') ++length;
    if (length == 0) fail(ErrorKind::bad_input, "the token list has a comma with no token id beside it");
    if (tokens.size() == kMaxListedTokens) {
      fail(ErrorKind::bad_input, "the token list has more than {} ids", kMaxListedTokens);
    }
    tokens.push_back(parse_id(text.substr(0, length)));
    text = trim(text.substr(length));
    if (text.empty()) return tokens;
    if (text.front() == ',') text = trim(text.substr(1));
  }
}

ErrorKind token_list_fault(const std::string& argument) {
  return argument.starts_with('@') ? ErrorKind::bad_input : ErrorKind::usage;
}

std::vector<TokenId> read_token_list(const std::string& argument) {
  if (argument.starts_with('@')) return parse_token_list(read_input(argument.substr(1), kMaxTokenFileBytes));
  try {
    return parse_token_list(argument);
  } catch (const Error& error) {
    fail(token_list_fault(argument), "--tokens: {}", error.what());
  }
}

void check_token_ids(std::span<const TokenId> tokens, std::int32_t vocabulary, ErrorKind fault) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocabulary) {
      fail(fault, "the token id {} (number {} of the list) is not in the model's vocabulary of {} tokens", tokens[i],
           i + 1, vocabulary);
    }
  }
}

void check_fits_context(std::int64_t needed, std::int32_t context, ErrorKind fault) {
  if (needed > context) {
    fail(fault, "this needs {} positions, but the context holds only {} (--ctx)", needed, context);
  }
}

}  // namespace quarrel
