#include "app/word_wrap.h"

#include <fmt/format.h>

#include "text/unicode.h"

namespace quarrel {
namespace {

constexpr int kFewestColumns = 8;  // a narrower terminal is left to break lines by itself
constexpr int kTabStop = 8;
// Marks without end on one line: nobody's text, and not to be kept.
constexpr std::size_t kLongestLine = 64u << 10;

bool is_break_space(char32_t code) {
  return code == U'\t' || (is_white_space(code) && code != 0xA0 && code != 0x2007 && code != 0x202F);
}

}  // namespace

void CodeFences::end_line() {
  const bool fence = run_ >= 3;
  if (open_run_ > 0) {
    if (fence && mark_ == open_mark_ && run_ >= open_run_ && !text_after_) open_run_ = 0;
  } else if (fence && !(mark_ == U'`' && mark_after_)) {
    open_run_ = run_;
    open_mark_ = mark_;
  }
  run_ = 0;
  mark_ = 0;
  in_run_ = true;
  text_after_ = mark_after_ = false;
}

void CodeFences::put(char32_t code) {
  if (code == U'\n') return end_line();
  const bool blank = code == U' ' || code == U'\t';
  const bool mark = code == U'`' || code == U'~';
  if (in_run_ && run_ == 0 && blank) return;
  if (in_run_ && mark && (run_ == 0 || code == mark_)) {
    mark_ = code;
    ++run_;
    return;
  }
  in_run_ = false;
  text_after_ = text_after_ || !blank;
  mark_after_ = mark_after_ || code == mark_;
}

std::string WordWrap::push(std::string_view text) {
  fit_to_terminal();
  std::string out;
  const std::string joined = partial_.empty() ? std::string() : partial_ + std::string(text);
  if (!joined.empty()) text = joined;
  partial_.clear();
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const std::string_view bytes = text.substr(at, c.length);
    if (c.status == Utf8Status::truncated) {
      partial_ = bytes;
      break;
    }
    put(c.status == Utf8Status::valid ? bytes : kReplacementText, c.code, out);
    at += c.length;
  }
  return out;
}

std::string WordWrap::finish() {
  std::string out;
  if (!partial_.empty()) put(kReplacementText, kReplacementChar, out);
  partial_.clear();
  return out;
}

void WordWrap::fit_to_terminal() {
  const int columns = columns_of_();
  if (columns == columns_) return;
  columns_ = columns;
  if (columns < kFewestColumns || column_ <= columns) return;
  // The terminal has broken the line itself: what stands on its last row is beyond taking back.
  const int column = column_ % columns;
  begin_line();
  column_ = column;
}

void WordWrap::begin_line() {
  line_.clear();
  line_certain_ = true;
  column_ = 0;
  word_ = 0;
  word_width_ = 0;
  break_pending_ = false;
  after_opening_ = false;
}

void WordWrap::put(std::string_view bytes, char32_t code, std::string& out) {
  if (code == U'\x1b' || in_colour_) {
    in_colour_ = code != U'm';
    out += bytes;
    return;
  }
  const bool joins = !breaker_.begins(code);
  const bool code_line = fences_.inside();
  fences_.put(code);
  if (code == U'\n') {
    break_line(out);
  } else if (code_line || columns_ < kFewestColumns) {
    out += bytes;
  } else if (is_break_space(code)) {
    put_blank(bytes, code, out);
  } else {
    put_visible(bytes, code, joins, out);
  }
}

void WordWrap::put_blank(std::string_view bytes, char32_t code, std::string& out) {
  const int width = code == U'\t' ? kTabStop - column_ % kTabStop : code_point_width(code);
  if (break_pending_ || column_ + width > columns_) {
    break_pending_ = true;
    return;
  }
  append(bytes, width, out);
  word_ = line_.size();
  word_width_ = 0;
  after_opening_ = false;
}

bool WordWrap::begins_word(char32_t code, int width) const {
  if (word_ == line_.size()) return true;
  if (after_opening_) return false;
  const bool wide = width > 1;
  return (wide || word_wide_) && line_edge(code) != LineEdge::never_first;
}

void WordWrap::put_visible(std::string_view bytes, char32_t code, bool joins, std::string& out) {
  const GraphemeWidth width = grapheme_width(bytes);
  if (break_pending_) {
    break_line(out);
  } else if (joins && !line_.empty()) {
    // A part of the character before it, whatever that does to the line.
    line_certain_ = line_certain_ && width.most == 0;
    append(bytes, width.most, out);
    word_width_ += width.most;
    return;
  }
  const bool begins = begins_word(code, width.columns);
  if (column_ + width.most > columns_ && column_ > 0) {
    const bool movable = !begins && word_ > 0 && word_width_ + width.most <= columns_;
    if (movable) {
      take_word_along(out);
    } else {
      break_line(out);
    }
  }
  if (begins || word_ == line_.size()) {
    word_ = line_.size();
    word_width_ = 0;
    word_wide_ = width.columns > 1;
  }
  line_certain_ = line_certain_ && width.certain;
  append(bytes, width.most, out);
  word_width_ += width.most;
  after_opening_ = line_edge(code) == LineEdge::never_last;
}

void WordWrap::append(std::string_view bytes, int width, std::string& out) {
  out += bytes;
  column_ += width;
  if (line_.size() >= kLongestLine) {
    line_.clear();
    word_ = 0;
    word_width_ = 0;
  }
  line_ += bytes;
}

void WordWrap::break_line(std::string& out) {
  out += '\n';
  begin_line();
}

void WordWrap::take_word_along(std::string& out) {
  const std::string word = line_.substr(word_);
  const int width = word_width_;
  const bool certain = line_certain_;
  // From the line's start: at the edge terminals disagree where the cursor is, and behind characters of doubtful width
  // only the terminal knows.
  out += line_certain_ ? fmt::format("\r\x1b[{}C\x1b[K", column_ - width) : "\r" + line_.substr(0, word_) + "\x1b[K";
  break_line(out);
  append(word, width, out);
  line_certain_ = certain;
  word_ = 0;
  word_width_ = width;
}

}  // namespace quarrel
