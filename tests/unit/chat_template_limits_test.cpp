// A template cannot crash, hang or eat memory, and an error says where it stands.
#include <sys/resource.h>

#include "unit/chat_template_support.h"

namespace quarrel {
namespace {

bool failed_with(const std::string& result, const std::string& part) {
  return result.starts_with("error: ") && result.find(part) != std::string::npos;
}

std::string repeat(const std::string& text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

TEST(TemplateLimits, TheThreeKnownSeedsEndInAnError) {
  EXPECT_PRED2(failed_with, render_or_error("{% macro a(x) %}{{ a(x) }}{% endmacro %}{{ a(1) }}", Json::object()),
               "deep");
  const std::string doubling =
      "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}";
  EXPECT_PRED2(failed_with, render_or_error(doubling, Json::object()), "memory");
  EXPECT_PRED2(failed_with, render_or_error("{% for i in range(1000000000) %}x{% endfor %}", Json::object()), "range");
}

TEST(TemplateLimits, FuelEndsLongLoops) {
  TemplateLimits limits;
  limits.steps = 1000;
  const std::string loops = "{% for i in range(100) %}{% for j in range(100) %}{% endfor %}{% endfor %}";
  EXPECT_PRED2(failed_with, render_or_error(loops, Json::object(), limits), "1000 steps");
  EXPECT_EQ(render_or_error("{% for i in range(10) %}{% endfor %}", Json::object(), limits), "");
  const std::string growing = "{% set l = [1] %}{% for i in l %}{% set _ = l.append(1) %}{% endfor %}";
  EXPECT_PRED2(failed_with, render_or_error(growing, Json::object()), "steps");
}

TEST(TemplateLimits, WorkInsideOneStepTakesFuelToo) {
  // Each turn is a handful of steps but touches a megabyte.
  const Json variables = {{"big", std::string(1 << 20, 'a')}};
  for (const std::string work :
       {"'b' in big", "big.find('ab')", "big.rfind('ba')", "big | length", "big == big ~ ''", "big.count('b')",
        "big.replace('b', 'c')", "big[5:6]", "big.split('b') | length", "big | upper | length"}) {
    const std::string source = "{% for i in range(100000) %}{% set x = " + work + " %}{% endfor %}";
    const std::string result = render_or_error(source, variables);
    EXPECT_TRUE(failed_with(result, "steps") || failed_with(result, "memory")) << work << ": " << result;
  }
}

TEST(TemplateLimits, HugeResultsAreRefusedBeforeTheyAreMade) {
  const char* sources[] = {
      "{{ 'a' * 10**9 }}",
      "{{ 'a' * 10**18 }}",
      "{{ 'abc' * 9223372036854775807 }}",
      "{{ [0] * 10**9 }}",
      "{{ '%999999999d' % 1 }}",
      "{{ '%*d' % (2000000000, 1) }}",
      "{{ '%99999999999999999999d' % 1 }}",
      "{{ '%.999999999f' % 1.5 }}",
      "{{ '{:999999999}'.format(1) }}",
      "{{ '{:>999999999}'.format('x') }}",
      "{{ 'x' | center(10**9) }}",
      "{{ 'x'.ljust(10**12) }}",
      "{{ 'x'.zfill(10**12) }}",
      "{{ 'a\nb' | indent(10**9) }}",
      "{{ {'a': 1} | tojson(indent=10**9) }}",
      "{{ [1] | batch(10**9, 0) | list }}",
      "{{ [1] | slice(10**9) | list }}",
      "{{ 9999999999 ** 9999999999 }}",
      "{{ 10 ** 100 }}",
      "{{ range(-9223372036854775807, 9223372036854775807) }}",
      "{% set x = 'a' * 60000000 %}{{ x.replace('a', 'bbbbbbbb') }}",
      "{% set x = 'a' * 1000000 %}{{ x | list | join(x) }}",
      "{% set x = 'a' * 30000000 %}{{ x.split('a') | length }}",
  };
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  for (const char* source : sources) {
    const std::string result = render_or_error(source, Json::object());
    EXPECT_TRUE(result.starts_with("error: ")) << source << " gave " << result.substr(0, 80);
  }
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
#if !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 200 * 1024);  // KiB: the memory limit, its doubling and some room
#else
  EXPECT_GE(after.ru_maxrss, before.ru_maxrss);
#endif
  EXPECT_EQ(render_or_error("{{ 2.5 | round(10**9) }}{{ 2.5 | round(-10**9) }}", Json::object()), "2.50.0");
}

TEST(TemplateLimits, OutputIsBounded) {
  TemplateLimits limits;
  limits.output_bytes = 100;
  EXPECT_EQ(render_or_error("{{ 'x' * 100 }}", Json::object(), limits).size(), 100u);
  EXPECT_PRED2(failed_with, render_or_error("{{ 'x' * 101 }}", Json::object(), limits), "longer than 100 bytes");
  EXPECT_PRED2(failed_with, render_or_error("{% for i in range(99) %}ab{% endfor %}", Json::object(), limits),
               "100 bytes");
}

TEST(TemplateLimits, SourceIsBounded) {
  TemplateLimits limits;
  limits.source_bytes = 10;
  EXPECT_EQ(render_or_error("0123456789", Json::object(), limits), "0123456789");
  EXPECT_PRED2(failed_with, render_or_error("01234567890", Json::object(), limits), "11 bytes");
}

TEST(TemplateLimits, DeepSourcesAreRefusedByTheParser) {
  const std::size_t many = 100'000;
  EXPECT_PRED2(failed_with,
               render_or_error("{{ " + repeat("(", many) + "1" + repeat(")", many) + " }}", Json::object()), "deep");
  EXPECT_PRED2(failed_with, render_or_error("{{ " + repeat("[", many) + repeat("]", many) + " }}", Json::object()),
               "deep");
  EXPECT_PRED2(failed_with, render_or_error("{{ " + repeat("-", many) + "1 }}", Json::object()), "deep");
  EXPECT_PRED2(failed_with, render_or_error("{{ " + repeat("not ", many) + "1 }}", Json::object()), "deep");
  EXPECT_PRED2(failed_with, render_or_error("{{ " + repeat("1 if 1 else ", many / 2) + "1 }}", Json::object()), "deep");
  EXPECT_PRED2(failed_with, render_or_error("{{ x" + repeat(".a", many) + " }}", Json::object()), "levels");
  EXPECT_PRED2(failed_with, render_or_error("{{ x" + repeat("|e", many) + " }}", Json::object()), "levels");
  EXPECT_PRED2(failed_with, render_or_error("{{ x" + repeat("()", many) + " }}", Json::object()), "levels");
  EXPECT_PRED2(failed_with, render_or_error("{{ x" + repeat("[0]", many) + " }}", Json::object()), "levels");
  EXPECT_PRED2(failed_with, render_or_error(repeat("{% if 1 %}", many / 10), Json::object()), "deep");
  EXPECT_PRED2(failed_with,
               render_or_error("{% set " + repeat("(", many) + "x" + repeat(")", many) + " = 1 %}", Json::object()),
               "deep");
  // Long chains of one operator are not deep.
  EXPECT_EQ(render_or_error("{{ 1" + repeat(" + 1", 5000) + " }}", Json::object()), "5001");
  EXPECT_EQ(render_or_error("{{ 'a'" + repeat(" ~ 'b'", 5000) + " }}", Json::object()).size(), 5001u);
  EXPECT_EQ(render_or_error("{% if 0 %}" + repeat("{% elif 0 %}", 5000) + "{% else %}x{% endif %}", Json::object()),
            "x");
}

TEST(TemplateLimits, DeepAndSharedValuesAreHarmless) {
  const std::string nest =
      "{% set ns = namespace(v=[]) %}{% for i in range(5000) %}{% set ns.v = [ns.v] %}{% endfor %}";
  EXPECT_EQ(render_or_error(nest + "ok", Json::object()), "ok");
  for (const std::string use : {"{{ ns.v }}", "{{ ns.v | tojson }}", "{{ ns.v == [ns.v] }}", "{{ ns.v < [ns.v] }}"}) {
    EXPECT_PRED2(failed_with, render_or_error(nest + use, Json::object()), "deep");
  }
  const std::string tuples =
      "{% set ns = namespace(v=()) %}{% for i in range(5000) %}{% set ns.v = (ns.v,) %}{% endfor %}";
  EXPECT_PRED2(failed_with, render_or_error(tuples + "{{ {ns.v: 1} }}", Json::object()), "deep");
  // Two to the hundredth elements, all the same.
  const std::string shared =
      "{% set ns = namespace(v=(1,)) %}{% for i in range(100) %}{% set ns.v = (ns.v, ns.v) %}{% endfor %}";
  for (const std::string use : {"{{ ns.v }}", "{{ ns.v | tojson }}", "{{ {ns.v: 1} }}"}) {
    EXPECT_TRUE(render_or_error(shared + use, Json::object()).starts_with("error: ")) << use;
  }
  const std::string cycle = "{% set l = [] %}{% set _ = l.append(l) %}";
  EXPECT_EQ(render_or_error(cycle + "{{ l | length }}", Json::object()), "1");
  EXPECT_PRED2(failed_with, render_or_error(cycle + "{{ l }}", Json::object()), "deep");
  Json deep = 1;
  for (int i = 0; i < 300; ++i) deep = Json::array({std::move(deep)});
  EXPECT_PRED2(failed_with, render_or_error("{{ v }}", {{"v", deep}}), "deep");
  const std::string brackets = repeat("[", 300) + repeat("]", 300);
  EXPECT_PRED2(failed_with, render_or_error("{{ v | from_json }}", {{"v", brackets}}), "deep");
}

TEST(TemplateLimits, ManyMessagesFit) {
  Json variables = golden_variables(Json::object());
  for (int i = 0; i < 500; ++i) {
    variables["messages"].push_back({{"role", "user"}, {"content", "question " + std::string(500, 'q')}});
    variables["messages"].push_back({{"role", "assistant"}, {"content", "answer " + std::string(500, 'a')}});
  }
  for (const std::string& name : golden_names()) {
    if (name.starts_with("NousResearch")) continue;  // wants tools
    EXPECT_FALSE(render_or_error(golden_source(name), variables).starts_with("error: ")) << name;
  }
}

TEST(TemplateLimits, AddingUpALongTextIsLinear) {
  const std::string source =
      "{% set ns = namespace(s='') %}{% for i in range(20000) %}{% set ns.s = ns.s + 'twenty bytes of text' %}{% "
      "endfor %}"
      "{{ ns.s | length }}";
  EXPECT_EQ(render_or_error(source, Json::object()), "400000");
}

TEST(TemplateErrors, NameLineAndColumn) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n\n  {{ x.y }}", "error: template line 3, column 7: 'x' is undefined"},
      {"{{ 1 +\n  'a' }}", "error: template line 1, column 6: '+' does not work on an int and a str"},
      {"ü{% nosuch %}", "error: template line 1, column 5: there is no tag 'nosuch'"},
      {"\n{% if x %}", "error: template line 2, column 4: a block is not closed: 'endif' is missing"},
      {"{{ 'abc' | nosuch }}", "error: template line 1, column 12: there is no filter 'nosuch'"},
      {"{{ 'a\nb", "error: template line 1, column 4: a string is not closed"},
      {"\r\n{% include 'x' %}",
       "error: template line 2, column 4: 'include' is not allowed: a chat template stands alone"},
      {"{% for a, b in [1] %}{% endfor %}", "error: template line 1, column 8: cannot iterate over an int"},
      {"{{ none() }}", "error: template line 1, column 4: None cannot be called"},
      {"{{ raise_exception('Only <|two|> roles!') }}", "error: Only <|two|> roles!"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(render_or_error(source, Json::object()), expected) << source;
}

TEST(TemplateErrors, VariablesMustBeAnObject) {
  EXPECT_TRUE(render_or_error("x", Json::array()).starts_with("error: "));
  EXPECT_THROW(ChatTemplate::compile("x").render(Json::object(), TemplateClock{2026, 13, 1, 0, 0, 0}), Error);
}

TEST(TemplateClock, ReadsDates) {
  const TemplateClock clock = TemplateClock::parse("2024-02-29");
  EXPECT_EQ(clock.year, 2024);
  EXPECT_EQ(clock.month, 2);
  EXPECT_EQ(clock.day, 29);
  for (const char* wrong : {"", "2024-2-29", "2023-02-29", "2024-13-01", "2024-00-10", "abcd-ef-gh", "2024-02-29x"}) {
    EXPECT_THROW(TemplateClock::parse(wrong), Error) << wrong;
  }
  EXPECT_GE(TemplateClock::now().year, 2024);
}

TEST(TemplateClock, IsPrintedAsAsked) {
  const ChatTemplate chat = ChatTemplate::compile(
      "{{ strftime_now('%A %a %d %-d %e %B %b %Y %y %m %-m %H %I %-I %M %S %p %j %F %T %% %Q') }}");
  EXPECT_EQ(chat.render(Json::object(), {2024, 3, 5, 15, 4, 9}).text,
            "Tuesday Tue 05 5  5 March Mar 2024 24 03 3 15 03 3 04 09 PM 065 2024-03-05 15:04:09 % %Q");
  EXPECT_EQ(chat.render(Json::object(), {2000, 12, 31, 0, 0, 0}).text,
            "Sunday Sun 31 31 31 December Dec 2000 00 12 12 00 12 12 00 00 AM 366 2000-12-31 00:00:00 % %Q");
}

}  // namespace
}  // namespace quarrel
