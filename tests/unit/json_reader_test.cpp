// JSON from outside: the same values as the library's own builder makes, in time that grows with the text.
#include "base/json_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace quarrel {
namespace {

TEST(JsonReader, ReadsWhatTheLibraryReads) {
  for (const char* text :
       {"null", "7", "-7", "18446744073709551615", "1.5e3", "\"x\\u00e9\"", "[]", "{}", " [1,[true,[]],{}] ",
        R"({"b":{"z":1,"a":[{"x":1},{"x":2}]},"a":"\ud83d\ude00","c":[null,false,-0.0]})",
        R"({"a":1,"b":2,"a":{"c":1,"c":2},"\u0062":3})"}) {
    const JsonReading read = read_json(text);
    EXPECT_FALSE(read.fault) << text;
    const auto expected = nlohmann::ordered_json::parse(text);
    EXPECT_EQ(read.value, expected) << text;
    EXPECT_EQ(read.value.dump(), expected.dump()) << text;
    EXPECT_EQ(read.value.type(), expected.type()) << text;
  }
}

// If each name were compared with all before it, this would take many minutes.
TEST(JsonReader, AWideObjectIsReadInOneGo) {
  std::string text = "{\"name\":1";
  for (int i = 0; i < 1'000'000; ++i) text += ",\"" + std::to_string(i) + "\":0";
  text += "}";
  const JsonReading read = read_json(text);
  ASSERT_FALSE(read.fault);
  EXPECT_EQ(read.value.size(), 1'000'001u);
  text.back() = ',';
  text += "\"7\":8}";
  const JsonReading again = read_json(text);
  ASSERT_FALSE(again.fault);
  EXPECT_EQ(again.value.size(), 1'000'001u);
  EXPECT_EQ(again.value["7"], 8);
}

TEST(JsonReader, FaultsSayWhatAndWhere) {
  const auto fault_of = [](std::string_view text, const JsonLimits& limits = {}) {
    const JsonReading read = read_json(text, limits);
    EXPECT_TRUE(read.value.is_null()) << text;
    return read.fault.value_or(JsonFault{.detail = "no fault"});
  };
  const JsonFault syntax = fault_of("[1,,2]");
  EXPECT_EQ(syntax.flaw, JsonFlaw::syntax);
  EXPECT_EQ(syntax.at, 4u);
  EXPECT_NE(syntax.detail.find("unexpected ','"), std::string::npos) << syntax.detail;
  for (const std::string_view text : {"", "{", "[1] 2", "{\"a\":\"\xff\"}"}) {
    EXPECT_EQ(fault_of(text).flaw, JsonFlaw::syntax) << text;
    EXPECT_NE(fault_of(text).detail, "no fault") << text;
  }
  const JsonFault zero = fault_of(std::string_view("{}\0{", 4));
  EXPECT_EQ(zero.flaw, JsonFlaw::syntax);
  EXPECT_EQ(zero.at, 3u);

  EXPECT_EQ(fault_of("[1e999]").flaw, JsonFlaw::number);
  EXPECT_EQ(fault_of("[[[1]]]", {.levels = 2}).flaw, JsonFlaw::nesting);
  EXPECT_EQ(fault_of(std::string(1'000'000, '[')).flaw, JsonFlaw::nesting);
  EXPECT_EQ(fault_of(R"([{"a":1,"b":1,"c":1}])", {.members = 2}).flaw, JsonFlaw::members);
  const JsonFault repeated = fault_of(R"({"b":1,"a":1,"a":2})", {.repeated = RepeatedNames::refused});
  EXPECT_EQ(repeated.flaw, JsonFlaw::repeated);
  EXPECT_EQ(repeated.detail, "a");
}

TEST(JsonReader, LimitsCanBeReached) {
  EXPECT_FALSE(read_json("[[1]]", {.levels = 2}).fault);
  EXPECT_FALSE(read_json(std::string(64, '[') + std::string(64, ']')).fault);
  EXPECT_FALSE(read_json(R"([{"a":1,"b":1},{"a":2,"b":2}])", {.members = 2, .repeated = RepeatedNames::refused}).fault);
}

TEST(JsonReader, ANameThatComesTwiceIsFoundWithoutComparingAllWithAll) {
  std::vector<std::string> texts;
  for (int i = 0; i < 1100; ++i) texts.push_back("k" + std::to_string(i));
  std::vector<std::string_view> names(texts.begin(), texts.end());
  std::size_t compared = 0;
  const auto less = [&](std::string_view a, std::string_view b) {
    ++compared;
    return a < b;
  };
  EXPECT_FALSE(repeated_name(names, less));
  EXPECT_LT(compared, 40 * names.size());
  names.emplace_back("k7");
  EXPECT_EQ(repeated_name(names, less).value_or(""), "k7");
}

}  // namespace
}  // namespace quarrel
