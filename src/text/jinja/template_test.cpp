#include "text/jinja/template.h"

#include <gtest/gtest.h>

#include "core/json.h"

namespace slime::text::jinja {
namespace {

Expected<std::string, TemplateError> render(std::string_view source, const Limits& limits = {}) {
  return Template::parse(source).render({}, {.limits = limits, .now = {}});
}

std::string text_of(std::string_view source) {
  auto text = render(source);
  return text ? *text : "error: " + text.error().message;
}

TemplateErrorKind error_of(std::string_view source, const Limits& limits = {}) {
  const auto text = render(source, limits);
  EXPECT_FALSE(text.has_value()) << source;
  return text ? TemplateErrorKind::kRefused : text.error().kind;
}

std::string repeat(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// What the real Jinja2 gives: tools/generate/jinja_cases.py.
TEST(JinjaTemplate, EqualsJinja2OnTheRecordedCases) {
  const json::value golden = read_json_file(SLIME_SOURCE_DIR "/tests/golden/jinja_cases.json");
  Variables variables;
  for (const auto& member : golden.at("variables").as_object()) {
    variables.emplace_back(member.key(), from_json(member.value()));
  }
  const RenderOptions options{.limits = {},
                              .now = std::chrono::local_days(std::chrono::year(2026) / 1 / 31)};
  for (const json::value& item : golden.at("cases").as_array()) {
    const json::object& expected = item.as_object();
    const std::string_view source = expected.at("template").as_string();
    SCOPED_TRACE(std::string_view(expected.at("name").as_string()));
    try {
      const auto text = Template::parse(source).render(variables, options);
      if (text) {
        ASSERT_TRUE(expected.contains("text")) << "rendered: " << *text;
        EXPECT_EQ(*text, std::string_view(expected.at("text").as_string()));
      } else {
        ASSERT_TRUE(expected.contains("error")) << text.error().message;
        EXPECT_EQ(to_string(text.error().kind), std::string_view(expected.at("error").as_string()))
            << text.error().message;
        if (expected.contains("message")) {
          EXPECT_EQ(text.error().message, std::string_view(expected.at("message").as_string()));
        }
      }
    } catch (const SyntaxError& error) {
      ASSERT_TRUE(expected.contains("error")) << error.message;
      EXPECT_EQ(std::string_view(expected.at("error").as_string()), "syntax") << error.message;
    }
  }
}

TEST(JinjaTemplate, AnErrorNamesItsLine) {
  const auto text = render("a\n{% if true %}\n  {{ 'x' }}\n  {{ missing.field }}\n{% endif %}");
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().kind, TemplateErrorKind::kUndefined);
  EXPECT_EQ(text.error().message, "'missing' is undefined");
  EXPECT_EQ(text.error().line, 4);
}

TEST(JinjaTemplate, ASyntaxErrorNamesItsLine) {
  try {
    Template::parse("a\n\n{% if x %}\n{{ 1 + }}{% endif %}");
    FAIL() << "parsed";
  } catch (const SyntaxError& error) {
    EXPECT_EQ(error.line, 4);
    EXPECT_EQ(error.message, "an expression expected, not }}");
  }
}

TEST(JinjaTemplate, ImportsAreRefusedByName) {
  try {
    Template::parse("{% include 'other' %}");
    FAIL() << "parsed";
  } catch (const SyntaxError& error) {
    EXPECT_NE(error.message.find("one file"), std::string::npos);
  }
}

TEST(JinjaTemplate, EndlessLoopsEndAtTheStepLimit) {
  const std::string nested =
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
  EXPECT_EQ(error_of(nested, {.steps = 100'000}), TemplateErrorKind::kLimit);
}

TEST(JinjaTemplate, EndlessRecursionEndsAtTheDepthLimit) {
  EXPECT_EQ(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), TemplateErrorKind::kLimit);
}

TEST(JinjaTemplate, ADoublingTextEndsAtTheByteLimit) {
  EXPECT_EQ(error_of("{% set ns = namespace(s='ab') %}{% for i in range(90) %}{% set ns.s = ns.s + "
                     "ns.s %}{% endfor %}"),
            TemplateErrorKind::kLimit);
  EXPECT_EQ(error_of("{{ 'a' * 99999999999 }}"), TemplateErrorKind::kLimit);
  EXPECT_EQ(error_of("{{ 2 ** 200 }}"), TemplateErrorKind::kLimit);
  EXPECT_EQ(error_of("{{ ('a' * 1000000).replace('', 'b' * 1000000) }}"),
            TemplateErrorKind::kLimit);
  EXPECT_EQ(error_of("{{ 'a' | center(99999999999) }}"), TemplateErrorKind::kLimit);
  EXPECT_EQ(error_of("{{ '%99999999999d' % 1 }}"), TemplateErrorKind::kLimit);
  EXPECT_EQ(error_of("{{ [1] | tojson(indent=99999999999) }}"), TemplateErrorKind::kLimit);
}

TEST(JinjaTemplate, WhatABuiltinIsGivenIsPaidForHoweverLittleItMakes) {
  const auto repeated = [](const std::string& expression) {
    return "{% set big = 'a' * 1000000 %}{% for i in range(10000) %}{% set x = " + expression +
           " %}{% endfor %}";
  };
  for (const char* expression :
       {"'b'.strip(big)", "'b'|trim(big)", "''.removeprefix(big)", "'b'.partition(big)",
        "big.partition('a')", "big|int", "big|float", "'a'.split(big)", "big|first",
        "[]|tojson(indent=big)", "[]|tojson(separators=(big, big))", "big.format()",
        "strftime_now(big)", "{}[big]", "namespace()[big]", "{}.get(big)"}) {
    EXPECT_EQ(error_of(repeated(expression), {.steps = 1'000'000, .bytes = 100'000'000}),
              TemplateErrorKind::kLimit)
        << expression;
  }
}

TEST(JinjaTemplate, WhetherATupleCanBeAKeyIsPaidFor) {
  EXPECT_EQ(error_of("{% set ns = namespace(t=(1,)) %}{% for i in range(18) %}"
                     "{% set ns.t = (ns.t, ns.t) %}{% endfor %}"
                     "{% for i in range(10) %}{% set x = {}.get(ns.t) %}{% endfor %}",
                     {.steps = 1'000'000}),
            TemplateErrorKind::kLimit);
}

TEST(JinjaTemplate, StrippingManyCharactersFromALongTextIsQuick) {
  // Compared one by one these were 10^12 steps.
  EXPECT_EQ(text_of("{{ ('a' * 1000000).strip('b' * 1000000 ~ 'a')|length }}"), "0");
}

TEST(JinjaTemplate, TooMuchOutputIsALimitError) {
  EXPECT_EQ(error_of("{% for i in range(1000) %}0123456789{% endfor %}", {.output_bytes = 1000}),
            TemplateErrorKind::kLimit);
}

TEST(JinjaTemplate, ListsThatDoubleOrNestWithoutEndAreLimitErrors) {
  EXPECT_EQ(error_of("{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = "
                     "[ns.l] %}{% endfor %}"),
            TemplateErrorKind::kLimit);
  EXPECT_EQ(error_of("{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, "
                     "ns.l] %}{% endfor %}"),
            TemplateErrorKind::kLimit);
}

TEST(JinjaTemplate, DeepSourceIsASyntaxErrorNotAStackOverflow) {
  for (const std::string& source :
       {"{{ " + repeat("(", 100'000), "{{ " + repeat("[", 100'000),
        "{{ " + repeat("-", 100'000) + "1 }}", "{{ " + repeat("not ", 100'000) + "1 }}",
        repeat("{% if 1 %}", 100'000), "{{ a" + repeat(".b", 100'000) + " }}",
        "{{ 1" + repeat(" + 1", 100'000) + " }}", "{{ 1" + repeat(" if 1 else 1", 100'000) + " }}",
        "{% set " + repeat("(", 100'000), "{{ x" + repeat("|upper", 100'000) + " }}"}) {
    EXPECT_THROW(Template::parse(source), SyntaxError) << source.substr(0, 20);
  }
}

TEST(JinjaTemplate, ANamespaceMayHoldItself) {
  EXPECT_EQ(text_of("{% set ns = namespace(x=1) %}{% set ns.me = ns %}{{ ns.me.me.x }}"), "1");
}

TEST(JinjaTemplate, AMacroOutlivesTheLoopThatDefinedIt) {
  EXPECT_EQ(
      text_of("{% set ns = namespace() %}{% for i in [1, 2] %}{% macro f() %}{{ i }}{% endmacro %}"
              "{% set ns.f = f %}{% endfor %}{{ ns.f() }}"),
      "2");
}

TEST(JinjaTemplate, ChangingAValueIsRefusedWithAHint) {
  const auto text = render("{% set l = [] %}{{ l.append(1) }}");
  ASSERT_FALSE(text);
  EXPECT_NE(text.error().message.find("use + to build new ones"), std::string::npos);
}

TEST(JinjaTemplate, PrefixAndSuffixTestsOfOtherEnginesWork) {
  EXPECT_EQ(text_of("{{ 'abc' is startingwith 'ab' }} {{ 'abc' is endingwith('ab') }}"),
            "True False");
}

std::string shown(std::string_view source, std::string_view json) {
  const auto text =
      Template::parse(source).render({{"x", from_json(parse_json(json, "test"))}}, {});
  return text ? *text : "error: " + text.error().message;
}

// json.loads and then json.dumps or str of Python 3.11.
TEST(JinjaTemplate, PrintsNumbersOfJsonAsPythonDoes) {
  const std::string numbers =
      "[1.10, 1E5, -0, -0.0, 1e400, 1e16, 12345678901234567890123, "
      "1234567890123456789012345678901234567890123]";
  EXPECT_EQ(shown("{{ x | tojson }}", numbers),
            "[1.1, 100000.0, 0, -0.0, Infinity, 1e+16, 12345678901234567890123, "
            "1234567890123456789012345678901234567890123]");
  EXPECT_EQ(shown("{{ x }}", numbers),
            "[1.1, 100000.0, 0, -0.0, inf, 1e+16, 12345678901234567890123, "
            "1234567890123456789012345678901234567890123]");
}

TEST(JinjaTemplate, ComparesLongIntegersByTheirValue) {
  const std::string two =
      "[1234567890123456789012345678901234567890123, "
      "1234567890123456789012345678901234567890124]";
  EXPECT_EQ(shown("{{ x[0] < x[1] }} {{ x[0] == x[0] }} {{ -5 < x[0] }} {{ x[1] > 1e30 }}", two),
            "True True True True");
  EXPECT_EQ(shown("{{ x|sort|first == x[0] }} {{ x[0] is integer }} {{ x[0] is number }}", two),
            "True True True");
  EXPECT_EQ(shown("{{ x + 1 }}", "1234567890123456789012345678901234567890123"),
            "error: an integer of more than 128 bits");
  EXPECT_EQ(shown("{{ x == 9007199254740992.0 }} {{ x > 9007199254740992.0 }}", "9007199254740993"),
            "False True");
}

// Each of these took minutes when work was charged by other measures than what is done.
TEST(JinjaTemplate, SearchesAndReplacesInLinearTime) {
  EXPECT_EQ(text_of("{{ ('a'*4000000+'b') in ('a'*8000000) }}"), "False");
  EXPECT_EQ(text_of("{{ ('a'*8000000).replace('a'*4000000+'b','c')|length }}"), "8000000");
  EXPECT_EQ(text_of("{{ ('a'*2000000).count('a'*1000000+'b') }}"), "0");
  EXPECT_EQ(text_of("{{ ('a'*2000000).rfind('b'+'a'*1000000) }}"), "-1");
  EXPECT_EQ(text_of("{{ ('a'*2000000).split('a'*1000000+'b')|length }}"), "1");
  EXPECT_EQ(text_of("{{ ('a'*2000000).rsplit('b'+'a'*1000000, 3)|length }}"), "1");
  EXPECT_EQ(text_of("{{ ('a'*2000000).rpartition('b'+'a'*1000000)[0]|length }}"), "0");
}

TEST(JinjaTemplate, ChargesComparisonsByWhatTheyCompare) {
  const std::string lists =
      "{%- set ns = namespace(l=[]) -%}{%- for i in range(1000) -%}{%- set a = [1]*500 -%}"
      "{%- set ns.l = ns.l + [[a]*500] -%}{%- endfor -%}";
  for (const char* work :
       {"{%- for i in range(1000) -%}{%- set x = ns.l|max -%}{%- endfor -%}",
        "{%- for i in range(1000) -%}{%- set x = ns.l|sort -%}{%- endfor -%}",
        "{%- for i in range(1000) -%}{%- set x = 7 in ns.l -%}{%- set y = ns.l|unique|list -%}"
        "{%- endfor -%}"}) {
    const TemplateErrorKind kind = error_of(lists + work);
    EXPECT_TRUE(kind == TemplateErrorKind::kLimit || kind == TemplateErrorKind::kType) << work;
  }
  EXPECT_EQ(error_of("{%- set t = 'a'*100000000 -%}{%- for i in range(100000) -%}"
                     "{%- set x = t|length -%}{%- set y = t[:5] -%}{%- endfor -%}"),
            TemplateErrorKind::kLimit);
}

TEST(JinjaTemplate, SlicesTextsWithoutAListOfTheirCharacters) {
  EXPECT_EQ(
      text_of("{{ 'h\u00e9llo'[1:3] }} {{ 'hello'[::-1] }} {{ 'hello'[-3:] }} {{ 'hello'[::2] }}"
              " {{ 'hello'[4:1:-2] }} {{ 'hello'[9:] }}{{ 'hello'[3:1] }}{{ 'hello'[:-9:-1] }}"),
      "\u00e9l olleh llo hlo ol olleh");
}

TEST(JinjaTemplate, SplitsFromTheRightAsPythonDoes) {
  EXPECT_EQ(text_of("{{ 'a--b--c'.rsplit('--', 1) }} {{ 'aaa'.rsplit('aa', 5) }}"
                    " {{ '--a'.rsplit('--', 3) }} {{ 'a'.rsplit('--', 3) }}"),
            "['a--b', 'c'] ['a', ''] ['', 'a'] ['a']");
}

TEST(JinjaTemplate, KnowsTheNamesThatItLooksUpOnAnyPath) {
  const Template parsed = Template::parse(
      "{% if false %}{{ enable_thinking }}{% endif %}{% set ns = namespace(x=1) %}"
      "{% for m in messages if m.role is not in skipped %}{{ m.text | default(other) }}{% endfor %}"
      "{% macro say(text, end=mark) %}{{ text }}{% endmacro %}");
  EXPECT_EQ(parsed.names(),
            (std::set<std::string, std::less<>>{"enable_thinking", "m", "mark", "messages",
                                                "namespace", "other", "skipped", "text"}));
}

}  // namespace
}  // namespace slime::text::jinja
