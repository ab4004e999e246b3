// Characters the way Python's str sees them. Texts may hold bytes that are not UTF-8: such a byte counts as one
// character that has no properties and is copied as it is. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quarrel::jinja {

struct Character {
  char32_t code = 0;     // 0xFFFFFFFF for a byte that is no character
  std::size_t size = 1;  // in bytes
};

// The character that starts at `at`, which must lie inside the text.
Character character_at(std::string_view text, std::size_t at);
// Where the character before `at` starts; `at` must not be 0.
std::size_t previous_character(std::string_view text, std::size_t at);
void append_character(std::string& out, char32_t code);
std::size_t count_characters(std::string_view text);
// The byte at which character number `index` starts, or the text's size.
std::size_t byte_of_character(std::string_view text, std::size_t index);

bool is_space(char32_t code);
bool is_line_end(char32_t code);
bool is_alpha(char32_t code);
bool is_digit(char32_t code);
bool is_upper(char32_t code);
bool is_lower(char32_t code);
bool is_printable(char32_t code);

// One character's other case, appended to `out`.
void append_upper(std::string& out, char32_t code);
void append_lower(std::string& out, char32_t code);

}  // namespace quarrel::jinja
