// Words of the chat: what it takes apart and what it says. Used by the files of ChatLoop, on the main thread.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

namespace quarrel {

// How a message of several lines begins and ends.
inline constexpr std::string_view kQuotes = "\"\"\"";

// Without blanks around it.
std::string_view trim(std::string_view text);
// The first word and, trimmed, what follows it.
std::pair<std::string_view, std::string_view> split_word(std::string_view text);

// A line on standard output, broken between words as an answer is.
void say(std::string_view sentence);
// The same on standard error, in the colour of a notice.
void warn(std::string_view sentence);
// A name and its value, which begins in column `indent`.
void say_field(std::string_view name, std::string_view value, std::size_t indent = 26);

}  // namespace quarrel
