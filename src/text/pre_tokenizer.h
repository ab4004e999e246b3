// Pre-tokenisers cut a text into the words that BPE works on. A model was trained with one of a few dozen regular
// expressions; here each is data: a list of steps, a step a list of rules, tried in order at each position. A step cuts
// every piece of the step before. A rule looks only as far as it consumes, or keeps what it saw, so that the whole is
// linear in the text: no backtracking machine runs over what a user sends. The tables are constant; any thread may
// split.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/char_class.h"

namespace quarrel {

enum class SplitKind : std::uint8_t {
  run,              // prefix? body{least,most} tail{0,tail_most}
  contraction,      // 's 't 're 've 'm 'll 'd
  cased_word,       // prefix? body* tail+, else prefix? body+ tail*: a word split where lower case turns to upper
  spaces_newline,   // \s*[\r\n]+
  spaces_before,    // \s+(?!\S): spaces but the last, which belongs to the next word
  spaces_at_end,    // \s+$
  digits_by_three,  // a run of digits in groups of three from its right
};

struct SplitRule {
  SplitKind kind = SplitKind::run;
  CharSet prefix{};
  CharSet body{};
  CharSet tail{};
  std::uint32_t least = 1;
  std::uint32_t most = UINT32_MAX;
  std::uint32_t tail_most = UINT32_MAX;
  bool needs_prefix = false;
  bool any_case = false;          // contractions in capitals as well
  bool with_contraction = false;  // a cased word takes one along
  bool at_word_end = false;       // digits only where no letter follows
};

using SplitStep = std::span<const SplitRule>;

struct PreTokenizer {
  std::string_view name;
  std::span<const SplitStep> steps;
  bool ignore_merges = false;  // a word that is a token is taken whole
  bool add_bos = false;        // unless the file says otherwise
  bool raw = false;            // no byte alphabet: spaces become "▁", unknown characters <0xNN>
};

// By the name a file carries, an alias or not; null if nobody knows it.
const PreTokenizer* find_pre_tokenizer(std::string_view name) noexcept;
// Every name there is, for tests.
std::vector<std::string_view> pre_tokenizer_names();

// The ends of the words, ascending, the last the text's. Words are never empty; together they are the text.
std::vector<std::size_t> split_words(const PreTokenizer& pre_tokenizer, std::string_view text, std::uint64_t& steps);

}  // namespace quarrel
