// Texts cut into chunks: nothing lost, nothing too long, at the breaks that a reader would choose.
#include "ingest/chunker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "base/error.h"
#include "ingest/text_source.h"
#include "unit/gguf_support.h"

namespace quarrel::test {
namespace {

bool space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// A token a word, and one more for each six letters of it.
std::size_t words(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size();) {
    while (i < text.size() && space(text[i])) ++i;
    const std::size_t begin = i;
    while (i < text.size() && !space(text[i])) ++i;
    if (i > begin) count += 1 + (i - begin - 1) / 6;
  }
  return count;
}

std::vector<std::string> cut(std::string_view text, std::size_t tokens, std::size_t overlap) {
  std::vector<std::string> chunks;
  for (const Chunk& chunk : cut_into_chunks(text, {.tokens = tokens, .overlap = overlap}, words)) {
    chunks.emplace_back(text.substr(chunk.begin, chunk.end - chunk.begin));
  }
  return chunks;
}

using Texts = std::vector<std::string>;

TEST(Chunker, AShortTextIsOneChunkWithoutTheSpaceAroundIt) {
  EXPECT_EQ(cut("  one two\n\nthree \n", 10, 0), Texts{"one two\n\nthree"});
  EXPECT_EQ(cut("", 10, 0), Texts{});
  EXPECT_EQ(cut(" \n\t\r\n ", 10, 0), Texts{});
}

TEST(Chunker, ParagraphsStayTogetherAndEndChunks) {
  const std::string text = "a b c d\n\ne f g\n\nh i j k l m";
  EXPECT_EQ(cut(text, 8, 0), (Texts{"a b c d\n\ne f g", "h i j k l m"}));
  EXPECT_EQ(cut("a b c d\r\n\r\ne f g\r\n\r\nh i j k l m", 8, 0), (Texts{"a b c d\r\n\r\ne f g", "h i j k l m"}));
}

TEST(Chunker, SentencesAndLinesEndChunksWhereNoParagraphDoes) {
  EXPECT_EQ(cut("a b c d e. f g h i j k", 7, 0), (Texts{"a b c d e.", "f g h i j k"}));
  EXPECT_EQ(cut("a b c d e\nf g h i j k", 7, 0), (Texts{"a b c d e", "f g h i j k"}));
  EXPECT_EQ(cut("a b c d e f g h i", 4, 0), (Texts{"a b c d", "e f g h", "i"}));
}

// A heading's end is no reason for a chunk of one word.
TEST(Chunker, ABreakTooNearIsNotTaken) {
  EXPECT_EQ(cut("title\n\nb c d e f g h i j", 8, 0), (Texts{"title\n\nb c d e f g h", "i j"}));
}

TEST(Chunker, ChunksOverlap) {
  EXPECT_EQ(cut("a b c d e f g h i j", 4, 2), (Texts{"a b c d", "c d e f", "e f g h", "g h i j"}));
}

TEST(Chunker, AWordThatIsTooLongIsCutBetweenCharacters) {
  const std::string word = "äöüäöüäöüäöüäöüäöüäöüäöü";  // two bytes each
  const Texts chunks = cut(word, 2, 0);
  std::string joined;
  for (const std::string& chunk : chunks) {
    EXPECT_TRUE(is_utf8(chunk)) << chunk;
    EXPECT_LE(words(chunk), 2u);
    joined += chunk;
  }
  EXPECT_GT(chunks.size(), 1u);
  EXPECT_EQ(joined, word);
}

// A vocabulary that makes one token of anything must not make one chunk of a whole file.
TEST(Chunker, BytesAreBoundedToo) {
  const std::string text(100'000, 'x');
  const auto chunks = cut_into_chunks(text, {.tokens = 10, .overlap = 2}, [](std::string_view) { return 1u; });
  EXPECT_GT(chunks.size(), 100u);
  EXPECT_EQ(chunks.back().end, text.size());
}

TEST(Chunker, OptionsThatMakeNoSenseAreRefused) {
  expect_error(ErrorKind::usage, {"half"}, [] { cut("a", 8, 5); });
  expect_error(ErrorKind::usage, {"token"}, [] { cut("a", 0, 0); });
}

// Whatever the text: all of it but white space is in the chunks, in order, none too long, and they are the same again.
TEST(Chunker, RandomTexts) {
  std::mt19937 random(7);
  const auto pick = [&](std::size_t below) { return random() % below; };
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const std::size_t pieces = pick(120);
    for (std::size_t i = 0; i < pieces; ++i) {
      static const std::string kPieces[] = {" ", "\n", "\n\n", ". ", "a", "word", "überlang", "日本", "\t", "\r\n"};
      text += kPieces[pick(10)];
    }
    const std::size_t tokens = 2 + pick(12);
    const std::size_t overlap = pick(tokens / 2 + 1);
    const auto chunks = cut_into_chunks(text, {.tokens = tokens, .overlap = overlap}, words);
    std::size_t covered = 0;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const Chunk& chunk = chunks[i];
      ASSERT_LT(chunk.begin, chunk.end);
      const std::string_view part = std::string_view(text).substr(chunk.begin, chunk.end - chunk.begin);
      EXPECT_TRUE(is_utf8(part));
      EXPECT_FALSE(space(part.front()) || space(part.back()));
      EXPECT_LE(words(part), tokens);
      for (std::size_t at = covered; at < chunk.begin; ++at) EXPECT_TRUE(space(text[at])) << at;
      EXPECT_GT(chunk.end, covered);
      covered = chunk.end;
      if (overlap == 0 && i > 0) {
        EXPECT_GE(chunk.begin, chunks[i - 1].end);
      }
    }
    for (std::size_t at = covered; at < text.size(); ++at) EXPECT_TRUE(space(text[at])) << at;
    EXPECT_EQ(cut_into_chunks(text, {.tokens = tokens, .overlap = overlap}, words), chunks);
  }
}

}  // namespace
}  // namespace quarrel::test
