// Source to tokens, with the white space rules of trim_blocks and lstrip_blocks applied to the text between tags. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quarrel::jinja {

enum class TokenType : std::uint8_t {
  data,
  block_begin,
  block_end,
  variable_begin,
  variable_end,
  name,
  string,
  integer,
  floating,
  op,
  end,
};

struct Token {
  TokenType type = TokenType::end;
  std::size_t offset = 0;  // where it starts in the source
  std::string text;        // data, names, operators, and strings with their escapes resolved
  std::int64_t integer = 0;
  double floating = 0;
};

// Line ends become "\n" and one at the very end is dropped, as everywhere templates are rendered.
std::string normalize_source(std::string_view source);

// `source` is normalised. Throws Fault with an offset. The last token is `end`.
std::vector<Token> tokenize(std::string_view source);

}  // namespace quarrel::jinja
