// What the commands read and show: JSON from users, saved conversations, tables, numbers for people.

#include <gtest/gtest.h>

#include <fstream>

#include "app/conversation.h"
#include "app/input.h"
#include "app/progress_bar.h"
#include "app/terminal.h"
#include "app/text_table.h"
#include "base/error.h"
#include "support/temp_dir.h"

namespace quarrel {
namespace {

std::string refusal_of(std::string_view json) {
  try {
    parse_json(json, "the text");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    return error.what();
  }
  return {};
}

TEST(ParseJson, KeepsTheOrderOfKeys) {
  EXPECT_EQ(dump_json(parse_json(R"({"b":1,"a":2})", "x"), false), R"({"b":1,"a":2})");
}

TEST(ParseJson, TellsThePlaceOfAMistake) {
  EXPECT_NE(refusal_of("{\n  \"a\": 1,\n  b\n}").find("line 3, column 3"), std::string::npos);
  EXPECT_NE(refusal_of("").find("line 1, column 1"), std::string::npos);
  EXPECT_NE(refusal_of("[1, 2").find("line 1, column 6"), std::string::npos);
}

TEST(ParseJson, BoundsTheNesting) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(refusal_of(nested(128)), "");
  EXPECT_NE(refusal_of(nested(129)).find("128 levels"), std::string::npos);
  EXPECT_EQ(refusal_of("\"" + std::string(1000, '[') + "\\\"[\""), "");  // inside a string they are text
}

TEST(ParseJson, RefusesBytesThatAreNoText) { EXPECT_NE(refusal_of("\"\xff\""), ""); }

class ConversationFile : public testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(path_) << text; }
  std::string refusal() {
    try {
      load_conversation(path_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      return error.what();
    }
    return {};
  }

  test::TempDir folder_;
  std::filesystem::path path_ = folder_ / "talk.json";
};

TEST_F(ConversationFile, ComesBackAsItWas) {
  const Conversation talk{.system = "Be brief.", .messages = {{"user", "Grüße\n\"x\""}, {"assistant", ""}}};
  save_conversation(talk, path_);
  save_conversation(talk, path_);  // over an older one
  const Conversation back = load_conversation(path_);
  EXPECT_EQ(back.system, talk.system);
  ASSERT_EQ(back.messages.size(), 2u);
  EXPECT_EQ(back.messages[0].content, talk.messages[0].content);
  EXPECT_EQ(back.messages[1].role, "assistant");
}

TEST_F(ConversationFile, IsCheckedPartByPart) {
  const std::string head = R"({"format": "quarrel-conversation", "version": 1, )";
  for (const std::string& text :
       {std::string("[]"), std::string("{}"), std::string(R"({"format": 3})"),
        std::string(R"({"format": "quarrel-conversation", "version": 2, "messages": []})"), head + "\"messages\": 3}",
        head + R"("messages": [3]})", head + R"("messages": [{"role": "user"}]})",
        head + R"("messages": [{"role": 1, "content": "x"}]})", head + R"("system": 3, "messages": []})",
        head + R"("messages": [{"role": "root", "content": "x"}]})"}) {
    write(text);
    EXPECT_NE(refusal(), "") << text;
  }
}

TEST_F(ConversationFile, NeverReplacesAnotherFile) {
  write("dear diary");
  EXPECT_THROW(save_conversation({}, path_), Error);
  std::string line;
  std::getline(std::ifstream(path_) >> std::ws, line);
  EXPECT_EQ(line, "dear diary");
}

TEST(Conversation, PutsTheSystemPromptFirst) {
  const Conversation talk{.system = "S", .messages = {{"user", "U"}}};
  EXPECT_EQ(dump_json(talk.to_template(), false), R"([{"role":"system","content":"S"},{"role":"user","content":"U"}])");
}

