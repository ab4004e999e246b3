// Real templates render byte for byte as the original does.
#include "unit/chat_template_support.h"

namespace quarrel {
namespace {

class GoldenTemplate : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTemplate, RendersEveryCaseExactly) {
  const ChatTemplate chat = ChatTemplate::compile(golden_source(GetParam()));
  const Json all = golden_cases(GetParam());
  for (const auto& [name, expected] : all.items()) {
    SCOPED_TRACE(name);
    const Json variables = golden_variables(expected.at("input"));
    if (expected.contains("text")) {
      EXPECT_EQ(chat.render(variables, kGoldenClock).text, expected.at("text").get<std::string>());
      continue;
    }
    const std::string wanted = expected.at("error").get<std::string>();
    try {
      chat.render(variables, kGoldenClock);
      ADD_FAILURE() << "rendered, but should have failed with " << wanted;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      const std::string prefix = "TemplateError: ";
      if (wanted.starts_with(prefix)) {
        EXPECT_NE(std::string(error.what()).find(wanted.substr(prefix.size())), std::string::npos) << error.what();
      }
    }
  }
  EXPECT_EQ(all.size(), 7u);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTemplate, testing::ValuesIn(golden_names()), [](const auto& tested) {
  std::string name = tested.param;
  std::replace_if(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

TEST(GoldenTemplates, AllTwelveAreThere) { EXPECT_EQ(golden_names().size(), 12u); }

TEST(GoldenTemplates, ATemplateCanBeRenderedAgain) {
  const ChatTemplate chat = ChatTemplate::compile(golden_source("Qwen-Qwen3-0.6B"));
  const Json variables = golden_variables(golden_cases("Qwen-Qwen3-0.6B").at("tools").at("input"));
  EXPECT_EQ(chat.render(variables, kGoldenClock).text, chat.render(variables, kGoldenClock).text);
  EXPECT_EQ(chat.source(), golden_source("Qwen-Qwen3-0.6B"));
}

}  // namespace
}  // namespace quarrel
