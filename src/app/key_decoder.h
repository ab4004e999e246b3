// A terminal's bytes as keys: UTF-8, control characters, escape sequences in the dialects that terminals speak, and
// bracketed paste. Pure and bounded: whatever comes, nothing is kept beyond a fixed size, and no sequence is waited for
// forever (see finish()). Used by the line reader. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace quarrel {

enum class Key {
  text,   // characters, in KeyPress::text
  paste,  // the same, pasted: may hold line feeds and tabs
  enter,
  line_feed,  // Alt-Enter: a line more, not the end
  tab,
  escape,
  backspace,
  erase,  // Delete
  left,
  right,
  up,
  down,
  previous,  // Ctrl-P and Ctrl-N: always the history
  next,
  home,
  end,
  word_left,
  word_right,
  erase_word,             // Alt-D
  erase_word_back,        // Alt-Backspace
  erase_blank_word_back,  // Ctrl-W: back to white space
  kill_to_end,
  kill_to_start,
  yank,
  transpose,
  clear_screen,
  search,
  search_forward,
  cancel,  // Ctrl-G
  interrupt,
  end_of_file,
  suspend,
  quit,
};

struct KeyPress {
  Key key = Key::text;
  std::string text = {};
  std::size_t dropped = 0;  // bytes of a paste beyond the limit
};

class KeyDecoder {
 public:
  // A paste is cut at `paste_limit` bytes.
  explicit KeyDecoder(std::size_t paste_limit) : paste_limit_(paste_limit) {}

  // Keys are appended to `keys`; characters that follow each other make one press.
  void push(std::string_view bytes, std::vector<KeyPress>& keys);
  // Nothing came for a while: what was begun is taken for what it is by now. An escape alone is the Escape key, a paste
  // that has not ended is over.
  void finish(std::vector<KeyPress>& keys);

  // Something was begun, so finish() may have something to say.
  bool pending() const noexcept { return state_ != State::ground || !partial_.empty(); }
  bool pasting() const noexcept { return state_ == State::paste; }

 private:
  enum class State { ground, escape, csi, ss3, string, string_escape, paste };

  void ground(char byte, std::vector<KeyPress>& keys);
  void control(unsigned char byte, std::vector<KeyPress>& keys);
  void character(char byte, std::vector<KeyPress>& keys);
  void after_escape(char byte, std::vector<KeyPress>& keys);
  void csi(char byte, std::vector<KeyPress>& keys);
  void csi_key(char last, std::vector<KeyPress>& keys);
  void ss3(char byte, std::vector<KeyPress>& keys);
  void string(char byte, std::vector<KeyPress>& keys);
  void paste(char byte, std::vector<KeyPress>& keys);
  void end_paste(std::vector<KeyPress>& keys);
  // The rest of a sequence has not come, or cannot be one: back to plain keys with this byte.
  void restart(char byte, std::vector<KeyPress>& keys);

  State state_ = State::ground;
  std::string partial_;     // bytes of a character
  std::string parameters_;  // of a control sequence, cut
  std::size_t length_ = 0;  // of the sequence so far
  std::string pasted_;
  std::size_t dropped_ = 0;
  std::size_t paste_limit_;
};

// Text from outside made fit for a line that is edited: valid UTF-8, line feeds for every kind of line end, no control
// characters but those and tabs.
std::string editable_text(std::string_view text);

}  // namespace quarrel
