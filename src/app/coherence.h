// Does a text read like an answer, or like the noise of a model computed wrongly? Broken arithmetic shows as loops, as
// words of many alphabets in a heap, as characters that no text has. The measures know no language: they count
// characters and alphabets. Pure functions: any thread may call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quarrel {

struct Coherence {
  std::int64_t characters = 0;
  std::int64_t letters = 0;
  double looped = 0.0;       // share of the text in its longest passage that says the same three times or more in a row
  double repeated = 0.0;     // share of its 16-character stretches that stood in it before
  double foreign = 0.0;      // share of its letters that are not of its commonest script
  double mixed_words = 0.0;  // share of its words that mix alphabets
  std::int64_t noise = 0;    // control characters, private and unassigned ones, what was no UTF-8
};

// What a coherent text stays within.
struct CoherenceLimits {
  double max_looped = 0.5;
  double max_repeated = 0.6;
  double max_foreign = 0.3;
  double max_mixed_words = 0.05;
  std::int64_t max_noise = 0;
  std::int64_t min_letters = 1;
};

// Of a longer text only this many characters are looked at.
inline constexpr std::size_t kMaxCoherenceCharacters = 65'536;

Coherence measure_coherence(std::string_view text);

// One sentence for each limit that is exceeded; none for a coherent text.
std::vector<std::string> coherence_faults(const Coherence& coherence, const CoherenceLimits& limits);

}  // namespace quarrel
