// JSON from outside, read in time that grows with its size, whatever is in it. The library's own builder compares the
// name of each member with all before it, so that one object of some megabytes takes it many minutes.
//
// Used for requests, for what a vector store has beside its texts, and for files of texts. Any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace quarrel {

enum class JsonFlaw {
  syntax,    // it is no JSON, or not all of it is
  number,    // one is too large for any type
  nesting,   // lists and objects lie deeper in each other than the limit
  members,   // an object has more of them than the limit
  repeated,  // an object has two of one name
};

struct JsonFault {
  JsonFlaw flaw = JsonFlaw::syntax;
  std::size_t at = 0;       // of syntax and numbers: the byte, from 1
  std::string detail = {};  // the name that is there twice; of syntax and numbers, the library's sentence
};

// Of a name that comes twice in one object, some might take the first value and others the last.
enum class RepeatedNames { refused, last_counts };

struct JsonLimits {
  std::size_t levels = 64;
  std::size_t members = std::numeric_limits<std::size_t>::max();  // of one object
  RepeatedNames repeated = RepeatedNames::last_counts;
};

struct JsonReading {
  nlohmann::ordered_json value = {};  // null with a fault
  std::optional<JsonFault> fault = {};
};

JsonReading read_json(std::string_view text, const JsonLimits& limits = {});

// A name that is there twice; none: they all differ. They are sorted for it: each would be compared with all the others
// otherwise.
template <typename Less = std::less<>>
std::optional<std::string_view> repeated_name(std::vector<std::string_view>& names, const Less& less = {}) {
  std::sort(names.begin(), names.end(), less);
  const auto found = std::adjacent_find(names.begin(), names.end(),
                                        [&](std::string_view a, std::string_view b) { return !less(a, b); });
  if (found == names.end()) return std::nullopt;
  return *found;
}

}  // namespace quarrel
