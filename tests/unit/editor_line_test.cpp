// The line editor as a user sees it: keys in, a screen out.

#include <gtest/gtest.h>

#include "app/line_editor.h"
#include "editor_screen.h"

namespace quarrel {
namespace {

using test::Screen;
using test::Widths;
using Outcome = LineEditor::Outcome;

class LineEditorTest : public testing::TestWithParam<Widths> {
 protected:
  void start(int columns, int rows = 10) {
    size_ = {.columns = columns, .rows = rows};
    screen_ = Screen(columns, rows, GetParam());
    editor_.begin({.plain = "> ", .shown = "\x1b[36m> \x1b[0m"}, {.plain = ". ", .shown = ". "});
    show();
  }
  void show() {
    const std::string bytes = editor_.draw(size_);
    written_ += bytes;
    screen_.write(bytes);
  }
  Outcome type(std::string_view bytes) {
    std::vector<KeyPress> keys;
    decoder_.push(bytes, keys);
    decoder_.finish(keys);
    Outcome outcome = Outcome::editing;
    for (const KeyPress& key : keys) {
      outcome = editor_.press(key);
      if (outcome != Outcome::editing) break;
      show();
    }
    return outcome;
  }
  // What is typed next lands where the cursor is seen.
  void expect_cursor(int row, int column) {
    EXPECT_EQ(screen_.cursor_row(), row);
    EXPECT_EQ(screen_.cursor_column(), column);
  }

