// The JSON that goes to the store and comes from it.
#include "flight/tickets.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace quarrel {
namespace {

using Json = nlohmann::json;

TEST(Tickets, AScanNamesItsDatasetAndFilters) {
  EXPECT_EQ(Json::parse(scan_ticket("a \"b\"/c", {})), Json::parse(R"({"name":"a \"b\"/c"})"));
  EXPECT_EQ(Json::parse(
                scan_ticket("d", {{"year", Comparison::less_or_equal, "1900"}, {"kind", Comparison::not_equal, "x"}})),
            Json::parse(R"({"name":"d","filters":[{"field":"year","operator":"<=","value":"1900"},
                                                  {"field":"kind","operator":"!=","value":"x"}]})"));
}

// The store's parser keeps another request's value for some of the fields that are left out.
TEST(Tickets, ASearchSaysEverything) {
  const std::vector<float> vector = {0.5f, -1.0f};
  const Json search = Json::parse(search_ticket("d", {.vector = vector, .k = 3}))["search"];
  EXPECT_EQ(search, Json::parse(R"({"dataset":"d","vector":[0.5,-1.0],"k":3,"filters":[],"local_only":false,
                                    "text_query":"","alpha":0.0,"graph_alpha":0.0,"include_vectors":false,
                                    "vector_format":""})"));
  EXPECT_EQ(Json::parse(search_body("d", {.vector = vector, .k = 3})), search);
  const Json hybrid =
      Json::parse(search_ticket("d", {.vector = vector, .text_query = "words", .alpha = 0.25}))["search"];
  EXPECT_EQ(hybrid["alpha"], 0.25);
  EXPECT_EQ(hybrid["text_query"], "words");
}

TEST(Tickets, FloatsComeBackAsTheyWere) {
  const std::vector<float> vector = {0.1f, 1e-38f, 3.4028235e38f, -1.17549435e-38f, 1.0f / 3.0f};
  const Json search = Json::parse(search_ticket("d", {.vector = vector}))["search"];
  EXPECT_EQ(search["vector"].get<std::vector<float>>(), vector);
}

TEST(Tickets, TextThatIsNotUtf8DoesNoHarm) {
  EXPECT_FALSE(scan_ticket("d", {{"kind", Comparison::equal, "\xFF\xFE"}}).empty());
}

TEST(Tickets, Criteria) {
  EXPECT_EQ(name_criteria(""), "");
  EXPECT_EQ(Json::parse(name_criteria("doc")),
            Json::parse(R"({"filters":[{"field":"name","operator":"contains","value":"doc"}]})"));
}

TEST(Answers, Readiness) {
  const auto ready = read_readiness(R"({"status":"READY","index_len":7})");
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->state, ReadyState::ready);
  EXPECT_EQ(ready->indexed, 7);
  const auto busy = read_readiness(R"({"status":"BUSY","reason":"index queue"})");
  ASSERT_TRUE(busy);
  EXPECT_EQ(busy->state, ReadyState::busy);
  EXPECT_FALSE(busy->indexed);
  EXPECT_EQ(busy->reason, "index queue");
  EXPECT_EQ(read_readiness(R"({"status":"NOT_FOUND","reason":"dataset not found"})")->state, ReadyState::missing);
  for (const char* strange : {"", "[]", "{}", "READY", R"({"status":3})", R"({"status":"WHAT"})", "{\"status\":"}) {
    EXPECT_FALSE(read_readiness(strange)) << strange;
  }
  EXPECT_FALSE(read_readiness(std::string(100'000, '[')));
}

TEST(Answers, Messages) {
  EXPECT_TRUE(asks_to_slow_down(R"({"status": "slow_down", "reason": "wal_pressure"})"));
  EXPECT_FALSE(asks_to_slow_down(R"({"status": "fine"})"));
  EXPECT_FALSE(asks_to_slow_down("slow_down"));
  EXPECT_EQ(acknowledged_rows(R"({"status":"acked","batch_id":1,"rows":12})"), 12u);
  EXPECT_FALSE(acknowledged_rows(R"({"status":"acked","batch_id":1})"));
  EXPECT_FALSE(acknowledged_rows(R"({"status":"acked","rows":-1})"));
  EXPECT_FALSE(acknowledged_rows(R"({"status":"failed","rows":1})"));
}

TEST(Filters, AreCheckedAgainstTheColumns) {
  const StoredSchema schema = {
      .columns = {{"id", "int64"}, {"price", "double"}, {"kind", "string"}, {"when", "timestamp[ns]"}}};
  EXPECT_NO_THROW(check_filters(
      {{"id", Comparison::equal, "-4"}, {"price", Comparison::less, "1.5"}, {"kind", Comparison::equal, ""}}, schema,
      "d"));
  for (const RowFilter& filter : std::vector<RowFilter>{{"id", Comparison::equal, "4.5"},
                                                        {"id", Comparison::equal, ""},
                                                        {"id", Comparison::equal, "99999999999999999999"},
                                                        {"price", Comparison::equal, "cheap"},
                                                        {"price", Comparison::equal, "nan"},
                                                        {"when", Comparison::equal, "0"},
                                                        {"colour", Comparison::equal, "red"}}) {
    EXPECT_THROW(check_filters({filter}, schema, "d"), Error) << filter.field << filter.value;
  }
}

}  // namespace
}  // namespace quarrel
