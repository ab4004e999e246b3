// Token ids on the command line: "1,2,3", "1 2 3", "[1, 2, 3]" or @FILE that holds such a list. What a user gives is
// checked here once, so that the commands can feed it to a model. Stateless: any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/token.h"

namespace quarrel {

inline constexpr std::size_t kMaxListedTokens = std::size_t{1} << 24;
inline constexpr std::size_t kMaxTokenFileBytes = std::size_t{256} << 20;

// Throws Error(bad_input) for anything but decimal ids, an empty list or one that is too long.
std::vector<TokenId> parse_token_list(std::string_view text);

// What a list that cannot be used is: wrong usage where the argument is the list itself, else a file's bad input.
ErrorKind token_list_fault(const std::string& argument);

// The argument itself, or after @ the file it names. Throws as parse_token_list, but of that kind, and
// Error(not_found, io) for the file.
std::vector<TokenId> read_token_list(const std::string& argument);

// Throws an Error of the kind that names the first id outside [0, vocabulary) and its place.
void check_token_ids(std::span<const TokenId> tokens, std::int32_t vocabulary, ErrorKind fault = ErrorKind::bad_input);

// Throws an Error of the kind with both numbers when `needed` positions exceed the context: usage where an option's
// value needs them, and not a text's length.
void check_fits_context(std::int64_t needed, std::int32_t context, ErrorKind fault = ErrorKind::bad_input);

}  // namespace quarrel
