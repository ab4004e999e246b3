// Where the characters of an edited line lie on the screen.

#include <gtest/gtest.h>

#include "app/line_layout.h"

namespace quarrel {
namespace {

const Prompt kPrompt{.plain = "> ", .shown = "\x1b[1m> \x1b[0m"};
const Prompt kMore{.plain = ". ", .shown = ". "};

LineLayout lay(std::string_view text, int columns, std::size_t cursor) {
  return lay_out(kPrompt, kMore, text, cursor, columns);
}

std::vector<std::string> rows_of(std::string_view text, int columns) {
  std::vector<std::string> rows;
  for (const LayoutRow& row : lay(text, columns, text.size()).rows) rows.push_back(row.text.substr(row.prompt_bytes));
  return rows;
}

using Rows = std::vector<std::string>;

TEST(LineLayout, FillsRows) {
  EXPECT_EQ(rows_of("", 10), Rows{""});
  EXPECT_EQ(rows_of("1234567", 10), Rows{"1234567"});
  EXPECT_EQ(rows_of("12345678", 10), (Rows{"12345678", ""}));  // the last row has room for the cursor
  EXPECT_EQ(rows_of("123456789", 10), (Rows{"12345678", "9"}));
  EXPECT_TRUE(lay("123456789", 10, 0).rows[0].wraps);
}

TEST(LineLayout, AWideCharacterIsNotCut) {
  const LineLayout layout = lay("1234567日x", 10, 0);
  ASSERT_EQ(layout.rows.size(), 2u);
  EXPECT_EQ(layout.rows[0].columns, 9);
  EXPECT_TRUE(layout.rows[0].wraps);
  EXPECT_EQ(layout.rows[1].text, "日x");
}

TEST(LineLayout, LinesHaveTheirPrompt) {
  const LineLayout layout = lay("ab\n\ncd", 10, 4);
  ASSERT_EQ(layout.rows.size(), 3u);
  EXPECT_EQ(layout.rows[0].text, kPrompt.shown + "ab");
  EXPECT_EQ(layout.rows[1].text, ". ");
  EXPECT_EQ(layout.rows[2].text, ". cd");
  EXPECT_EQ(layout.cursor_row, 2u);
  EXPECT_EQ(layout.cursor_column, 2);
  EXPECT_EQ(rows_of("12345678\nx", 10), (Rows{"12345678", "x"}));  // no empty row behind a full line
}

TEST(LineLayout, FindsTheCursor) {
  const LineLayout middle = lay("日本語", 20, 6);
  EXPECT_EQ(middle.cursor_column, 6);
  EXPECT_TRUE(middle.cursor_certain);
  const LineLayout end = lay("12345678", 10, 8);
  EXPECT_EQ(end.cursor_row, 1u);
  EXPECT_EQ(end.cursor_column, 0);
  const LineLayout edge = lay("123456789", 10, 8);
  EXPECT_EQ(edge.cursor_row, 1u);
  EXPECT_EQ(edge.cursor_column, 0);
}

TEST(LineLayout, DoubtfulWidthsAreCountedInFull) {
  const std::string family = "👨‍👩‍👧";
  const LineLayout one = lay(family + "x", 20, family.size());
  EXPECT_FALSE(one.cursor_certain);
  EXPECT_EQ(one.before_cursor, kPrompt.shown + family);
  // Six columns each on some terminals: one fits beside the prompt, and the row is ended by a line feed.
  const LineLayout two = lay(family + family, 12, 0);
  ASSERT_EQ(two.rows.size(), 2u);
  EXPECT_FALSE(two.rows[0].wraps);
}

TEST(LineLayout, TabsAndStrayMarksTakeSpace) {
  EXPECT_EQ(rows_of("a\tb", 20), Rows{"a       b"});
  EXPECT_EQ(rows_of("\xCC\x81x", 20), Rows{" \xCC\x81x"});
  EXPECT_EQ(rows_of("a\x07", 20), Rows{"a\uFFFD"});
}

TEST(LineLayout, AnyWidthWill) {
  for (int columns = 0; columns < 12; ++columns) {
    const LineLayout layout = lay("日本語 text\n\t👨‍👩‍👧e\xCC\x81", columns, 5);
    EXPECT_FALSE(layout.rows.empty()) << columns;
  }
}

}  // namespace
}  // namespace quarrel
