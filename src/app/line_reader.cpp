#include "app/line_reader.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <deque>
#include <optional>
#include <utility>

#include "app/state_folder.h"
#include "app/style.h"
#include "app/terminal_mode.h"
#include "base/clock.h"
#include "base/environment.h"
#include "text/graphemes.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

// How long the rest of an escape sequence may take: a key's bytes come together.
constexpr int kSequenceMilliseconds = 50;
// And the rest of a paste, which a slow line may hold up.
constexpr int kPasteMilliseconds = 5000;
// While more input is waiting, the screen is brought up to date this often.
constexpr std::chrono::milliseconds kDrawPause{100};

constexpr std::string_view kContinuation = "... ";

enum class Wait { input, idle, signal };

Wait wait_for(int signals, int milliseconds) {
  std::array<pollfd, 2> watched{
      {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0}, {.fd = signals, .events = POLLIN, .revents = 0}}};
  const int ready = ::poll(watched.data(), watched.size(), milliseconds);
  if (ready == 0) return Wait::idle;
  // An interrupted call is a signal too; a terminal that is gone is readable, and says so then.
  return ready < 0 || watched[1].revents != 0 ? Wait::signal : Wait::input;
}

// Nothing: the end. An empty text: try again.
std::optional<std::string> read_input() {
  std::array<char, 65536> bytes{};
  const ssize_t count = ::read(STDIN_FILENO, bytes.data(), bytes.size());
  if (count > 0) return std::string(bytes.data(), static_cast<std::size_t>(count));
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return std::string();
  return std::nullopt;
}

}  // namespace

struct LineReader::State {
  State(fs::path path, Completer given)
      : history(std::move(path)), completer(std::move(given)), palette(Stream::output) {}

  LineInput edit(const Prompt& prompt, LineUse use);
  LineInput read_plain(const Prompt& prompt);

  LineHistory history;
  Completer completer;
  LineEditor editor{history, completer};  // of messages: what was cut out of one can be put into the next
  Palette palette;
  KeyDecoder decoder{LineEditor::kLimit};
  std::deque<KeyPress> typed;  // keys that no line has taken yet
  std::string rest;            // the same of plain reading
};

namespace {

// One line's editing: the terminal in its mode, the keys, the screen.
class Editing {
 public:
  Editing(LineEditor& editor, KeyDecoder& decoder, std::deque<KeyPress>& typed)
      : editor_(editor), decoder_(decoder), typed_(typed), mode_(InputMode::keys) {}

  LineInput run();

 private:
  std::optional<LineInput> take_keys();
  LineInput finish(LineEvent event);
  void signals();
  void suspend();
  void fetch(Wait wait);
  void draw();

