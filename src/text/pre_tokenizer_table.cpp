// The pre-tokenisers by name. Above each family stands the regular expression it was trained with.
#include <array>

#include "text/pre_tokenizer.h"

namespace quarrel {
namespace {

using namespace char_class;

constexpr SplitRule run(CharSet body) { return {.kind = SplitKind::run, .body = body}; }
constexpr SplitRule run_of(CharSet body, std::uint32_t least, std::uint32_t most) {
  return {.kind = SplitKind::run, .body = body, .least = least, .most = most};
}
constexpr SplitRule prefixed(CharSet prefix, CharSet body, CharSet tail = {}) {
  return {.kind = SplitKind::run, .prefix = prefix, .body = body, .tail = tail};
}
constexpr SplitRule cased_word(CharSet prefix, CharClasses none, bool with_contraction) {
  return {.kind = SplitKind::cased_word,
          .prefix = prefix,
          .body = {kUpper | kTitle | kModifier | kOtherLetter | kMark, none},
          .tail = {kLower | kModifier | kOtherLetter | kMark, none},
          .with_contraction = with_contraction};
}

constexpr CharSet kSpaceSet = any_of(kSpace);
constexpr CharSet kWhiteSet = any_of(kWhite);
constexpr CharSet kNewlines = any_of(kNewline);
constexpr CharSet kNewlinesSlash = any_of(kNewline | kSlash);
constexpr CharSet kLetters = any_of(kLetter);
constexpr CharSet kNumbers = any_of(kNumber);
constexpr CharSet kWordPrefix = none_of(kNewline | kLetter | kNumber);
constexpr CharSet kOthers = none_of(kWhite | kLetter | kNumber);

constexpr SplitRule kContraction = {.kind = SplitKind::contraction};
constexpr SplitRule kAnyContraction = {.kind = SplitKind::contraction, .any_case = true};
constexpr SplitRule kWord = prefixed(kWordPrefix, kLetters);
constexpr SplitRule kOther = prefixed(kSpaceSet, kOthers, kNewlines);
constexpr SplitRule kOtherSlash = prefixed(kSpaceSet, kOthers, kNewlinesSlash);
constexpr SplitRule kSpacesNewline = {.kind = SplitKind::spaces_newline};
constexpr SplitRule kSpacesBefore = {.kind = SplitKind::spaces_before};
constexpr SplitRule kSpaces = run(kWhiteSet);
constexpr SplitRule kOneNumber = run_of(kNumbers, 1, 1);
constexpr SplitRule kThreeNumbers = run_of(kNumbers, 1, 3);

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
constexpr std::array kGpt2Rules = {kContraction,
                                   prefixed(kSpaceSet, kLetters),
                                   prefixed(kSpaceSet, kNumbers),
                                   prefixed(kSpaceSet, kOthers),
                                   kSpacesBefore,
                                   kSpaces};
constexpr std::array<SplitStep, 1> kGpt2 = {kGpt2Rules};

// \p{N}, then gpt-2's
constexpr std::array kOneNumberRules = {kOneNumber};
constexpr std::array<SplitStep, 2> kStarcoder = {kOneNumberRules, kGpt2Rules};

// [\p{P}$+<=>^~|]+, gpt-2's, \p{N}+, [0-9][0-9][0-9]
constexpr std::array kMarkRules = {run(any_of(kPunctuation | kMathSign))};
constexpr std::array kNumbersRules = {run(kNumbers)};
constexpr std::array kThreeDigitsRules = {run_of(any_of(kDigit), 3, 3)};
constexpr std::array<SplitStep, 4> kDefault = {kMarkRules, kGpt2Rules, kNumbersRules, kThreeDigitsRules};

// [\p{P}$+<=>^~|`]+, gpt-2's, [0-9][0-9][0-9]
constexpr std::array kMarkTickRules = {run(any_of(kPunctuation | kMathSign | kBacktick))};
constexpr std::array<SplitStep, 3> kFalcon = {kMarkTickRules, kGpt2Rules, kThreeDigitsRules};

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
constexpr std::array kLlama3Rules = {kAnyContraction, kWord,         kThreeNumbers, kOther,
                                     kSpacesNewline,  kSpacesBefore, kSpaces};
constexpr std::array<SplitStep, 1> kLlama3 = {kLlama3Rules};

// The same with \p{N}
constexpr std::array kQwen2Rules = {kAnyContraction, kWord, kOneNumber, kOther, kSpacesNewline, kSpacesBefore, kSpaces};
constexpr std::array<SplitStep, 1> kQwen2 = {kQwen2Rules};
// [^\n]+|\n+, then qwen2's
constexpr std::array kLineRules = {run(none_of(kLineFeed)), run(any_of(kLineFeed))};
constexpr std::array<SplitStep, 2> kLaguna = {kLineRules, kQwen2Rules};

// qwen2's with [\p{L}\p{M}]+ for a word and no \p{M} among the others
constexpr std::array kQwen35Rules = {
    kAnyContraction, prefixed(kWordPrefix, any_of(kLetter | kMark)),
    kOneNumber,      prefixed(kSpaceSet, none_of(kWhite | kLetter | kMark | kNumber), kNewlines),
    kSpacesNewline,  kSpacesBefore,
    kSpaces};
constexpr std::array<SplitStep, 1> kQwen35 = {kQwen35Rules};

// qwen2's with | ?[^\s\p{L}\p{N}]+ that takes no newlines along
constexpr std::array kSeedCoderRules = {kAnyContraction, kWord,         kOneNumber, prefixed(kSpaceSet, kOthers),
                                        kSpacesNewline,  kSpacesBefore, kSpaces};
constexpr std::array<SplitStep, 1> kSeedCoder = {kSeedCoderRules};

// \p{N}{1,3}, then llama3's with \p{N}+
constexpr std::array kThreeNumbersRules = {kThreeNumbers};
constexpr std::array kMiniCpm5Rules = {kAnyContraction, kWord,         run(kNumbers), kOther,
                                       kSpacesNewline,  kSpacesBefore, kSpaces};
constexpr std::array<SplitStep, 2> kMiniCpm5 = {kThreeNumbersRules, kMiniCpm5Rules};

// [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|
// [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|
// \p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
constexpr std::array kGpt4oRules = {
    cased_word(kWordPrefix, 0, true), kThreeNumbers, kOtherSlash, kSpacesNewline, kSpacesBefore, kSpaces};
constexpr std::array<SplitStep, 1> kGpt4o = {kGpt4oRules};

// The same with \p{N} and without contractions
constexpr std::array kTekkenRules = {
    cased_word(kWordPrefix, 0, false), kOneNumber, kOtherSlash, kSpacesNewline, kSpacesBefore, kSpaces};
constexpr std::array<SplitStep, 1> kTekken = {kTekkenRules};

// \d{1,3}(?=(?:\d{3})*\b), then gpt-4o's
constexpr std::array kGroupedRules = {SplitRule{.kind = SplitKind::digits_by_three,
                                                .body = any_of(kDigit),
                                                .tail = any_of(kLetter | kMark | kNumber | kUnderscore),
                                                .at_word_end = true}};
constexpr std::array<SplitStep, 2> kTinyAya = {kGroupedRules, kGpt4oRules};

// \p{N}+, then cut where (?=(\d{3})+(?!\d))
constexpr std::array kDigitsByThreeRules = {SplitRule{.kind = SplitKind::digits_by_three, .body = any_of(kDigit)}};
constexpr std::array<SplitStep, 2> kSuperBpe = {kNumbersRules, kDigitsByThreeRules};

// \p{Han}+, then gpt-4o's with words of everything but \p{Han}, and without the slash
constexpr std::array kKimiRules = {run(any_of(kHan)),
                                   cased_word(kWordPrefix, kHan, true),
                                   kThreeNumbers,
                                   kOther,
                                   kSpacesNewline,
                                   kSpacesBefore,
                                   kSpaces};
constexpr std::array<SplitStep, 1> kKimi = {kKimiRules};

// [\r\n], \s?(letters)+, \s?(punctuation)+, \s+$, (East Asian characters)+, \p{N}+
constexpr std::array kOneNewlineRules = {run_of(kNewlines, 1, 1)};
constexpr std::array kCasedLetterRules = {prefixed(kWhiteSet, any_of(kCasedLetter))};
constexpr std::array kWideMarkRules = {prefixed(kWhiteSet, any_of(kWideMark))};
constexpr std::array kSpacesAtEndRules = {SplitRule{.kind = SplitKind::spaces_at_end}};
constexpr std::array kEastAsianRules = {run(any_of(kEastAsian))};
constexpr std::array<SplitStep, 6> kDeepSeekLlm = {kOneNewlineRules,  kCasedLetterRules, kWideMarkRules,
                                                   kSpacesAtEndRules, kEastAsianRules,   kNumbersRules};

// [\r\n], \s?\p{L}+, \s?\p{P}+, (East Asian characters)+, \p{N}
constexpr std::array kWhiteLetterRules = {prefixed(kWhiteSet, kLetters)};
constexpr std::array kWhiteMarkRules = {prefixed(kWhiteSet, any_of(kPunctuation))};
constexpr std::array<SplitStep, 5> kDeepSeekCoder = {kOneNewlineRules, kWhiteLetterRules, kWhiteMarkRules,
                                                     kEastAsianRules, kOneNumberRules};

// \p{N}{1,3}, [一-龥぀-ゟ゠-ヿ]+, then [!-/:-@[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
// ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
constexpr std::array kHanKanaRules = {run(any_of(kHanKana))};
constexpr std::array kDeepSeekV3Rules = {
    SplitRule{.prefix = any_of(kAsciiMark), .body = any_of(kAsciiLetter), .needs_prefix = true},
    prefixed(none_of(kNewline | kLetter | kPunctuation | kSymbol), any_of(kLetter | kMark)),
    prefixed(kSpaceSet, any_of(kPunctuation | kSymbol), kNewlines),
    kSpacesNewline,
    kSpacesBefore,
    kSpaces};
constexpr std::array<SplitStep, 3> kDeepSeekV3 = {kThreeNumbersRules, kHanKanaRules, kDeepSeekV3Rules};

//  ?[^(\s|.,!?…。，、।۔،)]+, and viking \p{N} after it
constexpr std::array kBloomRules = {prefixed(kSpaceSet, none_of(kWhite | kSentenceMark))};
constexpr std::array<SplitStep, 1> kBloom = {kBloomRules};
constexpr std::array<SplitStep, 2> kViking = {kBloomRules, kOneNumberRules};

// Merges run over a whole line.
constexpr std::array<SplitStep, 1> kLines = {kLineRules};

constexpr PreTokenizer kPreTokenizers[] = {
    {"default", kDefault},
    {"gpt-2", kGpt2},
    {"phi-2", kGpt2},
    {"jina-es", kGpt2},
    {"jina-de", kGpt2},
    {"jina-v1-en", kGpt2},
    {"jina-v2-es", kGpt2},
    {"jina-v2-de", kGpt2},
    {"jina-v2-code", kGpt2},
    {"roberta-bpe", kGpt2},
    {"gigachat", kGpt2},
    {"a.x-4.0", kGpt2},
    {"mellum", kGpt2},
    {"modern-bert", kGpt2},
    {"exaone4", kGpt2},
    {"mpt", kGpt2},
    {"olmo", kGpt2},
    {"jais", kGpt2},
    {"trillion", kGpt2},
    {"granite-docling", kGpt2},
    {"starcoder", kStarcoder},
    {"refact", kStarcoder},
    {"command-r", kStarcoder},
    {"smollm", kStarcoder},
    {"codeshell", kStarcoder},
    {"exaone", kStarcoder},
    {"minerva-7b", kStarcoder},
    {"mellum2", kStarcoder},
    {"falcon", kFalcon},
    {"llama-bpe", kLlama3, true, true},
    {"llama3", kLlama3, true, true},
    {"llama-v3", kLlama3, true, true},
    {"falcon3", kLlama3, true, true},
    {"falcon-h1", kLlama3, true, true},
    {"pixtral", kLlama3, true, true},
    {"midm-2.0", kLlama3, true, true},
    {"lfm2", kLlama3, true, true},
    {"jina-v5-nano", kLlama3, true, true},
    {"dbrx", kLlama3},
    {"smaug-bpe", kLlama3},
    {"glm4", kLlama3},
    {"chatglm-bpe", kLlama3},
    {"minicpm5", kMiniCpm5, true},
    {"qwen2", kQwen2},
    {"deepseek-r1-qwen", kQwen2},
    {"kormo", kQwen2},
    {"f2llmv2", kQwen2},
    {"megrez", kQwen2},
    {"stablelm2", kQwen2},
    {"hunyuan", kQwen2},
    {"solar-open", kQwen2},
    {"grok-2", kQwen2},
    {"bailingmoe", kQwen2},
    {"bailingmoe2", kQwen2},
    {"llada-moe", kQwen2},
    {"laguna", kLaguna},
    {"qwen35", kQwen35},
    {"seed-coder", kSeedCoder},
    {"gpt-4o", kGpt4o},
    {"llama4", kGpt4o},
    {"kanana2", kGpt4o},
    {"talkie", kGpt4o},
    {"minimax-m2", kGpt4o},
    {"granite-embed-multi-97m", kGpt4o, true},
    {"tekken", kTekken, true, true},
    {"tiny_aya", kTinyAya},
    {"cohere2moe", kTinyAya},
    {"superbpe", kSuperBpe},
    {"kimi-k2", kKimi},
    {"deepseek-llm", kDeepSeekLlm},
    {"deepseek-coder", kDeepSeekCoder},
    {"deepseek-v3", kDeepSeekV3},
    {"hunyuan-dense", kDeepSeekV3},
    {"joyai-llm", kDeepSeekV3},
    {"bloom", kBloom},
    {"poro-chat", kBloom},
    {"gpt3-finnish", kBloom},
    {"viking", kViking},
    {"gemma4", kLines, false, true, true},
    {"granite-embed-multi-311m", kLines, false, true, true},
    {"sarvam-moe", kLines, false, false, true},
};

}  // namespace

const PreTokenizer* find_pre_tokenizer(std::string_view name) noexcept {
  for (const PreTokenizer& pre_tokenizer : kPreTokenizers) {
    if (pre_tokenizer.name == name) return &pre_tokenizer;
  }
  return nullptr;
}

std::vector<std::string_view> pre_tokenizer_names() {
  std::vector<std::string_view> names;
  for (const PreTokenizer& pre_tokenizer : kPreTokenizers) names.push_back(pre_tokenizer.name);
  return names;
}

}  // namespace quarrel
