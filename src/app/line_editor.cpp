#include "app/line_editor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/graphemes.h"

namespace quarrel {
namespace {

constexpr std::size_t kQueryBytes = 256;
constexpr std::size_t kMostListed = 100;
constexpr std::size_t kMostShownWhole = 1000;  // rows of a text that is too long for the screen

std::string on_one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace(text.begin(), text.end(), '\t', ' ');
  return text;
}

// What all begin with, whole clusters of it.
std::string common_start(const std::vector<std::string>& texts) {
  std::string_view common = texts.front();
  for (const std::string& text : texts) {
    const auto [end, other] = std::mismatch(common.begin(), common.end(), text.begin(), text.end());
    common = common.substr(0, static_cast<std::size_t>(end - common.begin()));
  }
  return std::string(common.substr(0, grapheme_boundary(texts.front(), common.size())));
}

}  // namespace

void LineEditor::begin(Prompt prompt, Prompt continuation) {
  prompt_ = std::move(prompt);
  continuation_ = std::move(continuation);
  buffer_.set("");
  dropped_ = 0;
  place_ = history_.size();
  draft_.clear();
  searching_ = false;
  bell_ = false;
  forget_screen();
}

void LineEditor::forget_screen() {
  changed_ = true;
  screen_.forget();
}

LineEditor::Outcome LineEditor::press(const KeyPress& key) {
  dropped_ += key.dropped;
  if (searching_) return search_key(key);
  switch (key.key) {
    case Key::enter: return Outcome::accepted;
    case Key::interrupt: return Outcome::interrupted;
    case Key::suspend: return Outcome::suspend;
    case Key::quit: return Outcome::quit;
    case Key::end_of_file:
      if (buffer_.empty()) return Outcome::ended;
      break;
    default: break;
  }
  if (!edit(key)) bell_ = true;
  changed_ = true;
  return Outcome::editing;
}

bool LineEditor::edit(const KeyPress& key) {
  if (cut(key.key)) return true;
  buffer_.end_kill();
  switch (key.key) {
    case Key::text:
    case Key::paste: insert(key.text); return true;
    case Key::line_feed: insert("\n"); return true;
    case Key::tab: complete(); return true;
    case Key::backspace: return buffer_.erase_back();
    case Key::erase:
    case Key::end_of_file: return buffer_.erase_forward();
    case Key::yank: return buffer_.yank();
    case Key::transpose: return buffer_.transpose();
    case Key::clear_screen: clear_ = true; return true;
    case Key::search:
    case Key::search_forward:
      searching_ = true;
      missed_ = false;
      query_.clear();
      match_ = history_.size();
      before_search_ = buffer_.text();
      cursor_before_search_ = buffer_.cursor();
      return true;
    case Key::escape:
    case Key::cancel: return true;
    default: return move(key.key);
  }
}

bool LineEditor::move(Key key) {
  switch (key) {
    case Key::left: return buffer_.left();
    case Key::right: return buffer_.right();
    case Key::word_left: return buffer_.word_left();
    case Key::word_right: return buffer_.word_right();
    case Key::home: buffer_.line_start(); return true;
    case Key::end: buffer_.line_end(); return true;
    case Key::up:
      if (!buffer_.line_up()) older();
      return true;
    case Key::down:
      if (!buffer_.line_down()) newer();
      return true;
    case Key::previous: older(); return true;
    case Key::next: newer(); return true;
    default: return true;
  }
}

// Cuts follow each other, so they are known before anything else ends them.
bool LineEditor::cut(Key key) {
  bool any = false;
  switch (key) {
    case Key::kill_to_end: any = buffer_.kill_to_line_end(); break;
    case Key::kill_to_start: any = buffer_.kill_to_line_start(); break;
    case Key::erase_word: any = buffer_.kill_word(); break;
    case Key::erase_word_back: any = buffer_.kill_word_back(); break;
    case Key::erase_blank_word_back: any = buffer_.kill_blank_word_back(); break;
    default: return false;
  }
  if (!any) bell_ = true;
  return true;
}

void LineEditor::insert(std::string_view text) {
  const std::size_t left_out = buffer_.insert(text);
  dropped_ += left_out;
  if (left_out > 0) bell_ = true;
}

void LineEditor::recall(std::size_t index) {
  if (place_ == history_.size()) draft_ = buffer_.text();
  place_ = index;
  buffer_.set(index == history_.size() ? draft_ : history_[index]);
}

void LineEditor::older() {
  if (place_ > 0) {
    recall(place_ - 1);
  } else {
    bell_ = true;
  }
}

void LineEditor::newer() {
  if (place_ < history_.size()) {
    recall(place_ + 1);
  } else {
    bell_ = true;
  }
}

void LineEditor::search_from(std::size_t index, bool forward) {
  const std::size_t found = forward ? history_.find_newer(query_, index) : history_.find_older(query_, index);
  missed_ = found == LineHistory::kNone;
  if (missed_) {
    bell_ = true;
    return;
  }
  match_ = found;
  buffer_.set(history_[found], history_[found].find(query_));
}

