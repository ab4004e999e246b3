// Work on texts that filters and methods share. Pieces cut out keep their origin byte by byte.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "text/jinja/runtime.h"

namespace quarrel::jinja {

// The maximal pieces of one origin, in order.
std::vector<std::pair<Text, Origin>> runs_of(Text text);

Text upper(Runtime& runtime, Text text);
Text lower(Runtime& runtime, Text text);
Text capitalize(Runtime& runtime, Text text);
Text title(Runtime& runtime, Text text);         // str.title: every run of letters begins upper case
Text title_filter(Runtime& runtime, Text text);  // the filter: every word after blanks, dashes and brackets

enum class Side : std::uint8_t { left, right, both };
// Without `characters`, white space.
Text strip(Runtime& runtime, Text text, Side side, std::optional<Text> characters);

// At most `limit` cuts; negative for no limit.
ListObject* split(Runtime& runtime, Text text, std::optional<Text> separator, std::int64_t limit);
ListObject* split_right(Runtime& runtime, Text text, std::optional<Text> separator, std::int64_t limit);
ListObject* split_lines(Runtime& runtime, Text text, bool keep_ends);
Text replace(Runtime& runtime, Text text, Text old, Text fresh, std::int64_t limit);
// `width` in characters, filled up on one side (right: the text stands at the left) or both.
Text pad(Runtime& runtime, Text text, std::int64_t width, Side side, Text fill);

}  // namespace quarrel::jinja
