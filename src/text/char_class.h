// The character sets that pre-tokenisers' patterns are made of, each one bit, so that a pattern asks a character for
// membership with one AND. Pure functions; any thread may call them.
#pragma once

#include <cstdint>

namespace quarrel {

using CharClasses = std::uint32_t;

namespace char_class {
inline constexpr CharClasses kUpper = 1u << 0;          // \p{Lu}
inline constexpr CharClasses kLower = 1u << 1;          // \p{Ll}
inline constexpr CharClasses kTitle = 1u << 2;          // \p{Lt}
inline constexpr CharClasses kModifier = 1u << 3;       // \p{Lm}
inline constexpr CharClasses kOtherLetter = 1u << 4;    // \p{Lo}
inline constexpr CharClasses kMark = 1u << 5;           // \p{M}
inline constexpr CharClasses kNumber = 1u << 6;         // \p{N}
inline constexpr CharClasses kPunctuation = 1u << 7;    // \p{P}
inline constexpr CharClasses kSymbol = 1u << 8;         // \p{S}
inline constexpr CharClasses kWhite = 1u << 9;          // \s
inline constexpr CharClasses kReturn = 1u << 10;        // \r
inline constexpr CharClasses kLineFeed = 1u << 11;      // \n
inline constexpr CharClasses kSpace = 1u << 12;         // U+0020
inline constexpr CharClasses kSlash = 1u << 13;         // /
inline constexpr CharClasses kDigit = 1u << 14;         // 0-9
inline constexpr CharClasses kAsciiLetter = 1u << 15;   // A-Za-z
inline constexpr CharClasses kAsciiMark = 1u << 16;     // the 32 visible ASCII characters that are not alphanumeric
inline constexpr CharClasses kMathSign = 1u << 17;      // $ + < = > ^ ~ |
inline constexpr CharClasses kBacktick = 1u << 18;      // `
inline constexpr CharClasses kUnderscore = 1u << 19;    // _
inline constexpr CharClasses kHan = 1u << 20;           // \p{Han}
inline constexpr CharClasses kCasedLetter = 1u << 21;   // deepseek-llm's list of letters of scripts with cases
inline constexpr CharClasses kWideMark = 1u << 22;      // deepseek-llm's punctuation (with ASCII letters)
inline constexpr CharClasses kEastAsian = 1u << 23;     // deepseek-llm's and -coder's wide range
inline constexpr CharClasses kHanKana = 1u << 24;       // deepseek-v3's ideographs and kana
inline constexpr CharClasses kSentenceMark = 1u << 25;  // bloom's punctuation
inline constexpr CharClasses kEverything = 1u << 31;    // set for every character

inline constexpr CharClasses kLetter = kUpper | kLower | kTitle | kModifier | kOtherLetter;
inline constexpr CharClasses kNewline = kReturn | kLineFeed;
}  // namespace char_class

CharClasses char_classes(char32_t code) noexcept;

// The characters with one of `any` and none of `none`.
struct CharSet {
  CharClasses any = 0;
  CharClasses none = 0;

  constexpr bool has(CharClasses classes) const noexcept { return (classes & any) != 0 && (classes & none) == 0; }
};

constexpr CharSet any_of(CharClasses classes) { return {classes, 0}; }
constexpr CharSet none_of(CharClasses classes) { return {char_class::kEverything, classes}; }

}  // namespace quarrel
