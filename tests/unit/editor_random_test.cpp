// Random bytes through decoder, editor and wrap: whatever comes, the text stays whole characters, the bytes stay
// bounded and nothing but known sequences reaches the screen.

#include <gtest/gtest.h>

#include <random>

#include "app/line_editor.h"
#include "app/word_wrap.h"
#include "editor_screen.h"
#include "text/graphemes.h"
#include "text/unicode.h"

namespace quarrel {
namespace {

using test::Screen;
using test::Widths;

// Bytes that mean something more often than chance would have it.
std::string random_bytes(std::mt19937& random, std::size_t count) {
  static const std::vector<std::string> kPieces{"\x1b[A",    "\x1b[B", "\x1b[C", "\x1b[D",    "\x1b[3~",
                                                "\x1b[1;5D", "\x1b[H", "\x1b[F", "\x1b[200~", "\x1b[201~",
                                                "\x1b]",     "\x1b[",  "\x1b",   "\x12",      "\x15",
                                                "\x0b",      "\x17",   "\x19",   "\x14",      "\x09",
                                                "\x7f",      "\x1b\r", "\x0c",   "日",        "👨‍👩‍👧",
                                                "e\xCC\x81", "🇩🇪",     "\u200D", "\xCC\x81",  "hello ",
                                                "\x01",      "\x05",   "\t",     "क्षि",       "각",
                                                "\xFF",      "\xE6",   "ab",     "\x07",      "x\n"};
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) {
    if (random() % 4 == 0) {
      bytes += static_cast<char>(random() % 256);
    } else {
      bytes += kPieces[random() % kPieces.size()];
    }
  }
  return bytes;
}

// What a terminal shows that has drawn the line once, from nothing.
std::string drawn_anew(LineEditor& editor, TerminalSize size, Widths widths, int& row, int& column) {
  Screen screen(size.columns, size.rows, widths);
  editor.forget_screen();
  screen.write(editor.draw(size));
  row = screen.cursor_row();
  column = screen.cursor_column();
  return screen.text();
}

void edit_randomly(unsigned seed, TerminalSize size, Widths widths) {
  std::mt19937 random(seed);
  LineHistory history{std::filesystem::path()};
  for (const char* line : {"one", "many\nlines\nof text", "日本語 👨‍👩‍👧",
                           "a line that is longer than the terminal is wide"}) {
    history.add(line);
  }
  const Completer completer = [](std::string_view, std::size_t cursor) {
    return Completion{.begin = cursor, .candidates = {"alpha", "beta"}};
  };
  LineEditor editor(history, completer);
  KeyDecoder decoder(1000);
  Screen screen(size.columns, size.rows, widths);
  editor.begin({.plain = "> ", .shown = "> "}, {.plain = ". ", .shown = ". "});
  for (int round = 0; round < 60; ++round) {
    std::vector<KeyPress> keys;
    decoder.push(random_bytes(random, random() % 6), keys);
    if (random() % 3 == 0) decoder.finish(keys);
    bool over = false;
    for (const KeyPress& key : keys) {
      const LineEditor::Outcome outcome = editor.press(key);
      over = outcome == LineEditor::Outcome::accepted || outcome == LineEditor::Outcome::interrupted ||
             outcome == LineEditor::Outcome::ended;
      if (over) break;
    }
    if (over) {
      screen.write(editor.leave(size, true) + "\r\n");
      editor.begin({.plain = "> ", .shown = "> "}, {.plain = ". ", .shown = ". "});
    }
    screen.write(editor.draw(size));
    const std::string& text = editor.text();
    ASSERT_EQ(to_valid_utf8(text), text);
    // A cell of a terminal that adds up code points may be half of a joined emoji, so only one that knows clusters can
    // be held to every cell.
    if (widths != Widths::clusters || round % 10 != 9) continue;
    int row = 0;
    int column = 0;
    const std::string anew = drawn_anew(editor, size, widths, row, column);
    const std::string shown = screen.text();
    ASSERT_TRUE(shown.ends_with(anew)) << "seed " << seed << "\n" << shown << "\nanew\n" << anew;
    ASSERT_EQ(screen.cursor_column(), column) << "seed " << seed;
    // The drawing above went to another screen: this one begins on a row of its own.
    screen.write("\r\n");
    editor.forget_screen();
    Screen fresh(size.columns, size.rows, widths);
    screen = fresh;
    screen.write(editor.draw(size));
  }
}

TEST(RandomInput, LeavesTheEditorSound) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    for (const Widths widths : {Widths::clusters, Widths::code_points}) {
      // Where all of a text is seen it is compared; where only a part is, it must not fail.
      const int rows = widths == Widths::clusters ? 400 : static_cast<int>(2 + seed % 9);
      edit_randomly(seed, {.columns = static_cast<int>(5 + seed % 40), .rows = rows}, widths);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(RandomInput, LeavesTheWrapSound) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    int columns = static_cast<int>(random() % 40);
    WordWrap wrap([&] { return columns; });
    std::string out;
    std::size_t given = 0;
    for (int i = 0; i < 50; ++i) {
      std::string piece;
      for (const char c : random_bytes(random, random() % 8)) {
        if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') piece += c;
      }
      given += piece.size();
      if (random() % 10 == 0) columns = static_cast<int>(random() % 40);
      out += wrap.push(piece);
    }
    out += wrap.finish();
    ASSERT_EQ(to_valid_utf8(out), out) << seed;
    ASSERT_LT(out.size(), 20 * given + 1000) << seed;
  }
}

TEST(RandomInput, AMegabyteIsNoTrouble) {
  const LineHistory history{std::filesystem::path()};
  const Completer completer;
  LineEditor editor(history, completer);
  KeyDecoder decoder(LineEditor::kLimit);
  editor.begin({.plain = "> ", .shown = "> "}, {.plain = ". ", .shown = ". "});
  const TerminalSize size{.columns = 80, .rows = 24};
  // As a paste, as keys, and as marks that all join one letter.
  for (const std::string& megabyte :
       {"\x1b[200~" + std::string(1 << 20, 'x') + "\x1b[201~", std::string(1 << 20, 'y'), [] {
          std::string marks = "e";
          for (int i = 0; i < 1 << 19; ++i) marks += "\xCC\x81";
          return marks;
        }()}) {
    std::vector<KeyPress> keys;
    decoder.push(megabyte, keys);
    ASSERT_LT(keys.size(), 10u);
    for (const KeyPress& key : keys) editor.press(key);
    EXPECT_FALSE(editor.draw(size).empty());
  }
  EXPECT_GT(editor.text().size(), std::size_t{3} << 20);
  editor.press({.key = Key::backspace});
  EXPECT_LT(editor.text().size(), (std::size_t{2} << 20) + 10);  // the letter with all its marks
}

}  // namespace
}  // namespace quarrel
