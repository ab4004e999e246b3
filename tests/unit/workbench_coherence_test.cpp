// Texts that read like answers pass; the noise of broken models does not.
#include <gtest/gtest.h>

#include <string>

#include "app/coherence.h"

namespace quarrel {
namespace {

bool coherent(const std::string& text) { return coherence_faults(measure_coherence(text), {}).empty(); }

std::string repeat(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

TEST(Coherence, PassesOrdinaryText) {
  EXPECT_TRUE(coherent("The capital of France is Paris. It lies on the Seine and has about two million inhabitants."));
  EXPECT_TRUE(coherent("Paris"));
  EXPECT_TRUE(coherent("Ha ha ha!"));
  EXPECT_TRUE(coherent("Naïve façade, 12 000 €, “quoted” — that is fine.\n\n* one\n* two\n* three\n"));
  EXPECT_TRUE(coherent("Столица Франции — Париж. Он стоит на реке Сене."));
  EXPECT_TRUE(coherent("フランスの首都はパリです。iPhoneも売っています。"));
  EXPECT_TRUE(coherent("프랑스의 수도는 파리입니다. 파리는 센 강 옆에 있습니다."));
  EXPECT_TRUE(coherent("عاصمة فرنسا هي باريس، وهي مدينة كبيرة."));
  EXPECT_TRUE(coherent("The Greek letter π stands for the ratio, and Δ for a difference in the argument."));
  EXPECT_TRUE(
      coherent("A family: \xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7 and a heart."));
}

TEST(Coherence, FindsLoops) {
  EXPECT_FALSE(coherent(repeat("I am a bot. ", 20)));
  EXPECT_FALSE(coherent("It begins well enough, but then " + repeat("and so on ", 30)));
  EXPECT_FALSE(coherent(repeat("a", 64)));
  EXPECT_FALSE(coherent(repeat("的", 64)));
  EXPECT_GT(measure_coherence(repeat("one two ", 16)).looped, 0.9);
}

TEST(Coherence, FindsRepetitionThatIsNoStrictLoop) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += std::to_string(i * 7919 % 97) + ". The answer to the question is not known. ";
  const Coherence coherence = measure_coherence(text);
  EXPECT_LT(coherence.looped, 0.5);
  EXPECT_GT(coherence.repeated, 0.6);
  EXPECT_FALSE(coherent(text));
}

TEST(Coherence, FindsMixedAlphabets) {
  EXPECT_FALSE(coherent("the של Wort 在 мыло ही för ประ words ندا της 한국 других"));
  EXPECT_FALSE(coherent("helloмир wordλόγος goodдень plain text follows here"));
  const Coherence coherence = measure_coherence("helloмир good");
  EXPECT_DOUBLE_EQ(coherence.mixed_words, 0.5);
  EXPECT_NEAR(coherence.foreign, 3.0 / 12.0, 1e-12);
}

TEST(Coherence, FindsCharactersThatNoTextHas) {
  EXPECT_EQ(measure_coherence("good\x01 text\x1b[2J").noise, 2);
  EXPECT_EQ(measure_coherence("not UTF-8: \xff\xfe").noise, 2);
  EXPECT_EQ(measure_coherence("replaced \xEF\xBF\xBD").noise, 1);
  EXPECT_EQ(measure_coherence("private \xEE\x80\x80").noise, 1);
  EXPECT_FALSE(coherent("good\x01 text"));
}

TEST(Coherence, WantsLetters) {
  EXPECT_FALSE(coherent(""));
  EXPECT_FALSE(coherent("12345 !!!"));
}

TEST(Coherence, LooksAtNoMoreThanItsBound) {
  const Coherence coherence = measure_coherence(repeat("x", 1 << 20));
  EXPECT_EQ(coherence.characters, static_cast<std::int64_t>(kMaxCoherenceCharacters));
}

TEST(Coherence, SaysWhichLimitAndByHowMuch) {
  const auto faults = coherence_faults({.letters = 4, .looped = 0.75}, {});
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_NE(faults.front().find("75.0 % (limit 50.0 %)"), std::string::npos) << faults.front();
}

}  // namespace
}  // namespace quarrel
