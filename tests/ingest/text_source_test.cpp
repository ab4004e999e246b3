// Texts from files that people, programs and enemies wrote.
#include "ingest/text_source.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "ingest/folder_source.h"
#include "ingest/line_source.h"
#include "support/temp_dir.h"
#include "unit/gguf_support.h"

namespace quarrel::test {
namespace {

class Sources : public testing::Test {
 protected:
  std::vector<TextRecord> read(TextSource& source) {
    std::vector<TextRecord> records;
    TextRecord record;
    while (source.next(record)) records.push_back(record);
    return records;
  }
  std::vector<TextRecord> lines(std::string_view content, LineSourceOptions options = {}) {
    write_file(folder_ / "in.txt", content);
    LineSource source(folder_ / "in.txt", std::move(options), keep_);
    return read(source);
  }
  std::vector<TextRecord> objects(std::string_view content, std::vector<std::string> columns = {}) {
    return lines(content, {.format = LineFormat::json, .columns = std::move(columns)});
  }
  static std::vector<std::string> texts(const std::vector<TextRecord>& records) {
    std::vector<std::string> result;
    for (const TextRecord& record : records) result.push_back(record.text);
    return result;
  }
  static std::size_t letters(std::string_view text) { return text.size(); }

  using Texts = std::vector<std::string>;
  TempDir folder_;
  std::vector<std::string> complaints_;
  UnusableText keep_ = [this](const std::string& message) { complaints_.push_back(message); };
};

TEST_F(Sources, LinesAreTextsWithTheirPlace) {
  using namespace std::literals;
  const auto all = lines("\xEF\xBB\xBFone\r\n\n  \ntwo\0x\nthree"sv);
  ASSERT_EQ(texts(all), (Texts{"one", "two\0x"s, "three"}));
  EXPECT_EQ(all[1].source, "in.txt");
  EXPECT_EQ(all[1].position, R"({"line":4})");
  EXPECT_EQ(all[1].place, "in.txt, line 4");
  EXPECT_TRUE(complaints_.empty());
}

TEST_F(Sources, BadLinesAreToldWithTheirNumbers) {
  const auto records =
      lines("good\n\xff\xfe\n" + std::string(200'000, 'x') + "\nfine\n" + std::string(101, 'y'), {.longest_line = 100});
  EXPECT_EQ(texts(records), (Texts{"good", "fine"}));
  ASSERT_EQ(complaints_.size(), 3u);
  EXPECT_EQ(complaints_[0], "in.txt, line 2: it is not UTF-8");
  EXPECT_EQ(complaints_[1], "in.txt, line 3: it is longer than 100 bytes");
  EXPECT_EQ(complaints_[2], "in.txt, line 5: it is longer than 100 bytes");
}

TEST_F(Sources, AComplaintMayEndTheReading) {
  write_file(folder_ / "in.txt", "good\n\xff\n");
  LineSource source(folder_ / "in.txt", {},
                    [](const std::string& message) { fail(ErrorKind::bad_input, "{}", message); });
  TextRecord record;
  EXPECT_TRUE(source.next(record));
  expect_error(ErrorKind::bad_input, {"line 2"}, [&] { source.next(record); });
}

TEST_F(Sources, ObjectsHaveIdsMetadataAndColumns) {
  const auto records = objects(R"({"id":"a","text":"one","year":1999,"tags":["x"],"who":"me"}
{"text":"two","id":7}
{"text":"three","who":null,"year":2.5}
)",
                               {"year", "who"});
  ASSERT_EQ(texts(records), (Texts{"one", "two", "three"}));
  EXPECT_EQ(records[0].id, "a");
  EXPECT_EQ(records[0].metadata, R"({"tags":["x"]})");
  EXPECT_EQ(records[0].columns, (Texts{"1999", "me"}));
  EXPECT_EQ(records[1].id, "7");
  EXPECT_EQ(records[1].metadata, "");
  EXPECT_EQ(records[1].columns, (Texts{"", ""}));
  EXPECT_EQ(records[2].columns, (Texts{"2.5", ""}));
}

TEST_F(Sources, BadObjectsAreToldWithTheirNumbers) {
  const std::string deep = R"({"text":"x","a":)" + std::string(100, '[') + std::string(100, ']') + "}";
  const auto records =
      objects("{\"text\":\"ok\",\"id\":1}\n{\"text\":\n[1]\n{\"id\":3}\n{\"text\":5}\n{\"text\":\" \"}\n" + deep +
              "\n{\"text\":\"x\",\"id\":1}\n{\"text\":\"x\",\"id\":{}}\n{\"text\":\"\\ud800\"}\nno\n{\"text\":\"x\","
              "\"id\":null}\n");
  EXPECT_EQ(texts(records), Texts{"ok"});
  ASSERT_EQ(complaints_.size(), 11u);
  const std::vector<std::pair<int, const char*>> expected{{2, "not valid JSON"},
                                                          {3, "not a JSON object"},
                                                          {4, "\"text\""},
                                                          {5, "\"text\""},
                                                          {6, "empty"},
                                                          {7, "deeper"},
                                                          {8, "line 1 too"},
                                                          {9, "neither a string"},
                                                          {10, "JSON"},
                                                          {11, "not valid JSON"},
                                                          {12, "neither a string"}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NE(complaints_[i].find("line " + std::to_string(expected[i].first) + ":"), std::string::npos)
        << complaints_[i];
    EXPECT_NE(complaints_[i].find(expected[i].second), std::string::npos) << complaints_[i];
  }
}

TEST_F(Sources, BadObjectsAreToldWithTheReason) {
  EXPECT_TRUE(objects("{\"text\":\"x\",}\n{\"text\":\"x\",\"a\":1e999}\n").empty());
  ASSERT_EQ(complaints_.size(), 2u);
  EXPECT_NE(complaints_[0].find("not valid JSON: column 13: "), std::string::npos) << complaints_[0];
  EXPECT_NE(complaints_[0].find("expected string literal"), std::string::npos) << complaints_[0];
  EXPECT_NE(complaints_[1].find("number overflow"), std::string::npos) << complaints_[1];
}

// If each name were compared with all before it, this would take minutes.
TEST_F(Sources, WideObjectsAreTaken) {
  std::string wide;
  for (int i = 0; i < 500'000; ++i) wide += ",\"" + std::to_string(i) + "\":0";
  const auto records = objects("{\"text\":\"one\"" + wide + "}\n", {"499999"});
  ASSERT_EQ(texts(records), Texts{"one"});
  EXPECT_EQ(records[0].columns, Texts{"0"});
  EXPECT_TRUE(records[0].metadata.starts_with(R"({"0":0,"1":0,)"));
}

TEST_F(Sources, OfANameThatComesTwiceTheLastCounts) {
  const auto records = objects(R"({"text":"one","a":1,"b":2,"text":"two","a":3})");
  ASSERT_EQ(texts(records), Texts{"two"});
  EXPECT_EQ(records[0].metadata, R"({"a":3,"b":2})");
}

TEST_F(Sources, ItIsReadAgain) {
  write_file(folder_ / "in.jsonl", "{\"text\":\"a\",\"id\":1}\n{\"text\":\"b\",\"id\":2}\n");
  LineSource source(folder_ / "in.jsonl", {.format = LineFormat::json}, keep_);
  const auto first = texts(read(source));
  EXPECT_EQ(source.counts().bytes, source.counts().total_bytes);
  ASSERT_TRUE(source.rewind());
  EXPECT_EQ(texts(read(source)), first);
  EXPECT_TRUE(complaints_.empty());  // its ids are not those of another line
  EXPECT_EQ(source.counts().texts, 2u);
}

TEST_F(Sources, WhatIsNotThereIsRefused) {
  expect_error(ErrorKind::not_found, {"gone"}, [&] { LineSource(folder_ / "gone", {}, keep_); });
  expect_error(ErrorKind::usage, {"folder"}, [&] { LineSource(folder_.path(), {}, keep_); });
  expect_error(ErrorKind::not_found, {"gone"}, [&] { FolderSource(folder_ / "gone", {}, letters, keep_); });
  write_file(folder_ / "file", "x");
  expect_error(ErrorKind::usage, {"not a folder"}, [&] { FolderSource(folder_ / "file", {}, letters, keep_); });
}

TEST_F(Sources, AFolderIsCutIntoChunks) {
  write_file(folder_ / "b.txt", "one two three four");
  write_file(folder_ / "a/deep.md", "first\n\nsecond");
  write_file(folder_ / "a/.hidden", "no");
  write_file(folder_ / ".git/config", "no");
  write_file(folder_ / "picture", std::string_view("\x89PNG\0", 5));
  write_file(folder_ / "latin", "\xe4\xf6");
  write_file(folder_ / "empty", " \n");
  write_file(folder_ / "large", std::string(2000, 'x'));
  FolderSource source(folder_.path(), {.chunks = {.tokens = 12, .overlap = 0}, .largest_file = 1000, .columns = 1},
                      letters, keep_);
  const auto records = read(source);
  ASSERT_EQ(texts(records), (Texts{"first", "second", "one two", "three four"}));
  EXPECT_EQ(records[1].source, "a/deep.md");
  EXPECT_EQ(records[1].position, R"({"offset":7,"bytes":6})");
  EXPECT_EQ(records[1].columns, Texts{""});
  EXPECT_EQ(source.counts().blank, 3u);
  EXPECT_EQ(complaints_, Texts{"large: it is larger than 1000 bytes"});
  ASSERT_TRUE(source.rewind());
  EXPECT_EQ(texts(read(source)), texts(records));
}

// A text is known again by what it is, not by where it stands.
TEST_F(Sources, KeysAreTheTextsOwn) {
  const auto before = lines("one\ntwo\n");
  const auto after = lines("zero\none\ntwo\n");
  EXPECT_EQ(key_of(before[0]), key_of(after[1]));
  EXPECT_FALSE(key_of(before[0]) == key_of(before[1]));
  const TextRecord record{.text = "t", .id = "i", .source = "s", .metadata = "m", .columns = {"c"}};
  for (const auto& change : {&TextRecord::text, &TextRecord::id, &TextRecord::source, &TextRecord::metadata}) {
    TextRecord other = record;
    other.*change += "x";
    EXPECT_FALSE(key_of(other) == key_of(record));
  }
  TextRecord moved = record;
  moved.id = "";
  moved.source = "si";
  EXPECT_FALSE(key_of(moved) == key_of(record));
}

}  // namespace
}  // namespace quarrel::test
