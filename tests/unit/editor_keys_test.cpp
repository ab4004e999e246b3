// Bytes of a terminal to keys, hostile ones included.

#include <gtest/gtest.h>

#include "app/key_decoder.h"

namespace quarrel {
namespace {

constexpr std::size_t kLimit = 1000;

std::vector<KeyPress> decode(std::string_view bytes, bool finish = true) {
  KeyDecoder decoder(kLimit);
  std::vector<KeyPress> whole;
  decoder.push(bytes, whole);
  if (finish) decoder.finish(whole);
  EXPECT_TRUE(!finish || !decoder.pending());
  return whole;
}

std::vector<Key> keys_of(std::string_view bytes) {
  std::vector<Key> keys;
  for (const KeyPress& press : decode(bytes)) keys.push_back(press.key);
  return keys;
}

std::string text_of(std::string_view bytes) {
  std::string text;
  for (const KeyPress& press : decode(bytes)) text += press.key == Key::text ? press.text : "?";
  return text;
}

TEST(KeyDecoder, KnowsTheKeysOfManyTerminals) {
  const std::vector<std::pair<std::string_view, Key>> cases{
      {"\x1b[A", Key::up},
      {"\x1bOB", Key::down},
      {"\x1b[C", Key::right},
      {"\x1b[H", Key::home},
      {"\x1b[1~", Key::home},
      {"\x1b[7~", Key::home},
      {"\x1bOF", Key::end},
      {"\x1b[4~", Key::end},
      {"\x1b[3~", Key::erase},
      {"\x1b[1;5D", Key::word_left},
      {"\x1b[1;5C", Key::word_right},
      {"\x1b[5D", Key::word_left},
      {"\x1b[1;2C", Key::right},
      {"\x1b[3;5~", Key::erase_word},
      {"\x1b"
       "b",
       Key::word_left},
      {"\x1b"
       "f",
       Key::word_right},
      {"\x1b"
       "d",
       Key::erase_word},
      {"\x1b\x7f", Key::erase_word_back},
      {"\x1b\r", Key::line_feed},
      {"\x01", Key::home},
      {"\x12", Key::search},
      {"\r", Key::enter},
      {"\n", Key::enter},
      {"\x7f", Key::backspace},
      {"\x03", Key::interrupt},
      {"\x1b", Key::escape},
  };
  for (const auto& [bytes, key] : cases) {
    EXPECT_EQ(keys_of(bytes), std::vector<Key>{key}) << testing::PrintToString(std::string(bytes));
  }
}

TEST(KeyDecoder, SequencesMayComeInPieces) {
  KeyDecoder decoder(kLimit);
  std::vector<KeyPress> keys;
  for (const char byte : std::string_view("\x1b[1;5Dgrö\x1b[200~a\rb\x1b[201~")) {
    decoder.push(std::string_view(&byte, 1), keys);
  }
  ASSERT_EQ(keys.size(), 3u);
  EXPECT_EQ(keys[0].key, Key::word_left);
  EXPECT_EQ(keys[1].text, "grö");
  EXPECT_EQ(keys[2].key, Key::paste);
  EXPECT_EQ(keys[2].text, "a\nb");
}

TEST(KeyDecoder, APasteIsOneText) {
  const auto keys = decode("\x1b[200~one\r\ntwo\rthree\n\tfour\x03\x1b[31m\x07\xC2\x85 ü\xFF\x1b[201~x");
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].key, Key::paste);
  EXPECT_EQ(keys[0].text, "one\ntwo\nthree\n\tfour[31m ü\uFFFD");
  EXPECT_EQ(keys[1].text, "x");
}

TEST(KeyDecoder, APasteIsBounded) {
  for (const std::size_t size : {kLimit - 1, kLimit, kLimit + 1, kLimit + 5, kLimit + 6, kLimit + 7, 3 * kLimit}) {
    const auto keys = decode("\x1b[200~" + std::string(size, 'x') + "\x1b[201~y");
    ASSERT_EQ(keys.size(), 2u) << size;
    EXPECT_EQ(keys[0].text, std::string(std::min(size, kLimit), 'x')) << size;
    EXPECT_EQ(keys[0].dropped, size - std::min(size, kLimit));
    EXPECT_EQ(keys[1].text, "y");
  }
  const auto open = decode("\x1b[200~never ends");
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].text, "never ends");
}

TEST(KeyDecoder, WhatIsNoTextIsMarkedOrDropped) {
  EXPECT_EQ(text_of("a\xFF\xFE"
                    "b"),
            "a\uFFFD\uFFFDb");
  EXPECT_EQ(text_of("\xE6\x97"), "\uFFFD");       // cut
  EXPECT_EQ(text_of("\xE6\x97x"), "\uFFFDx");     // broken off
  EXPECT_EQ(text_of("\xC3\xC3\xBC"), "\uFFFDü");  // begun twice
  EXPECT_EQ(text_of("a\xC2\x9B"
                    "b"),
            "ab");  // a C1 control
  EXPECT_EQ(keys_of("\xC3\x03"), (std::vector<Key>{Key::text, Key::interrupt}));
}

TEST(KeyDecoder, EndlessSequencesEnd) {
  // Answers of a terminal to questions that nobody asked.
  EXPECT_EQ(text_of("\x1b]11;rgb:0000/0000/0000\x07x"), "x");
  EXPECT_EQ(text_of("\x1bP1$r0m\x1b\\x"), "x");
  EXPECT_EQ(text_of("\x1b[?62;4cx\x1b[12;34Ry"), "xy");
  // None of these ends by itself; Ctrl-C gets through, and so does what follows.
  for (const std::string_view start : {"\x1b[", "\x1b]", "\x1bP", "\x1b_"}) {
    const std::string endless = std::string(start) + std::string(100'000, '1');
    EXPECT_EQ(decode(endless + "\x03").back().key, Key::interrupt);
    EXPECT_EQ(decode(std::string(start) + "11\x03").back().key, Key::interrupt);
    EXPECT_EQ(decode(std::string(start) + "11\r").back().key, Key::enter);
  }
}

}  // namespace
}  // namespace quarrel
