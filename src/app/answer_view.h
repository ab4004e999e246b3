// How an answer gets to standard output as it comes. On a terminal it is made harmless and broken between words, a sign
// of life stands there while the prompt is read, and what is typed meanwhile is not shown in its midst; elsewhere its
// bytes go out as they are. Used by `run`, on the main thread; one object an answer.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "app/prompt_progress.h"
#include "app/terminal_mode.h"
#include "app/word_wrap.h"

namespace quarrel {

class AnswerView {
 public:
  AnswerView();
  // An answer that ends in an error leaves no sign of life behind.
  ~AnswerView();
  AnswerView(const AnswerView&) = delete;
  AnswerView& operator=(const AnswerView&) = delete;

  // `done` of the prompt's `total` tokens are read. To be called some times a second until the answer begins, with the
  // same numbers if need be.
  void progress(std::size_t done, std::size_t total);
  // The next piece of the answer. Throws as write_output() does, but for a reader that takes nothing when the user asks
  // to stop: then nothing more is written, and whoever makes the answer sees the same wish.
  void show(std::string_view piece);
  // The answer is complete, and so is its last line.
  void finish();

 private:
  void write(std::string_view text);

  bool terminal_;
  bool moves_;
  PromptProgress progress_;
  WordWrap wrap_;
  std::optional<TerminalMode> quiet_;
  bool stuck_ = false;
};

}  // namespace quarrel
