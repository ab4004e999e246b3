// A request's body as JSON. Two readers behind one function: simdjson for large bodies, which it takes in a fraction of
// the time, and nlohmann, which can say what is wrong with one. Any thread.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace quarrel {

using Json = nlohmann::ordered_json;

// The body's JSON: an object, nested no deeper and with no wider objects than is sane, in UTF-8, without a name that
// comes twice in one object, of which some might take the first value and others the last. The time it takes grows with
// the body's size, whatever is in it. Throws ApiError.
Json parse_body(std::string_view body);

// ---- Its two halves, for those who compare them ----

// None: it is left to the other to take the body or to say what is wrong. What this takes, that one takes, as the same.
std::optional<Json> read_by_simdjson(std::string_view body);
Json read_by_nlohmann(std::string_view body);

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
