#include "text/char_class.h"

#include <algorithm>
#include <array>
#include <span>

#include "text/unicode.h"

namespace quarrel {
namespace {

// A closed range. The tables are ascending and do not overlap.
struct CharRange {
  char32_t first;
  char32_t last;
};

// The script Han.
constexpr std::array<CharRange, 22> kHanRanges = {
    {{0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},   {0x3007, 0x3007},
     {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},
     {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3}, {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739},
     {0x2B740, 0x2B81D}, {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D},
     {0x30000, 0x3134A}, {0x31350, 0x323AF}}};
// Sets that the patterns of a model spell out as they stand here.
constexpr std::array<CharRange, 84> kCasedLetterRanges = {
    {{0x0041, 0x005A},   {0x0061, 0x007A},   {0x00B5, 0x00B5},   {0x00C0, 0x00D6},   {0x00D8, 0x00F6},
     {0x00F8, 0x01BA},   {0x01BC, 0x01BF},   {0x01C4, 0x0293},   {0x0295, 0x02AF},   {0x0370, 0x0373},
     {0x0376, 0x0377},   {0x037B, 0x037D},   {0x037F, 0x037F},   {0x0386, 0x0386},   {0x0388, 0x038A},
     {0x038C, 0x038C},   {0x038E, 0x03A1},   {0x03A3, 0x03F5},   {0x03F7, 0x0481},   {0x048A, 0x052F},
     {0x0531, 0x0556},   {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},   {0x1C90, 0x1CBA},
     {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},   {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},
     {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},   {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},
     {0x1F5B, 0x1F5B},   {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},
     {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},   {0x1FD6, 0x1FDB},
     {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},   {0x2102, 0x2102},   {0x2107, 0x2107},
     {0x210A, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},
     {0x2128, 0x2128},   {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},
     {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2184},   {0x2C00, 0x2C7B},   {0x2C7E, 0x2CE4},
     {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF3},   {0xA640, 0xA66D},   {0xA680, 0xA69B},   {0xA722, 0xA76F},
     {0xA771, 0xA787},   {0xA78B, 0xA78E},   {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},
     {0xFF21, 0xFF3A},   {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB},
     {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943}}};
constexpr std::array<CharRange, 6> kWideMarkRanges = {
    {{0x0021, 0x002F}, {0x003A, 0x007E}, {0x2018, 0x201F}, {0x3000, 0x3002}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E}}};
constexpr std::array<CharRange, 2> kEastAsianRanges = {{{0x0800, 0x9FA5}, {0xAC00, 0xD7FF}}};
constexpr std::array<CharRange, 2> kHanKanaRanges = {{{0x3040, 0x30FF}, {0x4E00, 0x9FA5}}};
constexpr std::array<CharRange, 12> kSentenceMarkRanges = {{{0x0021, 0x0021},
                                                            {0x0028, 0x0029},
                                                            {0x002C, 0x002C},
                                                            {0x002E, 0x002E},
                                                            {0x003F, 0x003F},
                                                            {0x007C, 0x007C},
                                                            {0x060C, 0x060C},
                                                            {0x06D4, 0x06D4},
                                                            {0x0964, 0x0964},
                                                            {0x2026, 0x2026},
                                                            {0x3001, 0x3002},
                                                            {0xFF0C, 0xFF0C}}};

bool lies_in(std::span<const CharRange> ranges, char32_t code) noexcept {
  const auto after = std::ranges::upper_bound(ranges, code, {}, &CharRange::first);
  return after != ranges.begin() && code <= std::prev(after)->last;
}

CharClasses category_class(char32_t code) noexcept {
  using namespace char_class;
  switch (char_category(code)) {
    case CharCategory::upper: return kUpper;
    case CharCategory::lower: return kLower;
    case CharCategory::title: return kTitle;
    case CharCategory::modifier: return kModifier;
    case CharCategory::other_letter: return kOtherLetter;
    case CharCategory::mark: return kMark;
    case CharCategory::number: return kNumber;
    case CharCategory::punctuation: return kPunctuation;
    case CharCategory::symbol: return kSymbol;
    default: return 0;
  }
}

CharClasses ascii_classes(char32_t code) noexcept {
  using namespace char_class;
  if (code >= U'0' && code <= U'9') return kDigit;
  if ((code >= U'a' && code <= U'z') || (code >= U'A' && code <= U'Z')) return kAsciiLetter;
  if (code > U' ' && code < 0x7F) {
    switch (code) {
      case U'$':
      case U'+':
      case U'<':
      case U'=':
      case U'>':
      case U'^':
      case U'~':
      case U'|': return kAsciiMark | kMathSign;
      case U'`': return kAsciiMark | kBacktick;
      case U'_': return kAsciiMark | kUnderscore;
      case U'/': return kAsciiMark | kSlash;
      default: return kAsciiMark;
    }
  }
  if (code == U'\r') return kReturn;
  if (code == U'\n') return kLineFeed;
  if (code == U' ') return kSpace;
  return 0;
}

}  // namespace

CharClasses char_classes(char32_t code) noexcept {
  using namespace char_class;
  CharClasses classes = kEverything | category_class(code);
  if (is_white_space(code)) classes |= kWhite;
  if (lies_in(kCasedLetterRanges, code)) classes |= kCasedLetter;
  if (lies_in(kWideMarkRanges, code)) classes |= kWideMark;
  if (lies_in(kSentenceMarkRanges, code)) classes |= kSentenceMark;
  if (code < 0x80) return classes | ascii_classes(code);
  if (lies_in(kHanRanges, code)) classes |= kHan;
  if (lies_in(kEastAsianRanges, code)) classes |= kEastAsian;
  if (lies_in(kHanKanaRanges, code)) classes |= kHanKana;
  return classes;
}

}  // namespace quarrel
