// How deep a JSON text nests, told without parsing it: a parser that recurses, or makes a tree that does when it is
// freed, must not see more nesting than its stack bears.
#pragma once

#include <string_view>

namespace quarrel {

inline bool nests_deeper(std::string_view json, int levels) noexcept {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > levels) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace quarrel
