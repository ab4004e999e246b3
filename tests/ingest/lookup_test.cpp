// Hits with what is stored of them.
#include "ingest/lookup.h"

#include <gtest/gtest.h>

#include "support/fake_longbow.h"

namespace quarrel::test {
namespace {

TEST(Lookup, HitsComeWithTheirTexts) {
  FakeLongbow store;
  store.exists = true;
  store.rows = {{.id = 7, .text = "far", .columns = {"", "s", ""}, .vector = {0, 1}},
                {.id = 9, .text = "near", .columns = {"doc", "s", R"({"line":2})"}, .vector = {1, 0}}};
  const std::vector<float> question{1, 0};
  const auto found = find_texts(store, "texts", {.vector = question, .k = 2});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].id, 9u);
  EXPECT_EQ(found[0].text, "near");
  EXPECT_EQ(found[0].doc_id, "doc");
  EXPECT_EQ(found[0].source, "s");
  EXPECT_EQ(found[0].metadata, R"({"line":2})");
  EXPECT_GT(found[0].score, found[1].score);
  EXPECT_EQ(found[1].text, "far");
  EXPECT_TRUE(found[1].stored);
  EXPECT_EQ(find_texts(store, "texts", {.vector = question, .k = 1}).size(), 1u);
}

}  // namespace
}  // namespace quarrel::test
