#include "text/jinja/lexer.h"

#include <charconv>
#include <limits>

#include "text/jinja/characters.h"
#include "text/jinja/fault.h"

namespace quarrel::jinja {
namespace {

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }

bool is_name_part(char c) { return is_name_start(c) || is_digit_char(c); }

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::size_t skip_blanks(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Character c = character_at(text, at);
    if (!is_space(c.code)) break;
    at += c.size;
  }
  return at;
}

std::string_view without_trailing_blanks(std::string_view text) {
  while (!text.empty()) {
    const std::size_t last = previous_character(text, text.size());
    if (!is_space(character_at(text, last).code)) break;
    text = text.substr(0, last);
  }
  return text;
}

// Resolves a string literal's escapes the way Python does; unknown ones stay as they are.
std::string unescape(std::string_view text, std::size_t offset) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '\\' || at + 1 == text.size()) {
      out += text[at++];
      continue;
    }
    const char escape = text[at + 1];
    at += 2;
    const auto hexadecimal = [&](std::size_t digits) {
      char32_t code = 0;
      for (std::size_t i = 0; i < digits; ++i, ++at) {
        const int digit = at < text.size() ? hex_value(text[at]) : -1;
        if (digit < 0) throw Fault(fmt::format("'\\{}' needs {} hexadecimal digits", escape, digits), offset);
        code = code * 16 + static_cast<char32_t>(digit);
      }
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) throw Fault("an escape is not a character", offset);
      append_character(out, code);
    };
    switch (escape) {
      case '\n': break;
      case '\\':
      case '\'':
      case '"': out += escape; break;
      case 'a': out += '\a'; break;
      case 'b': out += '\b'; break;
      case 'f': out += '\f'; break;
      case 'n': out += '\n'; break;
      case 'r': out += '\r'; break;
      case 't': out += '\t'; break;
      case 'v': out += '\v'; break;
      case 'x': hexadecimal(2); break;
      case 'u': hexadecimal(4); break;
      case 'U': hexadecimal(8); break;
      default:
        if (escape >= '0' && escape <= '7') {
          char32_t code = 0;
          --at;
          for (int i = 0; i < 3 && at < text.size() && text[at] >= '0' && text[at] <= '7'; ++i, ++at) {
            code = code * 8 + static_cast<char32_t>(text[at] - '0');
          }
          append_character(out, code);
        } else {
          out += '\\';
          out += escape;
        }
    }
  }
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text_until_tag();
    push(TokenType::end, at_);
    return std::move(tokens_);
  }

 private:
  Token& push(TokenType type, std::size_t offset, std::string text = {}) {
    Token token;
    token.type = type;
    token.offset = offset;
    token.text = std::move(text);
    return tokens_.emplace_back(std::move(token));
  }

  bool here(std::string_view what) const { return source_.substr(at_).starts_with(what); }

  // Where the next tag opens, or the end.
  std::size_t next_tag(std::size_t from) const {
    for (std::size_t at = from; (at = source_.find('{', at)) != std::string_view::npos; ++at) {
      if (at + 1 >= source_.size()) break;
      const char second = source_[at + 1];
      if (second == '{' || second == '%' || second == '#') return at;
    }
    return source_.size();
  }

  // The text before a tag, with what the tag's sign and lstrip_blocks take from its end.
  std::string_view trimmed(std::size_t begin, std::size_t end, char sign, bool is_variable) const {
    const std::string_view text = source_.substr(begin, end - begin);
    if (sign == '-') return without_trailing_blanks(text);
    if (sign == '+' || is_variable) return text;
    const std::size_t newline = text.rfind('\n');
    const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if (line == 0 && !line_starting_) return text;
    return skip_blanks(text, line) == text.size() ? text.substr(0, line) : text;
  }

  void add_data(std::size_t offset, std::string_view text) {
    if (!text.empty()) push(TokenType::data, offset, std::string(text));
  }

  void text_until_tag() {
    const std::size_t begin = at_;
    const std::size_t tag = next_tag(at_);
    if (tag == source_.size()) {
      add_data(begin, source_.substr(begin));
      at_ = tag;
      return;
    }
    const char kind = source_[tag + 1];
    at_ = tag + 2;
    char sign = 0;
    if (here("-") || here("+")) sign = source_[at_];
    add_data(begin, trimmed(begin, tag, sign, kind == '{'));
    if (sign != 0) ++at_;
    if (kind == '#') {
      comment(tag);
    } else if (kind == '%' && raw_begin()) {
      raw(tag);
    } else {
      tag_tokens(tag, kind == '{');
    }
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  // After "%}" or "#}" and a possible sign: swallows what the sign says.
  void after_end(char sign, bool trims_newline) {
    if (sign == '-') {
      at_ = skip_blanks(source_, at_);
    } else if (sign != '+' && trims_newline && here("\n")) {
      ++at_;
    }
  }

  void comment(std::size_t tag) {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) throw Fault("a comment is not closed", tag);
    char sign = 0;
    if (end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+')) sign = source_[end - 1];
    at_ = end + 2;
    after_end(sign, true);
  }

  // Whether `{% raw %}` stands here; moves behind it if so.
  bool raw_begin() {
    std::size_t at = skip_blanks(source_, at_);
    if (!source_.substr(at).starts_with("raw")) return false;
    at = skip_blanks(source_, at + 3);
    const bool strips = source_.substr(at).starts_with("-%}");
    if (!strips && !source_.substr(at).starts_with("%}")) return false;
    at_ = at + (strips ? 3 : 2);
    if (strips) at_ = skip_blanks(source_, at_);
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
    return true;
  }

  void raw(std::size_t tag) {
    const std::size_t begin = at_;
    for (std::size_t open = begin; (open = source_.find("{%", open)) != std::string_view::npos; open += 2) {
      std::size_t at = open + 2;
      char sign = 0;
      if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) sign = source_[at++];
      at = skip_blanks(source_, at);
      if (!source_.substr(at).starts_with("endraw")) continue;
      at = skip_blanks(source_, at + 6);
      char end_sign = 0;
      if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) end_sign = source_[at++];
      if (!source_.substr(at).starts_with("%}")) continue;
      add_data(begin, trimmed(begin, open, sign, false));
      at_ = at + 2;
      after_end(end_sign, true);
      return;
    }
    throw Fault("a raw block is not closed", tag);
  }

  // Whether the tag ends here; moves behind its end if so.
  bool tag_end(bool is_variable) {
    if (!brackets_.empty()) return false;
    const std::string_view end = is_variable ? "}}" : "%}";
    char sign = 0;
    if (here("-") || (here("+") && !is_variable)) sign = source_[at_];
    if (source_.substr(at_ + (sign != 0 ? 1 : 0), 2) != end) return false;
    push(is_variable ? TokenType::variable_end : TokenType::block_end, at_);
    at_ += sign != 0 ? 3 : 2;
    after_end(sign, !is_variable);
    return true;
  }

  void tag_tokens(std::size_t tag, bool is_variable) {
    push(is_variable ? TokenType::variable_begin : TokenType::block_begin, tag);
    brackets_.clear();
    for (;;) {
      at_ = skip_blanks(source_, at_);
      if (at_ >= source_.size()) throw Fault("a tag is not closed", tag);
      if (tag_end(is_variable)) return;
      const char c = source_[at_];
      if (is_digit_char(c)) {
        number();
      } else if (is_name_start(c)) {
        const std::size_t begin = at_;
        while (at_ < source_.size() && is_name_part(source_[at_])) ++at_;
        push(TokenType::name, begin, std::string(source_.substr(begin, at_ - begin)));
      } else if (c == '"' || c == '\'') {
        string_literal(c);
      } else {
        operator_token();
      }
    }
  }

  void string_literal(char quote) {
    const std::size_t begin = at_++;
    while (at_ < source_.size() && source_[at_] != quote) at_ += source_[at_] == '\\' ? 2u : 1u;
    if (at_ >= source_.size()) throw Fault("a string is not closed", begin);
    push(TokenType::string, begin, unescape(source_.substr(begin + 1, at_ - begin - 1), begin));
    ++at_;
  }

  // Digits with single underscores between them.
  std::string digits(bool hexadecimal) {
    std::string out;
    for (; at_ < source_.size(); ++at_) {
      const char c = source_[at_];
      const auto fits = [hexadecimal](char d) { return hexadecimal ? hex_value(d) >= 0 : is_digit_char(d); };
      if (fits(c)) {
        out += c;
      } else if (c != '_' || at_ + 1 >= source_.size() || !fits(source_[at_ + 1])) {
        break;
      }
    }
    return out;
  }

  void number() {
    const std::size_t begin = at_;
    int base = 10;
    if (here("0x") || here("0X")) base = 16;
    if (here("0o") || here("0O")) base = 8;
    if (here("0b") || here("0B")) base = 2;
    if (base != 10) at_ += 2;
    std::string text = digits(base == 16);
    bool is_float = false;
    const bool follows_dot = begin > 0 && source_[begin - 1] == '.';  // a.1.0 is two subscripts
    if (base == 10 && !follows_dot) {
      if (here(".") && at_ + 1 < source_.size() && is_digit_char(source_[at_ + 1])) {
        ++at_;
        text += '.';
        text += digits(false);
        is_float = true;
      }
      if (here("e") || here("E")) {
        const std::string_view next = source_.substr(at_ + 1, 1);
        const std::size_t sign = next == "+" || next == "-" ? 1u : 0u;
        if (at_ + 1 + sign < source_.size() && is_digit_char(source_[at_ + 1 + sign])) {
          text += 'e';
          if (sign != 0) text += source_[at_ + 1];
          at_ += 1 + sign;
          text += digits(false);
          is_float = true;
        }
      }
    }
    Token& token = push(is_float ? TokenType::floating : TokenType::integer, begin);
    const char* const last = text.data() + text.size();
    const auto result = is_float ? std::from_chars(text.data(), last, token.floating)
                                 : std::from_chars(text.data(), last, token.integer, base);
    if (is_float && result.ec == std::errc::result_out_of_range) {
      token.floating = text.find("e-") == std::string::npos ? std::numeric_limits<double>::infinity() : 0;
      return;
    }
    if (result.ec != std::errc() || result.ptr != last) throw Fault("a number is malformed or too large", begin);
  }

  void operator_token() {
    static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!here(op)) continue;
      balance(op);
      push(TokenType::op, at_, std::string(op));
      at_ += op.size();
      return;
    }
    throw Fault("a character has no meaning here", at_);
  }

  // Inside brackets "}}" and "%}" are operators, so they are counted.
  void balance(std::string_view op) {
    if (op == "(" || op == "[" || op == "{") {
      brackets_ += op == "(" ? ')' : (op == "[" ? ']' : '}');
    } else if (op == ")" || op == "]" || op == "}") {
      if (brackets_.empty() || brackets_.back() != op[0]) throw Fault(fmt::format("unexpected '{}'", op), at_);
      brackets_.pop_back();
    }
  }

  std::string_view source_;
  std::size_t at_ = 0;
  bool line_starting_ = true;
  std::string brackets_;  // the closing ones still to come
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalize_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t at = 0; at < source.size(); ++at) {
    if (source[at] != '\r') {
      out += source[at];
      continue;
    }
    out += '\n';
    if (at + 1 < source.size() && source[at + 1] == '\n') ++at;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace quarrel::jinja
