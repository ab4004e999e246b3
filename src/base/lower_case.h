// ASCII letters made small, for comparing names. Pure function: any thread may call.
#pragma once

#include <string>
#include <string_view>

namespace quarrel {

inline std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

}  // namespace quarrel
