// Small templates against what the original makes of them (tools/make_template_test_data.py writes the table), and the
// few places where this interpreter goes its own way.
#include "unit/chat_template_support.h"

namespace quarrel {
namespace {

Json case_table() { return Json::parse(read_text(std::filesystem::path(QUARREL_TEST_DATA) / "template_cases.json")); }

TEST(TemplateCases, MatchTheOriginal) {
  const Json table = case_table();
  const Json& variables = table.at("variables");
  EXPECT_GT(table.at("cases").size(), 300u);
  // The sandbox of the original refuses to change a list; here it works, on a copy that dies with the rendering.
  const std::string changing = "{{ messages.append(1) }}";
  for (const Json& one : table.at("cases")) {
    const std::string source = one.at("template").get<std::string>();
    if (source == changing) continue;
    SCOPED_TRACE(one.at("subject").get<std::string>() + ": " + source);
    const std::string result = render_or_error(source, variables);
    if (one.contains("text")) {
      EXPECT_EQ(result, one.at("text").get<std::string>());
    } else {
      EXPECT_TRUE(result.starts_with("error: ")) << "gave " << result << ", not " << one.at("error");
    }
  }
}

}  // namespace
}  // namespace quarrel
