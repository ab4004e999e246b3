// Templates and texts made to do harm: ways out of the sandbox, broken text, and random damage to real templates.
#include <random>

#include "unit/chat_template_support.h"

namespace quarrel {
namespace {

TEST(TemplateSandbox, NoWayOutLeadsAnywhere) {
  const char* objects[] = {
      "''",      "[]",        "{}",   "()",          "1",        "none", "true", "messages",        "messages[0]",
      "range",   "namespace", "dict", "cycler('a')", "joiner()", "self", "loop", "raise_exception", "strftime_now",
      "''.join", "m"};
  const char* steps[] = {"__class__",    "__mro__",    "__subclasses__", "__globals__",      "__init__",
                         "__builtins__", "__import__", "func_globals",   "gi_frame",         "f_back",
                         "mro",          "_module",    "__dict__",       "__getattribute__", "__reduce__"};
  const std::string prelude = "{% macro m() %}{% endmacro %}{% set messages = [{'a': 1}] %}";
  std::size_t payloads = 0;
  for (const std::string object : objects) {
    for (const std::string step : steps) {
      for (const std::string& source : {"{{ " + object + "." + step + " }}", "{{ " + object + "['" + step + "'] }}",
                                        "{{ " + object + " | attr('" + step + "') }}",
                                        "{{ [" + object + "] | map(attribute='" + step + "') | list }}"}) {
        ++payloads;
        const std::string result = render_or_error(prelude + source, Json::object());
        const bool inert = result.empty() || result == "[Undefined]" || result.starts_with("error: ");
        EXPECT_TRUE(inert) << source << " gave " << result;
      }
      const std::string deeper =
          render_or_error(prelude + "{{ " + object + "." + step + ".__base__ }}", Json::object());
      EXPECT_TRUE(deeper.starts_with("error: ")) << object << "." << step << " gave " << deeper;
    }
  }
  EXPECT_GE(payloads, 300u);
}

TEST(TemplateSandbox, KnownPayloadsAreRefused) {
  const char* payloads[] = {
      "{{ ''.__class__.__mro__[1].__subclasses__() }}",
      "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
      "{{ self.__init__.__globals__.__builtins__.__import__('os').popen('id').read() }}",
      "{{ lipsum.__globals__['os'].popen('id').read() }}",
      "{{ request.application.__globals__ }}",
      "{{ config.items() }}",
      "{{ url_for.__globals__ }}",
      "{{ ()|attr('__class__')|attr('__base__')|attr('__subclasses__')() }}",
      "{{ '{0.__class__.__mro__}'.format(1) }}",
      "{{ '%s' | format(''.__class__.__name__) }}",
      "{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
      "{% set x = joiner.__init__.__globals__ %}{{ x.os }}",
      "{% import 'os' as os %}{{ os.system('id') }}",
      "{% include '/etc/passwd' %}",
      "{% extends '/etc/passwd' %}",
      "{% from 'os' import system %}",
      "{{ open('/etc/passwd').read() }}",
      "{{ eval('1') }}",
      "{{ exec('1') }}",
      "{{ getattr('', '__class__') }}",
      "{{ __import__('os') }}",
      "{% debug %}",
      "{% do messages.append(1) %}",
      "{{ messages.__class__() }}",
      "{{ range.__self__.open }}",
      "{{ dict.fromkeys }}{{ dict.fromkeys('a') }}",
      "{{ ''.format.__self__.x }}",
      "{{ 'a'.encode('utf8').decode() }}",
      "{{ namespace().__class__() }}",
  };
  for (const char* payload : payloads) {
    const std::string result = render_or_error(payload, Json::object());
    EXPECT_TRUE(result.starts_with("error: ")) << payload << " gave " << result;
  }
}

TEST(TemplateHostile, ChangingListsAndDictsStaysInsideTheRendering) {
  const Json variables = {{"l", {1, 2, 3}}, {"d", {{"a", 1}}}};
  const std::pair<const char*, const char*> cases[] = {
      {"{% set _ = l.append(4) %}{{ l }}", "[1, 2, 3, 4]"},
      {"{% set _ = l.extend(l) %}{{ l }}", "[1, 2, 3, 1, 2, 3]"},
      {"{% set _ = l.insert(1, 'x') %}{% set _ = l.insert(-100, 'y') %}{{ l }}", "['y', 1, 'x', 2, 3]"},
      {"{{ l.pop() }}{{ l.pop(0) }}{{ l }}", "31[2]"},
      {"{{ l.pop(7) }}", "error: template line 1, column 5: pop is out of range"},
      {"{% set _ = l.remove(2) %}{% set _ = l.reverse() %}{{ l }}", "[3, 1]"},
      {"{% set _ = l.clear() %}{{ l }}", "[]"},
      {"{% set c = l.copy() %}{% set _ = c.append(9) %}{{ l }}{{ c }}", "[1, 2, 3][1, 2, 3, 9]"},
      {"{% set _ = d.update({'b': 2}, c=3) %}{{ d }}", "{'a': 1, 'b': 2, 'c': 3}"},
      {"{{ d.pop('a') }}{{ d.pop('a', 'none') }}{{ d }}", "1none{}"},
      {"{{ d.setdefault('a', 5) }}{{ d.setdefault('z', 5) }}{{ d }}", "15{'a': 1, 'z': 5}"},
      {"{% for i in l %}{% if i < 6 %}{% set _ = l.append(i + 3) %}{% endif %}{{ i }}{% endfor %}", "12345678"},
      {"{% for i in l %}{{ i }}{% set _ = l.clear() %}{{ loop.last }}{{ loop.nextitem }}{% endfor %}", "1True"},
      {"{% set d = {} %}{% for i in range(20) %}{% set _ = d.update({i ~ '': i}) %}{% endfor %}{{ d['17'] }}{{ "
       "d.pop('3') }}{{ '3' in d }}{{ d | length }}",
       "173False19"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(render_or_error(source, variables), expected) << source;
  EXPECT_EQ(variables.at("l").size(), 3u);
}

TEST(TemplateHostile, BytesThatAreNoTextPassThrough) {
  const std::string broken = "a\xff\xc3(\xed\xa0\x80\xf5z\xe2\x82";
  for (const std::string use :
       {"{{ x }}", "{{ x | trim }}", "{{ x[::-1][::-1] }}", "{{ x | list | join }}", "{{ (x ~ ' ').rstrip() }}"}) {
    EXPECT_EQ(render_or_error(use, {{"x", broken}}), broken) << use;
  }
  for (const std::string use :
       {"{{ x | upper }}", "{{ [x] }}", "{{ x | tojson }}", "{{ x.split() }}", "{{ x | title }}",
        "{{ x.splitlines() }}", "{{ x | e }}", "{{ x | wordcount }}", "{{ x.center(40, 'é') }}", "{{ '%5.2s' % x }}",
        "{{ x | from_json }}", "{{ x | urlencode }}"}) {
    render_or_error(use, {{"x", broken}});
  }
  EXPECT_EQ(render_or_error("{{ '" + broken + "' }}", Json::object()), broken);
}

TEST(TemplateHostile, NamesOfArgumentsMayGrowWhileTheyAreBound) {
  const std::string source =
      "{% set k = 'a' ~ 'b' %}{% set ns = namespace(k=k) %}"
      "{% macro m(x=ns.k + 'y' * 5000, ab=1, zz=2) %}{{ ab }}{{ x | length }}{% endmacro %}{{ m(**{k: 5}) }}";
  EXPECT_EQ(render_or_error(source, Json::object()), "55002");
}

// Small damage of the kinds that find parsers' weak spots.
std::string mutate(const std::string& source, const std::string& other, std::mt19937& random) {
  static const std::string kPieces[] = {
      "{{",          "}}",       "{%",     "%}",      "{#",     "#}",         "-",           "|",
      "(",           ")",        "[",      "]",       "{",      "}",          "'",           "\"",
      "\\",          ".",        ",",      ":",       "if ",    "else ",      "for x in ",   " is ",
      " not ",       "~",        "*",      "**",      "//",     "%",          "0",           "9223372036854775807",
      "1e308",       "messages", "loop.",  "\n",      "\xff",   "namespace(", "{% endif %}", "{% endfor %}",
      "{% macro m(", "|tojson",  "|join(", ".split(", "[::-1]", "|map(",      "range(99)"};
  std::string out = source;
  const auto below = [&random](std::size_t limit) {
    return static_cast<std::size_t>(random() % std::max<std::size_t>(limit, 1));
  };
  for (std::size_t rounds = 1 + below(4); rounds > 0; --rounds) {
    const std::size_t at = below(out.size());
    switch (below(6)) {
      case 0: out.insert(at, kPieces[below(std::size(kPieces))]); break;
      case 1: out.erase(at, 1 + below(8)); break;
      case 2: out.insert(at, out.substr(below(out.size()), below(60))); break;
      case 3: out.insert(at, other.substr(below(other.size()), below(60))); break;
      case 4: out.replace(at, 1 + below(4), kPieces[below(std::size(kPieces))]); break;
      default: out[at] = static_cast<char>(random() % 256); break;
    }
    if (out.empty()) out = "x";
  }
  return out;
}

TEST(TemplateHostile, DamagedRealTemplatesRenderOrFailButNeverCrash) {
  std::mt19937 random(20261115);
  const std::vector<std::string> names = golden_names();
  std::vector<std::string> sources;
  std::vector<Json> inputs;
  for (const std::string& name : names) {
    sources.push_back(golden_source(name));
    const Json cases = golden_cases(name);
    for (const char* one : {"tools", "unicode"}) inputs.push_back(golden_variables(cases.at(one).at("input")));
  }
  TemplateLimits limits;
  limits.steps = 50'000;
  std::size_t rendered = 0;
  std::size_t failed = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string source = mutate(sources[random() % sources.size()], sources[random() % sources.size()], random);
    const std::string result = render_or_error(source, inputs[random() % inputs.size()], limits);
    ++(result.starts_with("error: ") ? failed : rendered);
  }
  EXPECT_GT(rendered, 100u);
  EXPECT_GT(failed, 100u);
}

// Random expressions over values of every kind, so that every operator and filter meets every type.
TEST(TemplateHostile, EveryFilterTestAndMethodMeetsEveryKindOfValue) {
  const char* values[] = {"none",
                          "true",
                          "-3",
                          "2.5",
                          "''",
                          "'ab c'",
                          "[]",
                          "[1, 'a', none]",
                          "[[1, 2], [3, 4]]",
                          "{}",
                          "{'a': 1}",
                          "(1, 2)",
                          "missing",
                          "range(3)",
                          "u",
                          "messages",
                          "namespace(a=1)",
                          "1e308",
                          "'%s {} \xff'",
                          "9223372036854775807",
                          "joiner()",
                          "u.upper",
                          "messages | map('string')"};
  const char* filters[] = {"abs",
                           "attr('a')",
                           "batch(2)",
                           "capitalize",
                           "center(9)",
                           "count",
                           "default('x', true)",
                           "dictsort",
                           "escape",
                           "first",
                           "float",
                           "format(1)",
                           "from_json",
                           "groupby('role')",
                           "indent",
                           "int",
                           "items",
                           "join('-')",
                           "last",
                           "length",
                           "list",
                           "lower",
                           "map('upper')",
                           "max",
                           "min",
                           "reject",
                           "rejectattr('role')",
                           "replace('a', 'b')",
                           "reverse",
                           "round(1)",
                           "round(-1, 'ceil')",
                           "safe",
                           "select('string')",
                           "selectattr('role', 'eq', 'user')",
                           "slice(2)",
                           "sort",
                           "sort(attribute='role')",
                           "string",
                           "sum",
                           "title",
                           "tojson",
                           "tojson(indent=1, sort_keys=true)",
                           "trim",
                           "unique",
                           "upper",
                           "urlencode",
                           "wordcount"};
  const char* tests[] = {"defined", "string",    "none",  "mapping",        "iterable",     "sequence", "boolean",
                         "number",  "integer",   "float", "true",           "callable",     "eq(1)",    "lt('a')",
                         "in([1])", "in('abc')", "even",  "divisibleby(3)", "sameas(none)", "lower",    "filter"};
  const char* methods[] = {
      "get('a')",       "split('a', 1)", "rsplit()",        "strip('a')",        "items()",
      "keys()",         "values()",      "startswith('a')", "endswith(('a',))",  "replace('a', '')",
      "format(1)",      "append(1)",     "pop()",           "insert(0, 1)",      "extend('ab')",
      "update(a=2)",    "title()",       "find('a')",       "rindex('a')",       "count('a')",
      "join(['a'])",    "splitlines()",  "isdigit()",       "removeprefix('a')", "zfill(5)",
      "partition('a')", "index(1)",      "copy()"};
  const Json variables = golden_variables(golden_cases("Qwen-Qwen3-0.6B").at("tools").at("input"));
  std::size_t rendered = 0;
  const auto run = [&](const std::string& expression) {
    Json all = variables;
    all["u"] = "user <|x|>";
    if (!render_or_error("{{ " + expression + " }}", all).starts_with("error: ")) ++rendered;
  };
  for (const std::string value : values) {
    for (const std::string filter : filters) run("(" + value + ") | " + filter);
    for (const std::string test : tests) run("(" + value + ") is " + test);
    for (const std::string method : methods) run("(" + value + ")." + method);
    for (const std::string other : values) {
      for (const std::string op : {"+", "-", "*", "/", "//", "%", "**", "~", "==", "<", "in", "and"}) {
        run("(" + value + ") " + op + " (" + other + ")");
      }
      run("(" + value + ")[" + other + "]");
      run("(" + value + ")[" + other + ":]");
      run("(" + value + ")[::" + other + "]");
    }
  }
  EXPECT_GT(rendered, 1000u);
}

}  // namespace
}  // namespace quarrel
