#include "app/coherence.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_set>

#include "text/unicode.h"

namespace quarrel {
namespace {

// Scripts that stand together in ordinary text are one here: Japanese and Korean write Han characters too.
enum class Script : std::uint8_t { latin, greek, cyrillic, hebrew, arabic, indic, thai, east_asian, other };
constexpr std::size_t kScripts = 9;

struct ScriptRange {
  char32_t first, last;
  Script script;
};

// Where most letters of a script stand, ascending; what is not listed is `other`.
constexpr ScriptRange kScriptRanges[] = {
    {0x0041, 0x02AF, Script::latin},      {0x0370, 0x03FF, Script::greek},        {0x0400, 0x052F, Script::cyrillic},
    {0x0590, 0x05FF, Script::hebrew},     {0x0600, 0x06FF, Script::arabic},       {0x0750, 0x077F, Script::arabic},
    {0x0900, 0x0DFF, Script::indic},      {0x0E00, 0x0EFF, Script::thai},         {0x1100, 0x11FF, Script::east_asian},
    {0x1E00, 0x1EFF, Script::latin},      {0x1F00, 0x1FFF, Script::greek},        {0x2C60, 0x2C7F, Script::latin},
    {0x3005, 0x4DBF, Script::east_asian}, {0x4E00, 0x9FFF, Script::east_asian},   {0xA640, 0xA69F, Script::cyrillic},
    {0xA720, 0xA7FF, Script::latin},      {0xAC00, 0xD7FF, Script::east_asian},   {0xF900, 0xFAFF, Script::east_asian},
    {0xFB50, 0xFDFF, Script::arabic},     {0xFE70, 0xFEFC, Script::arabic},       {0xFF21, 0xFF5A, Script::latin},
    {0xFF66, 0xFFDC, Script::east_asian}, {0x20000, 0x323AF, Script::east_asian},
};

Script script_of(char32_t code) {
  for (const ScriptRange& range : kScriptRanges) {
    if (code < range.first) break;
    if (code <= range.last) return range.script;
  }
  return Script::other;
}

bool is_letter(char32_t code) {
  switch (char_category(code)) {
    case CharCategory::upper:
    case CharCategory::lower:
    case CharCategory::title:
    case CharCategory::modifier:
    case CharCategory::other_letter: return true;
    default: return false;
  }
}

// What an honest text does not contain. Joiners and direction marks do occur in some languages and in emoji.
bool is_noise(char32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  if (code < 0x20 || (code >= 0x7F && code < 0xA0) || code == kReplacementChar) return true;
  if ((code >= 0xE000 && code <= 0xF8FF) || code >= 0xF0000) return true;
  return char_category(code) == CharCategory::unassigned;
}

std::u32string characters_of(std::string_view text) {
  std::u32string characters;
  for (std::size_t at = 0; at < text.size() && characters.size() < kMaxCoherenceCharacters;) {
    const Utf8Char next = decode_utf8(text, at);
    characters.push_back(next.status == Utf8Status::valid ? next.code : kReplacementChar);
    at += next.length;
  }
  return characters;
}

// The longest passage of period p is one stretch in which each character equals the one p before it.
double looped_share(const std::u32string& text) {
  constexpr std::size_t kLongestPeriod = 512;
  constexpr std::size_t kShortestPassage = 32;  // "ha ha ha" is a word, not a loop
  std::size_t longest = 0;
  for (std::size_t period = 1; period <= std::min(kLongestPeriod, text.size() / 3); ++period) {
    std::size_t run = 0;
    for (std::size_t i = period; i < text.size(); ++i) {
      run = text[i] == text[i - period] ? run + 1 : 0;
      if (run >= 2 * period) longest = std::max(longest, run + period);
    }
  }
  if (longest < kShortestPassage) return 0.0;
  return static_cast<double>(longest) / static_cast<double>(text.size());
}

double repeated_share(const std::u32string& text) {
  constexpr std::size_t kStretch = 16;
  if (text.size() < 2 * kStretch) return 0.0;
  const std::u32string_view all = text;
  const std::size_t count = text.size() - kStretch + 1;
  std::unordered_set<std::u32string_view> seen;
  for (std::size_t i = 0; i < count; ++i) seen.insert(all.substr(i, kStretch));
  return static_cast<double>(count - seen.size()) / static_cast<double>(count);
}

void measure_scripts(const std::u32string& text, Coherence& coherence) {
  std::array<std::int64_t, kScripts> letters{};
  std::int64_t words = 0;
  std::int64_t mixed = 0;
  unsigned alphabets = 0;  // of the current word, a bit each; East Asian words and foreign names often touch
  bool in_word = false;
  const auto end_word = [&] {
    if (in_word) {
      ++words;
      if ((alphabets & (alphabets - 1)) != 0) ++mixed;
    }
    in_word = false;
    alphabets = 0;
  };
  for (const char32_t code : text) {
    if (!is_letter(code)) {
      if (char_category(code) != CharCategory::mark) end_word();
      continue;
    }
    const Script script = script_of(code);
    ++letters[static_cast<std::size_t>(script)];
    if (script != Script::east_asian && script != Script::other) alphabets |= 1U << static_cast<unsigned>(script);
    in_word = true;
  }
  end_word();
  for (const std::int64_t count : letters) coherence.letters += count;
  if (coherence.letters > 0) {
    const std::int64_t foreign = coherence.letters - *std::ranges::max_element(letters);
    coherence.foreign = static_cast<double>(foreign) / static_cast<double>(coherence.letters);
  }
  if (words > 0) coherence.mixed_words = static_cast<double>(mixed) / static_cast<double>(words);
}

}  // namespace

Coherence measure_coherence(std::string_view text) {
  const std::u32string characters = characters_of(text);
  Coherence coherence{.characters = static_cast<std::int64_t>(characters.size())};
  coherence.looped = looped_share(characters);
  coherence.repeated = repeated_share(characters);
  coherence.noise = std::ranges::count_if(characters, is_noise);
  measure_scripts(characters, coherence);
  return coherence;
}

std::vector<std::string> coherence_faults(const Coherence& coherence, const CoherenceLimits& limits) {
  std::vector<std::string> faults;
  const auto share = [&](const char* what, double value, double limit) {
    if (value <= limit) return;
    faults.push_back(fmt::format("{}: {:.1f} % (limit {:.1f} %)", what, value * 100, limit * 100));
  };
  share("one passage loops", coherence.looped, limits.max_looped);
  share("it repeats itself", coherence.repeated, limits.max_repeated);
  share("letters of other scripts", coherence.foreign, limits.max_foreign);
  share("words that mix alphabets", coherence.mixed_words, limits.max_mixed_words);
  if (coherence.noise > limits.max_noise) {
    faults.push_back(fmt::format("characters that no text has: {} (limit {})", coherence.noise, limits.max_noise));
  }
  if (coherence.letters < limits.min_letters) {
    faults.push_back(fmt::format("letters: {} (at least {})", coherence.letters, limits.min_letters));
  }
  return faults;
}

}  // namespace quarrel