TEST(HumanNumbers, AreShort) {
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.0 kB");
  EXPECT_EQ(human_bytes(999'949), "999.9 kB");
  EXPECT_EQ(human_bytes(999'950), "1.0 MB");
  EXPECT_EQ(human_bytes(98'362'432), "98.4 MB");
  EXPECT_EQ(human_duration(0.0123), "12ms");
  EXPECT_EQ(human_duration(3.25), "3.2s");
  EXPECT_EQ(human_duration(125), "2m05s");
}

TEST(ProgressBar, WritesALineInTenSecondsWhereThereIsNoTerminal) {
  testing::internal::CaptureStderr();
  ProgressBar::Clock::time_point now{std::chrono::hours(1)};
  {
    ProgressBar bar(ProgressUnit::items, [&] { return now; });
    for (int second = 0; second < 30; ++second) {
      const char* label = second < 12 ? "download" : second % 2 == 0 ? "verify" : "extract";
      for (std::uint64_t piece = 0; piece < 5; ++piece) {
        bar.show(label, 10 * static_cast<std::uint64_t>(second) + piece, 1000);
      }
      now += std::chrono::seconds(1);
    }
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "download: 0 of 1000\ndownload: 100 of 1000\nverify: 200 of 1000\n")
      << "another label is no reason for another line";
}

TEST(ProgressBar, ALineHasItsRates) {
  testing::internal::CaptureStderr();
  ProgressBar::Clock::time_point now{std::chrono::hours(1)};
  {
    ProgressBar bar(ProgressUnit::items, [&] { return now; });
    for (const std::uint64_t total : {100u, 0u}) {
      for (const std::uint64_t done : {0u, 5u}) {
        bar.show(total > 0 ? "a file" : "a pipe", done, total, "2 texts/s");
        now += std::chrono::seconds(10);
      }
    }
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "a file: 0 of 100\na file: 5 of 100, 2 texts/s\na pipe\na pipe: 2 texts/s\n");
}

TEST(TextTable, LinesColumnsUp) {
  TextTable table({{"NAME"}, {"N", TextTable::Side::right}, {"NOTE"}});
  table.add_row({"é", "5", ""});
  table.add_line("gap of 7 bytes");
  table.add_row({"longer", "100", "x"});
  EXPECT_EQ(table.text(), "NAME      N  NOTE\né         5\ngap of 7 bytes\nlonger  100  x\n");
}

TEST(TextTable, LeavesOutOptionalColumnsThatAreEmpty) {
  using Side = TextTable::Side;
  for (const bool used : {false, true}) {
    TextTable table({{"A", Side::left, true}, {"B"}, {"PROBLEM", Side::left, true}});
    table.add_row({used ? "a" : "", "b", ""});
    table.add_row({"", "bb", used ? "none" : ""});
    EXPECT_EQ(table.text(), used ? "A  B   PROBLEM\na  b\n   bb  none\n" : "B\nb\nbb\n");
  }
}

TEST(FieldLine, BreaksItsValueBelowItself) {
  EXPECT_EQ(field_line("name", "value", 8, 0), "  name  value\n");
  EXPECT_EQ(field_line("name", "", 8, 20), "  name\n");
  EXPECT_EQ(field_line("name", "one two three four", 8, 16), "  name  one two\n        three\n        four\n");
  EXPECT_EQ(field_line("name", "/a/path/that/is/too/long and more", 8, 16),
            "  name  /a/path/that/is/too/long\n        and more\n");
  EXPECT_EQ(field_line("a longer name", "é é", 8, 18), "  a longer name\n        é é\n");
  EXPECT_EQ(field_line("naïve", "x", 8, 18), "  naïve x\n");
  EXPECT_EQ(wrap_words("", "one two three", 0, 8), "one two\nthree\n");
}

TEST(WithoutControl, LeavesTextAlone) {
  EXPECT_EQ(without_control("Grüße\n\t🙂"), "Grüße\n\t🙂");
  EXPECT_EQ(without_control("a\x1b[31mb\r"), "a\xEF\xBF\xBD[31mb\xEF\xBF\xBD");
  EXPECT_EQ(without_control("\xC2\x9Bx\x7F"), "\xEF\xBF\xBDx\xEF\xBF\xBD");
  EXPECT_EQ(without_control("\xC2\xA0"), "\xC2\xA0");
}

}  // namespace
}  // namespace quarrel
