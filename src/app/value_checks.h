// What the value of an option must be, checked while the command line is read and refused in a sentence of our own: the
// parser's says neither which value it was nor what is wanted in numbers that people read. Pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace quarrel {

inline constexpr std::int64_t kNoLargest = std::numeric_limits<std::int32_t>::max();

// "'-1' is not a whole number from 0 to 4096"; without a largest one, "a whole number, 0 or more".
CLI::Validator whole_number(std::int64_t least, std::int64_t most = kNoLargest);
// Any whole number that fits, or any number: what is in range, others know.
CLI::Validator any_whole_number();
CLI::Validator any_number();
CLI::Validator number(double least, double most);
// The parser would take -1 for the largest number there is.
CLI::Validator any_seed();
// "'foo' is not one of cpu, reference"; the help and completions list the words.
// `understood`: words that are not offered; what takes them says why not.
CLI::Validator one_of(std::vector<std::string> words, std::vector<std::string> understood = {});
// Any text but none: `--ctx "$UNSET"` is a mistake, and not the same as no option.
CLI::Validator not_empty();
// A file's name and not "-", which stands for standard output elsewhere.
CLI::Validator not_standard_output();

}  // namespace quarrel
