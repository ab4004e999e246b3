#include "text/pre_tokenizer.h"

#include <algorithm>

#include "text/unicode.h"

namespace quarrel {
namespace {

constexpr CharSet kWhiteSet = any_of(char_class::kWhite);
constexpr CharSet kNewlineSet = any_of(char_class::kNewline);

// One step over one piece of the text. Positions count characters.
class Splitter {
 public:
  Splitter(std::string_view text, std::span<const std::size_t> offsets, std::span<const CharClasses> classes,
           std::uint64_t& steps)
      : text_(text), offsets_(offsets), classes_(classes), steps_(steps) {}

  // Appends the ends of the pieces of [begin, end): what a rule matched, and what lies between matches.
  void split(SplitStep rules, std::size_t begin, std::size_t end, std::vector<std::size_t>& ends) {
    end_ = end;
    digits_end_ = begin;
    trailing_ = end;
    while (trailing_ > begin && kWhiteSet.has(classes_[trailing_ - 1])) --trailing_;
    std::size_t unmatched = begin;
    for (std::size_t at = begin; at < end;) {
      const std::size_t stop = match(rules, at);
      if (stop == at) {
        ++at;
        continue;
      }
      if (unmatched < at) ends.push_back(at);
      ends.push_back(stop);
      at = unmatched = stop;
    }
    if (unmatched < end) ends.push_back(end);
  }

 private:
  std::size_t match(SplitStep rules, std::size_t at) {
    for (const SplitRule& rule : rules) {
      ++steps_;
      const std::size_t stop = match(rule, at);
      if (stop > at) return stop;
    }
    return at;
  }

  // Where the rule's match ends; `at` if there is none.
  std::size_t match(const SplitRule& rule, std::size_t at) {
    switch (rule.kind) {
      case SplitKind::run: return match_run(rule, at);
      case SplitKind::contraction: return match_contraction(at, rule.any_case);
      case SplitKind::cased_word: return match_cased_word(rule, at);
      case SplitKind::spaces_newline: return match_spaces_newline(at);
      case SplitKind::spaces_before: return match_spaces_before(at);
      case SplitKind::spaces_at_end: return at >= trailing_ ? end_ : at;
      case SplitKind::digits_by_three: return match_digits(rule, at);
    }
    return at;
  }

  bool has(const CharSet& set, std::size_t at) const noexcept { return at < end_ && set.has(classes_[at]); }

  std::size_t skip(const CharSet& set, std::size_t at, std::size_t limit) {
    const std::size_t stop = limit < end_ - at ? at + limit : end_;
    const std::size_t start = at;
    while (at < stop && set.has(classes_[at])) ++at;
    steps_ += at - start;
    return at;
  }
  std::size_t skip(const CharSet& set, std::size_t at) { return skip(set, at, end_ - at); }

  std::size_t match_run(const SplitRule& rule, std::size_t at) {
    std::size_t start = at;
    if (rule.prefix.has(classes_[at]) && has(rule.body, at + 1)) {
      start = at + 1;
    } else if (rule.needs_prefix || !rule.body.has(classes_[at])) {
      return at;
    }
    const std::size_t stop = skip(rule.body, start, rule.most);
    if (stop - start < rule.least) return at;
    return skip(rule.tail, stop, rule.tail_most);
  }

  char byte(std::size_t at) const noexcept { return at < end_ ? text_[offsets_[at]] : '\0'; }

  std::size_t match_contraction(std::size_t at, bool any_case) const noexcept {
    if (byte(at) != '\'') return at;
    const auto letter = [&](std::size_t i) {
      const char c = byte(i);
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    const char first = letter(at + 1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    const char second = letter(at + 2);
    const bool two =
        (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
    return two ? at + 3 : at;
  }

  // upper* lower+ from `start`. Some letters are both: where no lower one follows the upper ones, the last that is both
  // ends the word. What remains of the run then has none of them, so that it is not scanned this way again.
  std::size_t match_lower_end(const SplitRule& rule, std::size_t start) {
    std::size_t stop = skip(rule.body, start);
    if (has(rule.tail, stop)) return skip(rule.tail, stop);
    while (stop > start && !rule.tail.has(classes_[stop - 1])) {
      --stop;
      ++steps_;
    }
    return stop;
  }

  std::size_t match_cased_word(const SplitRule& rule, std::size_t at) {
    const bool prefix = rule.prefix.has(classes_[at]);
    std::size_t stop = at;
    if (prefix) {
      stop = match_lower_end(rule, at + 1);
      if (stop == at + 1) stop = at;
    }
    if (stop == at) stop = match_lower_end(rule, at);
    if (stop == at) {
      const std::size_t start = prefix && has(rule.body, at + 1) ? at + 1 : at;
      const std::size_t uppers = skip(rule.body, start);
      if (uppers == start) return at;
      stop = skip(rule.tail, uppers);
    }
    return rule.with_contraction ? match_contraction(stop, true) : stop;
  }

  std::size_t match_spaces_newline(std::size_t at) {
    std::size_t stop = skip(kWhiteSet, at);
    while (stop > at && !kNewlineSet.has(classes_[stop - 1])) {
      --stop;
      ++steps_;
    }
    return stop;
  }

  std::size_t match_spaces_before(std::size_t at) {
    const std::size_t stop = skip(kWhiteSet, at);
    return stop == at || stop == end_ ? stop : stop - 1;
  }

  std::size_t match_digits(const SplitRule& rule, std::size_t at) {
    if (!has(rule.body, at)) return at;
    if (at >= digits_end_) digits_end_ = skip(rule.body, at);
    if (rule.at_word_end && has(rule.tail, digits_end_)) return at;
    const std::size_t first = (digits_end_ - at) % 3;
    return at + (first == 0 ? 3 : first);
  }

  std::string_view text_;
  std::span<const std::size_t> offsets_;
  std::span<const CharClasses> classes_;
  std::uint64_t& steps_;
  std::size_t end_ = 0;
  std::size_t trailing_ = 0;    // where the piece's last white space begins
  std::size_t digits_end_ = 0;  // of the run of digits met last
};

}  // namespace

std::vector<std::size_t> split_words(const PreTokenizer& pre_tokenizer, std::string_view text, std::uint64_t& steps) {
  std::vector<std::size_t> offsets;
  std::vector<CharClasses> classes;
  offsets.reserve(text.size());
  classes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    offsets.push_back(at);
    classes.push_back(char_classes(c.code));
    at += c.length;
  }
  steps += offsets.size();

  std::vector<std::size_t> ends;
  if (!offsets.empty()) ends.push_back(offsets.size());
  Splitter splitter(text, offsets, classes, steps);
  for (const SplitStep& step : pre_tokenizer.steps) {
    std::vector<std::size_t> finer;
    finer.reserve(ends.size());
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      splitter.split(step, begin, end, finer);
      begin = end;
    }
    ends = std::move(finer);
  }
  for (std::size_t& end : ends) end = end < offsets.size() ? offsets[end] : text.size();
  return ends;
}

}  // namespace quarrel
