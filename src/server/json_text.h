// Texts as JSON has them: what every writer of answers and of logs makes its strings with. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace quarrel {

// "text" with its quotes, at the end of `out`. The text is UTF-8.
void append_json_string(std::string& out, std::string_view text);

// The same of any bytes: what is no UTF-8 is replaced.
std::string json_string(std::string_view text);

}  // namespace quarrel