  LineHistory history_{std::filesystem::path()};
  Completer completer_;
  LineEditor editor_{history_, completer_};
  KeyDecoder decoder_{LineEditor::kLimit};
  TerminalSize size_;
  Screen screen_{80, 10};
  std::string written_;
};

INSTANTIATE_TEST_SUITE_P(Terminals, LineEditorTest, testing::Values(Widths::clusters, Widths::code_points),
                         [](const auto& chosen) {
                           return chosen.param == Widths::clusters ? "Clusters" : "CodePoints";
                         });

TEST_P(LineEditorTest, WritesWhatIsTyped) {
  start(20);
  type("hello");
  EXPECT_EQ(screen_.text(), "> hello\n");
  expect_cursor(0, 7);
  // No more than that: a slow line carries each letter once.
  EXPECT_EQ(written_, "\x1b[36m> \x1b[0mhello");
  type("\x01X\x1b[C\x1b[CY");
  EXPECT_EQ(screen_.text(), "> XheYllo\n");
  expect_cursor(0, 6);
  type("\x0b\x7f\x7f");
  EXPECT_EQ(screen_.text(), "> Xh\n");
}

TEST_P(LineEditorTest, WrapsAndUnwraps) {
  start(10);
  type("12345678");
  EXPECT_EQ(screen_.text(), "> 12345678\n");
  expect_cursor(1, 0);
  type("abcdefghijk");
  EXPECT_EQ(screen_.text(), "> 12345678\nabcdefghij\nk\n");
  expect_cursor(2, 1);
  type("\x01_");
  EXPECT_EQ(screen_.text(), "> _1234567\n8abcdefghi\njk\n");
  expect_cursor(0, 3);
  type("\x05\x7f\x7f");
  EXPECT_EQ(screen_.text(), "> _1234567\n8abcdefghi\n");
  expect_cursor(2, 0);
  type("\x7f");
  EXPECT_EQ(screen_.text(), "> _1234567\n8abcdefgh\n");
  expect_cursor(1, 9);
  type("\x15");
  EXPECT_EQ(screen_.text(), ">\n");
  expect_cursor(0, 2);
}

TEST_P(LineEditorTest, WideCharactersAtTheEdge) {
  start(9);
  type("日本語日本");
  EXPECT_EQ(screen_.text(), "> 日本語\n日本\n");
  type("\x1b[D\x1b[D\x1b[D|");
  EXPECT_EQ(screen_.text(), "> 日本|語\n日本\n");
  expect_cursor(0, 7);
  type("|");
  EXPECT_EQ(screen_.text(), "> 日本||\n語日本\n");
  expect_cursor(0, 8);
  type("\x7f");
  type("\x7f\x7f");
  EXPECT_EQ(screen_.text(), "> 日語日\n本\n");
}

TEST_P(LineEditorTest, JoinedEmojiAreOneCharacterOnEveryTerminal) {
  start(20);
  type("a👨‍👩‍👧b");
  EXPECT_EQ(screen_.row(0), "> a👨‍👩‍👧b");
  type("\x1b[D|");
  EXPECT_EQ(screen_.row(0), "> a👨‍👩‍👧|b");
  type("\x7f\x7f");
  EXPECT_EQ(screen_.row(0), "> ab");
  type("🇩🇪🇫🇷\x7f");
  EXPECT_EQ(screen_.row(0), "> a🇩🇪b");
  type("\x01\x1b[3~\x1b[3~");
  EXPECT_EQ(screen_.row(0), "> b");
  type(
      "\x05"
      "e\xCC\x81\x7f");
  EXPECT_EQ(screen_.row(0), "> b");
}

TEST_P(LineEditorTest, RowsOfEmojiStayInTheirRows) {
  start(16);
  for (int i = 0; i < 5; ++i) type("👨‍👩‍👧");
  type("x\x1b[H");
  EXPECT_EQ(screen_.text(),
            "> 👨‍👩‍👧👨‍👩‍👧\n👨‍👩‍👧👨‍👩‍👧\n👨‍👩‍👧x\n");
  expect_cursor(0, 2);
  type("\x15");
  EXPECT_EQ(editor_.text().size(), std::string("👨‍👩‍👧").size() * 5 + 1);
}

TEST_P(LineEditorTest, PastedLinesAreOneMessage) {
  start(20);
  std::string pasted;
  std::string shown = "> line 0\n";
  for (int i = 0; i < 5; ++i) pasted += "line " + std::to_string(i) + (i < 4 ? "\r" : "");
  for (int i = 1; i < 5; ++i) shown += ". line " + std::to_string(i) + "\n";
  type("\x1b[200~" + pasted + "\x1b[201~");
  EXPECT_EQ(screen_.text(), shown);
  type("\x1b[A\x1b[A!");
  EXPECT_EQ(screen_.row(2), ". line 2!");
  EXPECT_EQ(type("\r"), Outcome::accepted);
  EXPECT_EQ(editor_.text(), "line 0\nline 1\nline 2!\nline 3\nline 4");
  screen_.write(editor_.leave(size_, true) + "\r\n");
  expect_cursor(5, 0);
}

TEST_P(LineEditorTest, ATextLongerThanTheScreenMovesUnderIt) {
  start(20, 5);
  std::string pasted;
  for (int i = 0; i < 40; ++i) pasted += std::to_string(i) + "\r";
  type("\x1b[200~" + pasted + "end\x1b[201~");
  EXPECT_EQ(screen_.text(), ". 36\n. 37\n. 38\n. 39\n. end\n");
  for (int i = 0; i < 38; ++i) type("\x1b[A");
  EXPECT_EQ(screen_.text(), ". 2\n. 3\n. 4\n. 5\n. 6\n");
  expect_cursor(0, 3);
  type("\x1b[A\x1b[A\x1b[A");  // one too many: the history, which is empty
  EXPECT_EQ(screen_.row(0), "> 0");
  // In the end all of it is there to be scrolled back to.
  const int scrolled = screen_.scrolled();
  screen_.write(editor_.leave(size_, true));
  EXPECT_EQ(screen_.scrolled() - scrolled, 36);
  EXPECT_EQ(screen_.text(), ". 36\n. 37\n. 38\n. 39\n. end\n");
}

TEST_P(LineEditorTest, RemembersAndSearches) {
  for (const char* line : {"first", "second one", "many\nlines", "last one"}) history_.add(line);
  start(40);
  type("draft\x1b[A");
  EXPECT_EQ(screen_.text(), "> last one\n");
  type("\x1b[A");
  EXPECT_EQ(screen_.text(), "> many\n. lines\n");
  type("\x1b[A\x1b[A");
  EXPECT_EQ(screen_.text(), "> second one\n");
  type("\x1b[B\x1b[B\x1b[B");
  EXPECT_EQ(screen_.text(), "> draft\n");
  type("\x12one");
  EXPECT_EQ(screen_.text(), "(search 'one') last one\n");
  type("\x12");
  EXPECT_EQ(screen_.text(), "(search 'one') second one\n");
  type("\x12");
  EXPECT_EQ(screen_.text(), "(not found 'one') second one\n");
  EXPECT_EQ(screen_.bells(), 1);
  type("\x07");
  EXPECT_EQ(screen_.text(), "> draft\n");
  type(
      "\x12"
      "fir\x1b[C");
  EXPECT_EQ(screen_.text(), "> first\n");
  type(
      "\x12"
      "cond");
  EXPECT_EQ(type("\r"), Outcome::accepted);
  EXPECT_EQ(editor_.text(), "second one");
  screen_.write(editor_.leave(size_, true));
  EXPECT_EQ(screen_.text(), "> second one\n");
}

TEST_P(LineEditorTest, Completes) {
  completer_ = [](std::string_view text, std::size_t cursor) {
    Completion found{.begin = 0};
    for (const char* word : {"tempest", "template", "top", "größe", "größte"}) {
      if (std::string_view(word).starts_with(text.substr(0, cursor))) found.candidates.emplace_back(word);
    }
    return found;
  };
  start(40);
  type("te\t");
  EXPECT_EQ(screen_.text(), "> temp\n");
  type("\t");
  EXPECT_EQ(screen_.text(), "> temp\ntempest   template\n> temp\n");
  expect_cursor(2, 6);
  type("l\t");
  EXPECT_EQ(screen_.row(2), "> template");
  EXPECT_EQ(editor_.text(), "template ");
  type("\x15g\t");
  EXPECT_EQ(editor_.text(), "größ");
  type("\x15x\t");
  EXPECT_EQ(editor_.text(), "x");
  EXPECT_EQ(screen_.bells(), 1);
}

TEST_P(LineEditorTest, CandidatesFromOutsideAreHarmless) {
  completer_ = [](std::string_view, std::size_t) {
    return Completion{.begin = 0, .candidates = {"a\x1b[31m", "b\nc"}};
  };
  start(40);
  type("\t");
  EXPECT_EQ(editor_.text(), "");
  EXPECT_EQ(screen_.text(), ">\n");
}

TEST_P(LineEditorTest, LeavesAndClears) {
  start(20);
  EXPECT_EQ(type("\x04"), Outcome::ended);
  type("ab\x01\x04");
  EXPECT_EQ(editor_.text(), "b");
  type("\x0c");
  EXPECT_EQ(screen_.text(), "> b\n");
  EXPECT_EQ(type("\x03"), Outcome::interrupted);
  EXPECT_EQ(editor_.text(), "b");
  EXPECT_EQ(type("\x1a"), Outcome::suspend);
}

TEST_P(LineEditorTest, ATerminalThatBecomesNarrower) {
  start(20);
  type("0123456789abcdefgh");  // fills the row: the cursor stands on the next
  type("\x1b[D\x1b[D");
  // What a terminal makes of it that breaks lines anew.
  size_ = {.columns = 10, .rows = 10};
  screen_ = Screen(10, 10, GetParam());
  screen_.write("> 0123456789abcdefgh\r\x1b[8C");
  editor_.resized(size_);
  show();
  EXPECT_EQ(screen_.text(), "> 01234567\n89abcdefgh\n");
  expect_cursor(1, 8);
  type("X");
  EXPECT_EQ(screen_.text(), "> 01234567\n89abcdefXg\nh\n");
}

TEST_P(LineEditorTest, ALineHasALimit) {
  start(20);
  const std::string big(LineEditor::kLimit - 3, 'x');
  type("\x1b[200~" + big + "\x1b[201~");
  type("abcdef");
  EXPECT_EQ(editor_.text().size(), LineEditor::kLimit);
  EXPECT_EQ(editor_.dropped(), 3u);
  EXPECT_EQ(screen_.bells(), 1);
}

}  // namespace
}  // namespace quarrel
