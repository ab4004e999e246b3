// Answers broken between words, and the sign of life before them.

#include <gtest/gtest.h>

#include "app/prompt_progress.h"
#include "app/style.h"
#include "app/word_wrap.h"
#include "editor_screen.h"

namespace quarrel {
namespace {

using test::Screen;
using test::Widths;

// What a screen shows of a text that comes in pieces of `step` bytes.
std::string wrapped(std::string_view text, int columns, std::size_t step, Widths widths = Widths::clusters) {
  Screen screen(columns, 30, widths);
  WordWrap wrap([&] { return columns; });
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += step) out += wrap.push(text.substr(at, step));
  screen.write(out + wrap.finish());
  return screen.text();
}

void expect_wrapped(std::string_view text, int columns, std::string_view expected) {
  for (const Widths widths : {Widths::clusters, Widths::code_points}) {
    for (const std::size_t step : {std::size_t{1}, std::size_t{3}, std::size_t{1000}}) {
      EXPECT_EQ(wrapped(text, columns, step, widths), expected) << "in pieces of " << step;
    }
  }
}

TEST(WordWrap, BreaksBetweenWords) {
  expect_wrapped("The quick brown fox jumps over it.", 12, "The quick\nbrown fox\njumps over\nit.\n");
  expect_wrapped("exactly ten! and more", 12, "exactly ten!\nand more\n");
  expect_wrapped("exactly ten!\n\nand more", 12, "exactly ten!\n\nand more\n");
  expect_wrapped("blanks       at the edge", 10, "blanks\nat the\nedge\n");
}

TEST(WordWrap, CutsOnlyWhatIsLongerThanALine) {
  expect_wrapped("a https://example.org/long/path b", 12, "a\nhttps://exam\nple.org/long\n/path b\n");
}

TEST(WordWrap, CountsWideCharacters) {
  expect_wrapped("日本語の文章は、どこでも。", 10, "日本語の文\n章は、どこ\nでも。\n");
  // A stop does not begin a line, an opening bracket does not end one.
  expect_wrapped("日本語の文。章", 10, "日本語の\n文。章\n");
  expect_wrapped("日本語の「文」", 10, "日本語の\n「文」\n");
  expect_wrapped("größer als Übermut", 10, "größer als\nÜbermut\n");
  expect_wrapped("cafe\xCC\x81 au lait cafe\xCC\x81", 12, "cafe\xCC\x81 au lait\ncafe\xCC\x81\n");
}

TEST(WordWrap, NeverSplitsACharacter) {
  expect_wrapped("12345678 👨‍👩‍👧 x", 10, "12345678\n👨‍👩‍👧 x\n");
  expect_wrapped("ab 👨‍👩‍👧", 10, "ab 👨‍👩‍👧\n");
}

TEST(WordWrap, LeavesCodeAlone) {
  const std::string code = "    for (int i = 0; i < 10; ++i) {}";
  const std::string text = "words words words\n```cpp\n" + code + "\n```\nwords words words\n";
  WordWrap wrap([] { return 12; });
  const std::string out = wrap.push(text) + wrap.finish();
  EXPECT_NE(out.find("\n" + code + "\n"), std::string::npos);
  expect_wrapped("~~~\na b c d e f g h\n```\na b c d e f g h\n~~~~\na b c d e f g", 10,
                 "~~~\na b c d e\nf g h\n```\na b c d e\nf g h\n~~~~\na b c d e\nf g\n");
}

TEST(WordWrap, CodeInALineIsNoBlock) {
  expect_wrapped("```x``` a b c\na b c d e f", 9, "```x``` a\nb c\na b c d e\nf\n");
}

TEST(WordWrap, FollowsTheTerminal) {
  int columns = 20;
  WordWrap wrap([&] { return columns; });
  Screen screen(10, 10);
  std::string out = wrap.push("one two three ");
  columns = 10;
  out = wrap.push("four five six\nseven eight nine");
  screen.write("one two\nthree ");
  screen.write(out.substr(out.find("six")));
  EXPECT_EQ(screen.row(2), "seven");
  EXPECT_EQ(screen.row(3), "eight nine");
}

TEST(WordWrap, ColoursTakeNoRoom) {
  expect_wrapped("\x1b[2mThe quick\x1b[0m brown \x1b[1;36mfox\x1b[0m jumps", 12, "The quick\nbrown fox\njumps\n");
}

TEST(WordWrap, ANarrowTerminalIsLeftToItself) {
  WordWrap wrap([] { return 3; });
  EXPECT_EQ(wrap.push("some words"), "some words");
}

TEST(WordWrap, BrokenBytesDoNotHoldItUp) {
  WordWrap wrap([] { return 20; });
  EXPECT_EQ(wrap.push("a\xFF"
                      "b\xE6"),
            "a\uFFFDb");
  EXPECT_EQ(wrap.push("x"), "\uFFFDx");
  EXPECT_EQ(wrap.push("\xE6\x97"), "");
  EXPECT_EQ(wrap.finish(), "\uFFFD");
}

TEST(PromptProgress, ComesLateAndGoes) {
  using std::chrono::milliseconds;
  const Clock::time_point start{};
  PromptProgress progress(Palette(false), start);
  EXPECT_EQ(progress.update(10, 2000, 80, start + milliseconds(400)), "");
  EXPECT_EQ(progress.update(512, 2000, 80, start + milliseconds(600)),
            "\rreading the prompt: 512 of 2000 tokens\x1b[K");
  EXPECT_EQ(progress.update(600, 2000, 80, start + milliseconds(650)), "");  // not more often than anybody can read
  EXPECT_NE(progress.update(600, 2000, 80, start + milliseconds(700)), "");
  EXPECT_EQ(progress.finish(), "\r\x1b[K");
  EXPECT_EQ(progress.finish(), "");
  EXPECT_EQ(progress.update(700, 2000, 80, start + milliseconds(900)), "");

  PromptProgress quick(Palette(false), start);
  EXPECT_EQ(quick.finish(), "");
  PromptProgress narrow(Palette(false), start);
  EXPECT_EQ(narrow.update(1, 2, 10, start + milliseconds(600)), "\rreading t\x1b[K");
}

TEST(Palette, PaintsOnlyWhereItMay) {
  EXPECT_EQ(Palette(false).paint(Style::error, "error:"), "error:");
  EXPECT_EQ(Palette(true).paint(Style::error, "error:"), "\x1b[31merror:\x1b[0m");
  EXPECT_EQ(Palette(true).paint(Style::prompt, ""), "");
}

}  // namespace
}  // namespace quarrel