void LineEditor::end_search(bool keep) {
  searching_ = false;
  if (!keep || match_ == history_.size()) {
    buffer_.set(before_search_, cursor_before_search_);
  } else {
    if (place_ == history_.size()) draft_ = before_search_;
    place_ = match_;
  }
}

LineEditor::Outcome LineEditor::search_key(const KeyPress& key) {
  changed_ = true;
  switch (key.key) {
    case Key::text:
    case Key::paste:
      query_ += on_one_line(key.text);
      query_.resize(grapheme_boundary(query_, kQueryBytes));
      search_from(match_ == history_.size() ? match_ : match_ + 1, false);
      return Outcome::editing;
    case Key::backspace:
      query_.resize(previous_grapheme(query_, query_.size()));
      if (query_.empty()) {
        missed_ = false;
        match_ = history_.size();
        buffer_.set(before_search_, cursor_before_search_);
      } else {
        search_from(history_.size(), false);
      }
      return Outcome::editing;
    case Key::search:
      if (!query_.empty()) search_from(match_, false);
      return Outcome::editing;
    case Key::search_forward:
      if (!query_.empty()) search_from(match_, true);
      return Outcome::editing;
    case Key::cancel:
    case Key::interrupt: end_search(false); return Outcome::editing;
    case Key::escape: end_search(true); return Outcome::editing;
    default: end_search(true); return press(key);
  }
}

void LineEditor::complete() {
  if (!completer_) {
    bell_ = true;
    return;
  }
  Completion found = completer_(buffer_.text(), buffer_.cursor());
  std::erase_if(found.candidates, [](const std::string& text) { return text != on_one_line(editable_text(text)); });
  if (found.candidates.empty() || found.begin > buffer_.cursor()) {
    bell_ = true;
    return;
  }
  const std::string before = buffer_.text().substr(found.begin, buffer_.cursor() - found.begin);
  std::string common = common_start(found.candidates);
  const bool only = found.candidates.size() == 1;
  if (only && !common.ends_with('/')) common += ' ';
  if (only || (common != before && common.size() >= before.size())) {
    buffer_.replace(found.begin, before.size(), common);
  } else {
    candidates_ = std::move(found.candidates);
  }
}

std::string LineEditor::candidate_list(int columns) const {
  const std::size_t count = std::min(candidates_.size(), kMostListed);
  int widest = 0;
  for (std::size_t i = 0; i < count; ++i) widest = std::max(widest, text_width(candidates_[i]));
  const int cell = widest + 2;
  const auto across = static_cast<std::size_t>(std::max(1, columns / cell));
  const std::size_t down = (count + across - 1) / across;
  std::string out;
  for (std::size_t row = 0; row < down; ++row) {
    for (std::size_t i = row; i < count; i += down) {
      out += candidates_[i];
      if (i + down < count) {
        out.append(static_cast<std::size_t>(cell - text_width(candidates_[i])), ' ');
      }
    }
    out += "\r\n";
  }
  if (count < candidates_.size()) out += fmt::format("... and {} more\r\n", candidates_.size() - count);
  return out;
}

LineLayout LineEditor::layout(int columns) const {
  if (!searching_) return lay_out(prompt_, continuation_, buffer_.text(), buffer_.cursor(), columns);
  const std::string head = fmt::format("({} '{}') ", missed_ ? "not found" : "search", query_);
  return lay_out({.plain = head, .shown = head}, continuation_, buffer_.text(), buffer_.cursor(), columns);
}

void LineEditor::resized(TerminalSize size) {
  // Terminals that break lines anew have moved the cursor with its text: its row is where the new width puts it.
  const std::size_t row = layout(size.columns).cursor_row;
  screen_.distrust(std::min(row, static_cast<std::size_t>(std::max(size.rows, 1)) - 1));
  changed_ = true;
}

std::string LineEditor::draw(TerminalSize size) {
  std::string out;
  if (std::exchange(bell_, false)) out += '\a';
  if (!changed_) return out;
  changed_ = false;
  if (!candidates_.empty()) {
    out += screen_.leave() + "\r\n" + candidate_list(size.columns);
    candidates_.clear();
    screen_.forget();
  }
  if (std::exchange(clear_, false)) {
    out += "\x1b[H\x1b[2J";
    screen_.forget();
  }
  return out + screen_.show(layout(size.columns), size);
}

std::string LineEditor::leave(TerminalSize size, bool whole) {
  std::string out = draw(size);
  if (whole && buffer_.text().size() > static_cast<std::size_t>(size.rows)) {
    const LineLayout all = lay_out(prompt_, continuation_, buffer_.text(), buffer_.text().size(), size.columns);
    const bool cut = all.rows.size() > static_cast<std::size_t>(std::max(size.rows, 1));
    if (cut && all.rows.size() <= kMostShownWhole) return out + screen_.show_whole(all, size);
  }
  return out + screen_.leave();
}

}  // namespace quarrel
