// A request's body as JSON. Two readers behind one function: simdjson for large bodies, which it takes in a fraction of
// the time, and nlohmann's parser (base/json_reader), which can say what is wrong with one. Any thread.
#pragma once

#include <optional>
#include <string_view>

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

}  // namespace quarrel
