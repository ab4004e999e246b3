// What users hand to commands: files, standard input, JSON. All of it may be hostile, so sizes and nesting are bounded
// before anything looks inside. Stateless.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace quarrel {

inline constexpr std::size_t kInputLimit = 256u << 20;

// The whole of a file, or of standard input for "-". Throws Error: not_found, io, usage for a folder, bad_input beyond
// `limit` bytes.
std::string read_input(const std::string& path, std::size_t limit = kInputLimit);
std::string read_standard_input(std::size_t limit = kInputLimit);

// Throws Error(bad_input) with line and column; `what` names the source in the message.
nlohmann::ordered_json parse_json(std::string_view text, std::string_view what);

// JSON on one line, or indented for people; bytes that are not UTF-8 become U+FFFD.
std::string dump_json(const nlohmann::ordered_json& value, bool indented = true);

}  // namespace quarrel
