// What a search found, as JSON: also of rows that others have stored, with whatever they please.
#include "ingest/found_json.h"

#include <gtest/gtest.h>

#include <string>

namespace quarrel {
namespace {

FoundText with_metadata(std::string metadata) {
  return {.id = 1, .state = TextState::found, .text = "a", .metadata = std::move(metadata)};
}

TEST(FoundJson, MetadataIsJsonAgainWhereItCanBeRead) {
  EXPECT_EQ(found_json(with_metadata(R"({"b":[1,{"c":null}],"a":"x"})"))["metadata"].dump(),
            R"({"b":[1,{"c":null}],"a":"x"})");
  EXPECT_EQ(found_json(with_metadata("7"))["metadata"], 7);
  for (const std::string& text : {std::string("a word"), std::string("{\"a\":1} x"), std::string("{\"a\":1e999}"),
                                  std::string("{\"a\":1}\0", 8), std::string(65, '[') + std::string(65, ']')}) {
    EXPECT_EQ(found_json(with_metadata(text))["metadata"], text);
  }
  EXPECT_FALSE(found_json(with_metadata("")).contains("metadata"));
}

// If each name were compared with all before it, this would take minutes.
TEST(FoundJson, WideMetadataIsRead) {
  std::string wide = "{\"name\":1";
  for (int i = 0; i < 500'000; ++i) wide += ",\"" + std::to_string(i) + "\":0";
  wide += "}";
  const nlohmann::ordered_json object = found_json(with_metadata(wide));
  EXPECT_EQ(object["metadata"].size(), 500'001u);
  EXPECT_EQ(object["metadata"].dump(), wide);
}

// A message may be as large as half a gigabyte, of which a tree of values would be many times as large.
TEST(FoundJson, MetadataThatIsTooLargeStaysAText) {
  const std::string list = "[" + std::string(std::size_t{8} << 20, ' ') + "]";
  EXPECT_EQ(found_json(with_metadata(list))["metadata"], list);
}

TEST(FoundJson, ColumnsComeBehindWhatIsOurs) {
  FoundText found = with_metadata("{}");
  found.source = "s";
  found.columns = {{"kind", "x"}, {"score", "theirs"}, {"kind", "y"}, {"page", "2"}};
  const nlohmann::ordered_json object = found_json(found);
  EXPECT_EQ(object.dump(), R"({"score":0.0,"id":1,"text":"a","source":"s","metadata":{},"kind":"x","page":"2"})");
}

TEST(FoundJson, ManyColumnsAreTaken) {
  FoundText found = with_metadata("{}");
  for (int i = 0; i < 500'000; ++i) found.columns.emplace_back(std::to_string(i), "");
  EXPECT_EQ(found_json(found).size(), 500'004u);
}

}  // namespace
}  // namespace quarrel
