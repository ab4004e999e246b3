// Grapheme clusters, and editing by them.

#include <gtest/gtest.h>

#include "app/edit_buffer.h"
#include "text/graphemes.h"

namespace quarrel {
namespace {

constexpr std::string_view kFamily = "👨‍👩‍👧";  // three joined by U+200D
constexpr std::string_view kFlag = "🇩🇪";                    // two regional indicators
constexpr std::string_view kAccented = "e\xCC\x81";         // e and a combining acute

TEST(Graphemes, AreWhatAReaderSees) {
  for (const std::string_view one : {kFamily, kFlag, kAccented, std::string_view("👍🏽"), std::string_view("❤️"),
                                     std::string_view("각"), std::string_view("字"), std::string_view("\xFF")}) {
    const std::string text = "a" + std::string(one) + "b";
    EXPECT_EQ(next_grapheme(text, 1), 1 + one.size()) << one;
    EXPECT_EQ(previous_grapheme(text, 1 + one.size()), 1u) << one;
    for (std::size_t at = 1; at < 1 + one.size(); ++at) EXPECT_EQ(grapheme_boundary(text, at), 1u) << one;
  }
  const std::string flags = std::string(kFlag) + std::string(kFlag);
  EXPECT_EQ(previous_grapheme(flags, flags.size()), kFlag.size());
  EXPECT_EQ(next_grapheme("", 0), 0u);
  EXPECT_EQ(previous_grapheme("x", 0), 0u);
}

TEST(Graphemes, HaveWidths) {
  EXPECT_EQ(text_width("abc"), 3);
  EXPECT_EQ(text_width("日本"), 4);
  EXPECT_EQ(text_width(kAccented), 1);
  EXPECT_EQ(text_width(kFamily), 2);
  EXPECT_EQ(text_width(kFlag), 2);
  EXPECT_EQ(text_width("각"), 2);  // three parts of a syllable
  EXPECT_TRUE(grapheme_width("日").certain);
  EXPECT_TRUE(grapheme_width(kAccented).certain);
  for (const std::string_view doubtful : {kFamily, kFlag, std::string_view("❤️"), std::string_view("👍🏽")}) {
    EXPECT_FALSE(grapheme_width(doubtful).certain) << doubtful;
  }
  EXPECT_EQ(grapheme_width(kFamily).most, 6);
}

EditBuffer with(std::string text) {
  EditBuffer buffer(1000);
  buffer.set(std::move(text));
  return buffer;
}

TEST(EditBuffer, ErasesWholeCharacters) {
  EditBuffer buffer = with("a" + std::string(kFamily) + std::string(kAccented) + "日" + std::string(kFlag));
  for (int left = 5; left > 0; --left) EXPECT_TRUE(buffer.erase_back()) << left;
  EXPECT_TRUE(buffer.empty());
  EXPECT_FALSE(buffer.erase_back());

  buffer = with(std::string(kFlag) + std::string(kFlag) + "x");
  buffer.line_start();
  EXPECT_TRUE(buffer.erase_forward());
  EXPECT_EQ(buffer.text(), std::string(kFlag) + "x");
}

TEST(EditBuffer, MovesByWholeCharacters) {
  EditBuffer buffer = with(std::string(kFamily) + "日" + std::string(kAccented));
  int steps = 0;
  while (buffer.left()) ++steps;
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(buffer.cursor(), 0u);
  EXPECT_TRUE(buffer.right());
  EXPECT_EQ(buffer.cursor(), kFamily.size());
}

TEST(EditBuffer, NeverStandsInsideACharacter) {
  EditBuffer buffer = with("e");
  buffer.line_start();
  buffer.right();
  buffer.insert("\xCC\x81");  // joins what is there
  EXPECT_EQ(buffer.cursor(), buffer.text().size());
  buffer.left();
  EXPECT_EQ(buffer.cursor(), 0u);
  // Taking out what stood between two parts makes one character of them.
  buffer = with("ex\xCC\x81");
  buffer.left();
  EXPECT_EQ(buffer.cursor(), 1u);
  buffer = with("👩x\u200D👧");
  buffer.line_start();
  buffer.right();
  buffer.insert("\u200D");
  EXPECT_EQ(grapheme_boundary(buffer.text(), buffer.cursor()), buffer.cursor());
}

TEST(EditBuffer, KnowsWords) {
  EditBuffer buffer = with("two words, größer_als 日本");
  buffer.word_left();
  buffer.word_left();
  EXPECT_EQ(buffer.text().substr(buffer.cursor()), "größer_als 日本");
  buffer.word_left();
  EXPECT_EQ(buffer.text().substr(buffer.cursor()), "words, größer_als 日本");
  buffer.word_right();
  EXPECT_EQ(buffer.text().substr(buffer.cursor()), ", größer_als 日本");
  EXPECT_TRUE(buffer.kill_word());
  EXPECT_EQ(buffer.text(), "two words 日本");
  EXPECT_TRUE(buffer.kill_word_back());
  EXPECT_EQ(buffer.text(), "two  日本");
}

TEST(EditBuffer, PutsBackWhatWasCut) {
  EditBuffer buffer = with("one two/three four");
  buffer.kill_blank_word_back();
  buffer.kill_blank_word_back();  // follows: joins the first
  EXPECT_EQ(buffer.text(), "one ");
  buffer.yank();
  EXPECT_EQ(buffer.text(), "one two/three four");
  buffer.end_kill();
  buffer.line_start();
  buffer.kill_word();
  buffer.line_end();
  buffer.yank();
  EXPECT_EQ(buffer.text(), " two/three fourone");
  buffer.kill_to_line_start();
  EXPECT_TRUE(buffer.empty());
}

TEST(EditBuffer, TransposesWholeCharacters) {
  EditBuffer buffer = with("a日" + std::string(kFlag));
  EXPECT_TRUE(buffer.transpose());
  EXPECT_EQ(buffer.text(), "a" + std::string(kFlag) + "日");
  buffer.line_start();
  EXPECT_FALSE(buffer.transpose());
}

TEST(EditBuffer, HasLines) {
  EditBuffer buffer = with("first line\nab\nthird 日本");
  EXPECT_TRUE(buffer.line_up());
  EXPECT_EQ(buffer.cursor(), std::string("first line\nab").size());
  EXPECT_TRUE(buffer.line_up());
  EXPECT_EQ(buffer.cursor(), 2u);
  EXPECT_FALSE(buffer.line_up());
  buffer.line_end();
  buffer.kill_to_line_end();  // at the end: the line feed
  EXPECT_EQ(buffer.text(), "first lineab\nthird 日本");
  EXPECT_TRUE(buffer.line_down());
  EXPECT_FALSE(buffer.line_down());
  buffer.kill_to_line_start();
  EXPECT_EQ(buffer.text().find("first lineab\n"), 0u);
}

TEST(EditBuffer, TakesNoMoreThanItsLimit) {
  EditBuffer buffer(6);
  EXPECT_EQ(buffer.insert("abcd"), 0u);
  EXPECT_EQ(buffer.insert("日本"), 6u);  // three bytes each: two are left
  EXPECT_EQ(buffer.text(), "abcd");
  EXPECT_EQ(buffer.insert("xyz"), 1u);
  EXPECT_EQ(buffer.text(), "abcdxy");
}

}  // namespace
}  // namespace quarrel
