// Hits with what is stored of them.
#include "ingest/lookup.h"

#include <gtest/gtest.h>

#include "support/fake_longbow.h"

namespace quarrel::test {
namespace {

TEST(Lookups, HitsComeWithTheirTexts) {
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
  EXPECT_EQ(found[1].state, TextState::found);
  EXPECT_EQ(find_texts(store, "texts", {.vector = question, .k = 1}).size(), 1u);
}

class Lookup : public testing::Test {
 protected:
  void fill(std::int64_t rows, std::int64_t step = 1) {
    store_.exists = true;
    store_.dimension = 1;
    for (std::int64_t i = 0; i < rows; ++i) {
      store_.rows.push_back({.id = i * step, .text = "text " + std::to_string(i * step), .vector = {0}});
    }
  }
  std::vector<FoundText> find(std::int32_t k) { return find_texts(store_, "texts", {.vector = question_, .k = k}); }

  FakeLongbow store_;
  const std::vector<float> question_{0};
};

// Each call makes the store look at all of its rows.
TEST_F(Lookup, NeighboursShareACall) {
  fill(1000);
  const auto found = find(1000);
  ASSERT_EQ(found.size(), 1000u);
  for (const FoundText& each : found) EXPECT_EQ(each.text, "text " + std::to_string(each.id));
  EXPECT_EQ(store_.scans, 1);
}

TEST_F(Lookup, HitsThatLieFarApartHaveCallsOfTheirOwn) {
  fill(50, 100'000);
  const auto found = find(50);
  ASSERT_EQ(found.size(), 50u);
  for (const FoundText& each : found) EXPECT_EQ(each.text, "text " + std::to_string(each.id));
  EXPECT_EQ(store_.scans, 50);
}

TEST_F(Lookup, AnyFailureIsTheSearchs) {
  fill(20, 100'000);
  store_.fault = Fault::lose;
  store_.fault_at = 7;
  EXPECT_THROW(find(20), LongbowError);
}

TEST_F(Lookup, AStopEndsAllOfIt) {
  fill(20, 100'000);
  std::stop_source stop;
  store_.on_scan = [&](const std::vector<RowFilter>&) {
    stop.request_stop();
    return store_.rows;
  };
  try {
    find_texts(store_, "texts", {.vector = question_, .k = 20}, stop.get_token());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::cancelled);
  }
}

// Whatever the store sends: rows that nobody asked for are not those of a hit, and they end.
TEST_F(Lookup, OnlyRowsThatWereAskedForAreBelieved) {
  fill(3, 100'000);
  store_.on_scan = [](const std::vector<RowFilter>&) {
    return std::vector<FakeRow>(10'000, FakeRow{.id = 77, .text = "somebody else's"});
  };
  for (const FoundText& each : find(3)) {
    EXPECT_EQ(each.state, TextState::gone);
    EXPECT_EQ(each.text, "");
  }
}

TEST_F(Lookup, IdsThatCannotBeComparedLeaveTheScores) {
  fill(3);
  for (const char* type : {"uint64", ""}) {
    store_.id_column = type;
    const auto found = find(3);
    ASSERT_EQ(found.size(), 3u);
    for (const FoundText& each : found) {
      EXPECT_EQ(each.state, TextState::unreachable);
      EXPECT_FLOAT_EQ(each.score, 1);
    }
  }
  EXPECT_EQ(store_.scans, 0);
  store_.id_column = "string";  // in the order of letters a range means nothing
  EXPECT_EQ(find(3).front().state, TextState::found);
  EXPECT_EQ(store_.scans, 3);
}

TEST_F(Lookup, IdsBeyondAnyRowsAreGone) {
  fill(1);
  store_.rows.front().id = -1;  // as a hit 2^64 - 1
  EXPECT_EQ(find(1).front().state, TextState::gone);
  EXPECT_EQ(store_.scans, 0);
}

}  // namespace
}  // namespace quarrel::test
