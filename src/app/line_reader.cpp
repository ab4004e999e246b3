#include "app/line_reader.h"

#include <histedit.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/environment.h"
#include "base/error.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

constexpr int kHistoryLines = 1000;

// The library reads characters by the locale; without one a letter beyond ASCII would be several.
void choose_locale() {
  const char* chosen = std::setlocale(LC_CTYPE, "");
  const std::string_view name = chosen == nullptr ? "" : chosen;
  if (name.empty() || name == "C" || name == "POSIX") std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

struct LineReader::State {
  EditLine* editor = nullptr;
  History* history = nullptr;
  fs::path path;
  std::string prompt;
  std::optional<std::string> interrupted;  // what stood on the line when Ctrl-C was pressed

  ~State() {
    if (editor != nullptr) ::el_end(editor);
    if (history != nullptr) ::history_end(history);
  }

  static State& of(EditLine* editor) {
    void* state = nullptr;
    ::el_get(editor, EL_CLIENTDATA, &state);
    return *static_cast<State*>(state);
  }
  static char* prompt_of(EditLine* editor) { return of(editor).prompt.data(); }
  static unsigned char interrupt(EditLine* editor, int) {
    const LineInfo* line = ::el_line(editor);
    of(editor).interrupted = std::string(line->buffer, line->lastchar);
    return CC_EOF;
  }
  static unsigned char suspend(EditLine* editor, int) {
    ::el_set(editor, EL_PREP_TERM, 0);
    ::raise(SIGTSTP);
    ::el_set(editor, EL_PREP_TERM, 1);
    return CC_REDISPLAY;
  }
};

LineReader::LineReader(fs::path history) : state_(std::make_unique<State>()) {
  choose_locale();
  State& state = *state_;
  state.path = std::move(history);
  state.editor = ::el_init("quarrel", stdin, stdout, stderr);
  state.history = ::history_init();
  if (state.editor == nullptr || state.history == nullptr) fail(ErrorKind::io, "cannot use the terminal");
  ::el_set(state.editor, EL_CLIENTDATA, &state);
  ::el_set(state.editor, EL_PROMPT, &State::prompt_of);
  ::el_set(state.editor, EL_EDITOR, "emacs");
  ::el_set(state.editor, EL_SIGNAL, 0);
  // Ctrl-C and Ctrl-Z are keys while a line is edited: a signal would lose what stands on it.
  ::el_set(state.editor, EL_SETTY, "-d", "-isig", nullptr);
  ::el_set(state.editor, EL_ADDFN, "quarrel-interrupt", "Give the line up", &State::interrupt);
  ::el_set(state.editor, EL_ADDFN, "quarrel-suspend", "Go to the background", &State::suspend);
  ::el_set(state.editor, EL_BIND, "^C", "quarrel-interrupt", nullptr);
  ::el_set(state.editor, EL_BIND, "^Z", "quarrel-suspend", nullptr);
  ::el_set(state.editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  ::el_set(state.editor, EL_BIND, "^W", "ed-delete-prev-word", nullptr);
  HistEvent event;
  ::history(state.history, &event, H_SETSIZE, kHistoryLines);
  ::history(state.history, &event, H_SETUNIQUE, 1);
  ::el_set(state.editor, EL_HIST, ::history, state.history);
  if (!state.path.empty()) ::history(state.history, &event, H_LOAD, state.path.c_str());
}

LineReader::~LineReader() {
  const State& state = *state_;
  if (state.path.empty()) return;
  std::error_code fault;
  fs::create_directories(state.path.parent_path(), fault);
  // Renamed into place: two sessions that end at once must not mix their lines in one file.
  const std::string temporary = state.path.string() + "." + std::to_string(::getpid());
  HistEvent event;
  if (::history(state.history, &event, H_SAVE, temporary.c_str()) >= 0) {
    fs::permissions(temporary, fs::perms::owner_read | fs::perms::owner_write, fault);
    fs::rename(temporary, state.path, fault);
  }
  fs::remove(temporary, fault);
}

LineInput LineReader::read(const std::string& prompt) {
  State& state = *state_;
  state.prompt = prompt;
  ::el_resize(state.editor);
  // The library shows the prompt first and takes the keys over after: a Ctrl-D in between would be lost.
  ::el_set(state.editor, EL_PREP_TERM, 1);
  state.interrupted.reset();
  int count = 0;
  errno = 0;
  const char* line = ::el_gets(state.editor, &count);
  const bool signalled = errno == EINTR;
  if (state.interrupted) return {.event = LineEvent::interrupted, .text = *state.interrupted};
  if (line == nullptr || count <= 0) {
    return {.event = signalled ? LineEvent::interrupted : LineEvent::end, .text = {}};
  }
  std::string text(line, static_cast<std::size_t>(count));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return {.event = LineEvent::line, .text = std::move(text)};
}

void LineReader::remember(const std::string& line) {
  if (line.empty()) return;
  HistEvent event;
  ::history(state_->history, &event, H_ENTER, line.c_str());
}

fs::path history_path() {
  if (environment("QUARREL_HISTORY") == "0") return {};
  const fs::path state = environment("XDG_STATE_HOME").value_or("");
  if (state.is_absolute()) return state / "quarrel" / "history";
  const fs::path home = environment("HOME").value_or("");
  return home.is_absolute() ? home / ".local" / "state" / "quarrel" / "history" : fs::path();
}

}  // namespace quarrel