  LineEditor& editor_;
  KeyDecoder& decoder_;
  std::deque<KeyPress>& typed_;
  TerminalMode mode_;
  TerminalSignals signals_;
  TerminalSize size_ = terminal_size(Stream::output);
  Clock::time_point drawn_{};
  bool gone_ = false;
};

LineInput Editing::run() {
  for (;;) {
    if (std::optional<LineInput> done = take_keys()) return *std::move(done);
    if (gone_) return finish(LineEvent::end);
    if (interrupt_pending()) return finish(LineEvent::interrupted);
    signals();
    draw();
    const int patience = !decoder_.pending() ? -1 : decoder_.pasting() ? kPasteMilliseconds : kSequenceMilliseconds;
    fetch(wait_for(signals_.descriptor(), patience));
  }
}

std::optional<LineInput> Editing::take_keys() {
  while (!typed_.empty()) {
    const KeyPress key = std::move(typed_.front());
    typed_.pop_front();
    switch (editor_.press(key)) {
      case LineEditor::Outcome::editing: break;
      case LineEditor::Outcome::accepted: return finish(LineEvent::line);
      case LineEditor::Outcome::interrupted: return finish(LineEvent::interrupted);
      case LineEditor::Outcome::ended: return finish(LineEvent::end);
      case LineEditor::Outcome::suspend: suspend(); break;
      case LineEditor::Outcome::quit:
        write_output(editor_.leave(size_, false) + "\r\n");
        mode_.leave();
        ::raise(SIGQUIT);
        mode_.enter();
        editor_.forget_screen();
        break;
    }
  }
  return std::nullopt;
}

LineInput Editing::finish(LineEvent event) {
  const bool line = event == LineEvent::line;
  if (!gone_) write_output(editor_.leave(size_, line) + (line ? "\r\n" : ""));
  std::string text = editor_.text();
  // Pasted lines often end in a line feed, which is no part of a message.
  while (line && text.ends_with('\n')) text.pop_back();
  return {.event = event, .text = std::move(text), .dropped = editor_.dropped()};
}

void Editing::signals() {
  if (signals_.take_stop()) suspend();
  if (signals_.take_continued()) {
    // Somebody else had the terminal meanwhile, and may have set it as they like.
    mode_.leave();
    mode_.enter();
    size_ = terminal_size(Stream::output);
    write_output("\r\n");
    editor_.forget_screen();
  }
  if (signals_.take_resized()) {
    size_ = terminal_size(Stream::output);
    editor_.resized(size_);
  }
}

void Editing::suspend() {
  write_output(editor_.leave(size_, false) + "\r\n");
  mode_.leave();
  signals_.stop_job();
  mode_.enter();
  signals_.take_continued();
  signals_.take_resized();
  size_ = terminal_size(Stream::output);
  editor_.forget_screen();
}

void Editing::draw() {
  // Somebody pastes without saying so, or types faster than a slow line shows: one drawing serves many keys.
  if (Clock::now() - drawn_ < kDrawPause && wait_for(signals_.descriptor(), 0) == Wait::input) return;
  const std::string bytes = editor_.draw(size_);
  if (!bytes.empty()) write_output(bytes);
  drawn_ = Clock::now();
}

void Editing::fetch(Wait wait) {
  std::vector<KeyPress> keys;
  if (wait == Wait::signal) {
    signals_.drain();
  } else if (wait == Wait::idle) {
    decoder_.finish(keys);
  } else if (const std::optional<std::string> bytes = read_input()) {
    decoder_.push(*bytes, keys);
  } else {
    gone_ = true;
  }
  for (KeyPress& key : keys) typed_.push_back(std::move(key));
}

}  // namespace

LineReader::LineReader(fs::path history, Completer completer)
    : state_(std::make_unique<State>(std::move(history), std::move(completer))) {}

LineReader::~LineReader() = default;

LineInput LineReader::read(const Prompt& prompt, LineUse use) {
  const bool edits = is_terminal(Stream::input) && moves_cursor(Stream::output);
  return edits ? state_->edit(prompt, use) : state_->read_plain(prompt);
}

LineInput LineReader::State::edit(const Prompt& prompt, LineUse use) {
  const LineHistory no_history{fs::path()};
  const Completer no_completer;
  LineEditor bare(no_history, no_completer);
  LineEditor& chosen = use == LineUse::message ? editor : bare;
  chosen.begin(prompt, {.plain = std::string(kContinuation), .shown = palette.paint(Style::prompt, kContinuation)});
  return Editing(chosen, decoder, typed).run();
}

LineInput LineReader::State::read_plain(const Prompt& prompt) {
  write_output(prompt.shown);
  TerminalSignals signals;
  std::size_t dropped = 0;
  for (;;) {
    const std::size_t end = rest.find('\n');
    if (end != std::string::npos) {
      std::string text = editable_text(std::string_view(rest).substr(0, end));
      rest.erase(0, end + 1);
      while (text.ends_with('\n')) text.pop_back();
      return {.event = LineEvent::line, .text = std::move(text), .dropped = dropped};
    }
    if (interrupt_pending()) return {.event = LineEvent::interrupted, .text = std::exchange(rest, {})};
    if (wait_for(signals.descriptor(), -1) == Wait::signal) {
      signals.drain();
      if (signals.take_stop()) signals.stop_job();
      continue;
    }
    const std::optional<std::string> bytes = read_input();
    if (!bytes) {
      if (rest.empty()) return {.event = LineEvent::end};
      rest += '\n';  // the last line may lack its end
      continue;
    }
    rest += *bytes;
    const std::size_t begin = rest.size() - bytes->size();
    if (begin > LineEditor::kLimit && rest.find('\n') == std::string::npos) {
      dropped += bytes->size();
      rest.resize(begin);
    }
  }
}

void LineReader::remember(const std::string& line) { state_->history.add(line); }

fs::path history_path() {
  if (environment("QUARREL_HISTORY") == "0") return {};
  const fs::path folder = state_folder();
  return folder.empty() ? folder : folder / "history";
}

}  // namespace quarrel
