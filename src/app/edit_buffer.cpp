#include "app/edit_buffer.h"

#include <algorithm>
#include <utility>

#include "text/graphemes.h"
#include "text/unicode.h"

namespace quarrel {
namespace {

bool is_blank(std::string_view text, std::size_t at) { return is_white_space(decode_utf8(text, at).code); }

bool is_word(std::string_view text, std::size_t at) {
  const char32_t code = decode_utf8(text, at).code;
  if (code == U'_') return true;
  switch (char_category(code)) {
    case CharCategory::upper:
    case CharCategory::lower:
    case CharCategory::title:
    case CharCategory::modifier:
    case CharCategory::other_letter:
    case CharCategory::mark:
    case CharCategory::number: return true;
    default: return false;
  }
}

}  // namespace

void EditBuffer::set(std::string text) {
  const std::size_t end = text.size();
  set(std::move(text), end);
}

void EditBuffer::set(std::string text, std::size_t cursor) {
  text_ = std::move(text);
  if (text_.size() > limit_) text_.resize(grapheme_boundary(text_, limit_));
  cursor_ = grapheme_boundary(text_, cursor);
  killing_ = false;
}

std::size_t EditBuffer::insert(std::string_view text) {
  const std::size_t room = limit_ - std::min(limit_, text_.size());
  const std::size_t taken = text.size() <= room ? text.size() : grapheme_boundary(text, room);
  text_.insert(cursor_, text.substr(0, taken));
  cursor_ += taken;
  // What was put in may have joined its neighbour: an accent its letter, an emoji the one before it.
  if (cursor_ < text_.size() && grapheme_boundary(text_, cursor_) != cursor_) {
    cursor_ = next_grapheme(text_, grapheme_boundary(text_, cursor_));
  }
  killing_ = false;
  return text.size() - taken;
}

void EditBuffer::replace(std::size_t begin, std::size_t length, std::string_view text) {
  text_.erase(begin, length);
  cursor_ = begin;
  insert(text);
}

bool EditBuffer::left() {
  const std::size_t before = previous_grapheme(text_, cursor_);
  return std::exchange(cursor_, before) != before;
}

bool EditBuffer::right() {
  const std::size_t after = next_grapheme(text_, cursor_);
  return std::exchange(cursor_, after) != after;
}

std::size_t EditBuffer::word_start() const {
  std::size_t at = cursor_;
  const auto go_back_while = [&](bool word) {
    while (at > 0) {
      const std::size_t before = previous_grapheme(text_, at);
      if (is_word(text_, before) != word) return;
      at = before;
    }
  };
  go_back_while(false);
  go_back_while(true);
  return at;
}

std::size_t EditBuffer::word_end() const {
  std::size_t at = cursor_;
  while (at < text_.size() && !is_word(text_, at)) at = next_grapheme(text_, at);
  while (at < text_.size() && is_word(text_, at)) at = next_grapheme(text_, at);
  return at;
}

bool EditBuffer::word_left() {
  const std::size_t start = word_start();
  return std::exchange(cursor_, start) != start;
}

bool EditBuffer::word_right() {
  const std::size_t end = word_end();
  return std::exchange(cursor_, end) != end;
}

std::size_t EditBuffer::start_of_line(std::size_t offset) const {
  const std::size_t feed = offset == 0 ? std::string::npos : text_.rfind('\n', offset - 1);
  return feed == std::string::npos ? 0 : feed + 1;
}

std::size_t EditBuffer::end_of_line(std::size_t offset) const {
  return std::min(text_.find('\n', offset), text_.size());
}

void EditBuffer::line_start() { cursor_ = start_of_line(cursor_); }
void EditBuffer::line_end() { cursor_ = end_of_line(cursor_); }

std::size_t EditBuffer::at_column(std::size_t begin, std::size_t end, int column) const {
  int passed = 0;
  std::size_t at = begin;
  while (at < end) {
    const std::size_t next = next_grapheme(text_, at);
    passed += grapheme_width(std::string_view(text_).substr(at, next - at)).columns;
    if (passed > column) break;
    at = next;
  }
  return at;
}

bool EditBuffer::line_up() {
  const std::size_t start = start_of_line(cursor_);
  if (start == 0) return false;
  const int column = text_width(std::string_view(text_).substr(start, cursor_ - start));
  cursor_ = at_column(start_of_line(start - 1), start - 1, column);
  return true;
}

bool EditBuffer::line_down() {
  const std::size_t end = end_of_line(cursor_);
  if (end == text_.size()) return false;
  const std::size_t start = start_of_line(cursor_);
  const int column = text_width(std::string_view(text_).substr(start, cursor_ - start));
  cursor_ = at_column(end + 1, end_of_line(end + 1), column);
  return true;
}

bool EditBuffer::erase_back() {
  const std::size_t begin = previous_grapheme(text_, cursor_);
  const bool any = begin != cursor_;
  text_.erase(begin, cursor_ - begin);
  cursor_ = grapheme_boundary(text_, begin);
  return any;
}

bool EditBuffer::erase_forward() {
  const std::size_t end = next_grapheme(text_, cursor_);
  const bool any = end != cursor_;
  text_.erase(cursor_, end - cursor_);
  cursor_ = grapheme_boundary(text_, cursor_);
  return any;
}

// The cluster before the cursor changes places with the one behind it; at the end, the last two.
bool EditBuffer::transpose() {
  const std::size_t middle = cursor_ == text_.size() ? previous_grapheme(text_, cursor_) : cursor_;
  const std::size_t begin = previous_grapheme(text_, middle);
  const std::size_t end = next_grapheme(text_, middle);
  if (begin == middle || middle == end) return false;
  std::rotate(text_.begin() + static_cast<std::ptrdiff_t>(begin), text_.begin() + static_cast<std::ptrdiff_t>(middle),
              text_.begin() + static_cast<std::ptrdiff_t>(end));
  cursor_ = grapheme_boundary(text_, end);
  return true;
}

bool EditBuffer::kill(std::size_t begin, std::size_t end) {
  if (begin == end) return false;
  const std::string_view taken = std::string_view(text_).substr(begin, end - begin);
  if (!killing_) killed_.clear();
  if (begin < cursor_) {
    killed_.insert(0, taken);
  } else {
    killed_ += taken;
  }
  killing_ = true;
  text_.erase(begin, end - begin);
  cursor_ = grapheme_boundary(text_, begin);
  return true;
}

bool EditBuffer::kill_to_line_end() {
  const std::size_t end = end_of_line(cursor_);
  // At a line's end its line feed goes, as in Emacs.
  return kill(cursor_, end == cursor_ && end < text_.size() ? end + 1 : end);
}

bool EditBuffer::kill_to_line_start() { return kill(start_of_line(cursor_), cursor_); }
bool EditBuffer::kill_word() { return kill(cursor_, word_end()); }
bool EditBuffer::kill_word_back() { return kill(word_start(), cursor_); }

bool EditBuffer::kill_blank_word_back() {
  std::size_t at = cursor_;
  for (const bool blank : {true, false}) {
    while (at > 0) {
      const std::size_t before = previous_grapheme(text_, at);
      if (is_blank(text_, before) != blank) break;
      at = before;
    }
  }
  return kill(at, cursor_);
}

bool EditBuffer::yank() {
  if (killed_.empty()) return false;
  const std::string killed = killed_;
  insert(killed);
  return true;
}

}  // namespace quarrel
