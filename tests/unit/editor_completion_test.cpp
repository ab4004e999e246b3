// What Tab offers in the chat.

#include <gtest/gtest.h>

#include <fstream>

#include "app/chat_completion.h"
#include "support/temp_dir.h"

namespace quarrel {
namespace {

const ChatWords kWords{.commands = {"set", "save", "show", "model"},
                       .parameters = {"temperature", "top_k", "top_p"},
                       .subjects = {"info", "template"},
                       .values =
                           [](std::string_view name) {
                             return name == "overflow" ? std::vector<std::string>{"drop", "stop"}
                                                       : std::vector<std::string>();
                           },
                       .models = [] { return std::vector<std::string>{"default", "qwen:0.5b"}; }};

using Texts = std::vector<std::string>;

Texts offered(std::string_view text) { return complete_chat(kWords, text, text.size()).candidates; }

TEST(ChatCompletion, KnowsWhatStandsWhere) {
  EXPECT_EQ(offered("/s"), (Texts{"save", "set", "show"}));
  EXPECT_EQ(offered("/sh"), Texts{"show"});
  EXPECT_EQ(offered("/set t"), (Texts{"temperature", "top_k", "top_p"}));
  EXPECT_EQ(offered("/set parameter top_"), (Texts{"top_k", "top_p"}));
  EXPECT_EQ(offered("/set overflow "), (Texts{"drop", "stop"}));
  EXPECT_EQ(offered("/set parameter overflow  s"), Texts{"stop"});
  EXPECT_EQ(complete_chat(kWords, "/set overflow s", 15).begin, 14u);
  EXPECT_EQ(offered("/show "), (Texts{"info", "template"}));
  EXPECT_EQ(offered("/model q"), Texts{"qwen:0.5b"});
  EXPECT_EQ(complete_chat(kWords, "/set top", 8).begin, 5u);
  EXPECT_EQ(complete_chat(kWords, "/set  xx", 5).begin, 5u);  // only what is before the cursor counts
}

TEST(ChatCompletion, LeavesTheRestAlone) {
  for (const char* text : {"", "s", "hello /s", "/set temperature 0", "/frob x", "/set\nt"}) {
    EXPECT_TRUE(offered(text).empty()) << text;
  }
}

TEST(ChatCompletion, FindsFiles) {
  const test::TempDir folder;
  for (const char* name : {"talk one.json", "talk two.json", ".hidden"}) std::ofstream(folder / name) << "";
  std::filesystem::create_directory(folder / "tales");
  const std::string base = (folder / "").string();
  EXPECT_EQ(offered("/load " + base + "ta"), (Texts{base + "tales/", base + "talk one.json", base + "talk two.json"}));
  EXPECT_EQ(offered("/save " + base + "talk o"), Texts{base + "talk one.json"});
  EXPECT_EQ(offered("/load " + base + ".h"), Texts{base + ".hidden"});
  EXPECT_TRUE(offered("/load " + base + "nowhere/x").empty());
}

}  // namespace
}  // namespace quarrel
