#include "ingest/chunker.h"

#include <algorithm>

#include "base/error.h"
#include "text/unicode.h"

namespace quarrel {
namespace {

// A token seldom stands for so many bytes; a word that no vocabulary knows may be one token of any length.
constexpr std::size_t kMostBytesPerToken = 32;

// Between two characters, from weak to strong.
enum class Break { inside_word, word, sentence, paragraph };

bool is_space(char byte) noexcept { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }

class Cutter {
 public:
  Cutter(std::string_view text, const ChunkOptions& options, const CountTokens& count)
      : text_(text), options_(options), count_(count) {}

  std::vector<Chunk> cut() {
    std::vector<Chunk> chunks;
    std::size_t begin = skip_space(0);
    std::size_t covered = begin;  // all before it is in a chunk
    while (covered < text_.size()) {
      const std::size_t end = chunk_end(begin, covered);
      chunks.push_back({.begin = begin, .end = without_space(begin, end)});
      covered = skip_space(end);
      begin = covered < text_.size() ? overlap_begin(begin, end, covered) : covered;
    }
    return chunks;
  }

 private:
  std::size_t most_bytes() const noexcept { return options_.tokens * kMostBytesPerToken; }
  std::size_t tokens(std::size_t begin, std::size_t end) const { return count_(text_.substr(begin, end - begin)); }

  std::size_t skip_space(std::size_t at) const noexcept {
    while (at < text_.size() && is_space(text_[at])) ++at;
    return at;
  }
  std::size_t without_space(std::size_t begin, std::size_t end) const noexcept {
    while (end > begin && is_space(text_[end - 1])) --end;
    return end;
  }
  // The nearest beginning of a character at or before `at`.
  std::size_t character(std::size_t at) const noexcept {
    while (at > 0 && at < text_.size() && (static_cast<unsigned char>(text_[at]) & 0xC0) == 0x80) --at;
    return at;
  }

  // What a chunk that ends at `at`, with the white space before it, would cut.
  Break break_at(std::size_t at) const noexcept {
    if (at == text_.size()) return Break::paragraph;
    if (!is_space(text_[at - 1]) || is_space(text_[at])) return Break::inside_word;
    const std::size_t words_end = without_space(0, at);
    const auto lines = std::count(text_.begin() + static_cast<std::ptrdiff_t>(words_end),
                                  text_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    if (lines >= 2) return Break::paragraph;
    if (lines == 1) return Break::sentence;
    const char last = words_end > 0 ? text_[words_end - 1] : ' ';
    return last == '.' || last == '!' || last == '?' || last == ';' ? Break::sentence : Break::word;
  }

  // The furthest place up to which the tokens fit; beyond `covered` in any case.
  std::size_t furthest(std::size_t begin, std::size_t covered) const {
    const std::size_t limit = std::min(text_.size(), begin + most_bytes());
    std::size_t fits = covered;
    std::size_t exceeds = std::min(limit, std::max(begin + options_.tokens * 2, covered + options_.tokens));
    for (;;) {
      exceeds = std::max(character(exceeds), next_character(fits));  // further by a character at least
      if (tokens(begin, exceeds) > options_.tokens) break;
      fits = exceeds;
      if (exceeds >= character(limit)) return exceeds;
      exceeds = std::min(limit, begin + 2 * (exceeds - begin));
    }
    while (fits < exceeds) {
      const std::size_t middle = character(fits + (exceeds - fits) / 2);
      if (middle <= fits) break;
      (tokens(begin, middle) <= options_.tokens ? fits : exceeds) = middle;
    }
    return fits > covered ? fits : next_character(covered);
  }
  std::size_t next_character(std::size_t at) const noexcept {
    return std::min(text_.size(), at + decode_utf8(text_, at).length);
  }

  // At the strongest break in the second half of what fits, the last of its kind; a weaker one only where there is
  // none.
  std::size_t chunk_end(std::size_t begin, std::size_t covered) const {
    const std::size_t most = skip_space(furthest(begin, covered));
    if (most == text_.size()) return most;
    const std::size_t least = std::max(covered, begin + (most - begin) / 2);
    std::size_t best = most;
    Break strongest = Break::inside_word;
    for (std::size_t at = most; at > least; --at) {
      const Break here = break_at(at);
      if (here <= strongest) continue;
      strongest = here;
      best = at;
      if (here == Break::paragraph) break;
    }
    return best;
  }

  // The first word of the end of the last chunk that is within the overlap.
  std::size_t overlap_begin(std::size_t begin, std::size_t end, std::size_t covered) const {
    if (options_.overlap == 0) return covered;
    std::size_t best = covered;
    for (std::size_t at = without_space(begin, end); at > begin + 1; --at) {
      if (break_at(at) == Break::inside_word) continue;
      if (covered - at > most_bytes() / 2 || tokens(at, end) > options_.overlap) break;
      best = at;
    }
    return best;
  }

  const std::string_view text_;
  const ChunkOptions& options_;
  const CountTokens& count_;
};

}  // namespace

std::vector<Chunk> cut_into_chunks(std::string_view text, const ChunkOptions& options, const CountTokens& count) {
  if (options.tokens < 1) fail(ErrorKind::usage, "a chunk has at least one token");
  if (options.overlap > options.tokens / 2) {
    fail(ErrorKind::usage, "an overlap of {} tokens is more than half of a chunk of {}", options.overlap,
         options.tokens);
  }
  return Cutter(text, options, count).cut();
}

}  // namespace quarrel
