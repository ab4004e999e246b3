#include "app/answer_view.h"

#include <string>

#include "app/style.h"
#include "app/terminal.h"
#include "base/error.h"

namespace quarrel {

AnswerView::AnswerView()
    : terminal_(is_terminal(Stream::output)),
      moves_(moves_cursor(Stream::output)),
      progress_(Palette(Stream::output), Clock::now()),
      wrap_([] { return terminal_columns(Stream::output); }) {
  if (terminal_) quiet_.emplace(InputMode::quiet);
}

AnswerView::~AnswerView() {
  try {
    write(progress_.finish());
  } catch (const std::exception&) {  // whoever writes next will notice
  }
}

void AnswerView::progress(std::size_t done, std::size_t total) {
  if (moves_) write(progress_.update(done, total, terminal_columns(Stream::output), Clock::now()));
}

void AnswerView::show(std::string_view piece) {
  if (!terminal_) return write(piece);
  const std::string text = without_control(piece);
  write(progress_.finish() + (moves_ ? wrap_.push(text) : text));
}

void AnswerView::finish() { write(progress_.finish() + wrap_.finish() + "\n"); }

void AnswerView::write(std::string_view text) {
  if (stuck_ || text.empty()) return;
  try {
    write_output(text);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::cancelled) throw;
    stuck_ = true;
  }
}

}  // namespace quarrel
