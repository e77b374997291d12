#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "text/grammar/grammar_record.h"
#include "text/packed_files_for_tests.h"

namespace slime::text {
namespace {

/// A line with `src_repeat` written out, and its texts: first those of `accept`, then those of `reject`.
json::object with_texts(const json::object& given) {
  json::object line = given;
  if (const auto* repeat = given.if_contains("src_repeat")) {
    const auto& parts = repeat->as_array();
    std::string before, after;
    for (int64_t i = 0; i < parts[3].as_int64(); ++i) {
      before += parts[0].as_string();
      after += parts[2].as_string();
    }
    line["src"] = before + std::string(parts[1].as_string()) + after;
  }
  json::array texts;
  if (const auto* groups = given.if_contains("accept")) {
    for (const json::value& group : groups->as_array()) {
      for (const json::value& text : group.as_array()) texts.push_back(text);
    }
  }
  if (const auto* refused = given.if_contains("reject")) {
    for (const json::value& text : refused->as_array()) texts.push_back(text);
  }
  line["texts"] = texts;
  return line;
}

void expect_texts(const json::object& given, const json::array& results) {
  std::size_t at = 0;
  const auto is_accepted = [&] { return results.at(at++).as_object().at("accepted").as_bool(); };
  if (const auto* groups = given.if_contains("accept")) {
    for (const json::value& group : groups->as_array()) {
      bool is_any = false;
      for (std::size_t i = 0; i < group.as_array().size(); ++i) is_any |= is_accepted();
      EXPECT_TRUE(is_any) << json_text(group);
    }
  }
  if (const auto* refused = given.if_contains("reject")) {
    for (const json::value& text : refused->as_array())
      EXPECT_FALSE(is_accepted()) << json_text(text);
  }
}

TEST(PublishedGrammars, AcceptTheirTextsAndNoOthers) {
  std::istringstream lines(unpacked(SLIME_SOURCE_DIR "/tests/fixtures/grammars/cases.jsonl.xz"));
  const GrammarRecords records(nullptr);
  int num_cases = 0;
  for (std::string line; std::getline(lines, line); ++num_cases) {
    const json::object given = parse_json(line, "case").as_object();
    SCOPED_TRACE(given.at("id").as_string().c_str());
    const json::object answer = records.record(with_texts(given), "case");
    const bool is_compiled = answer.at("compiled").as_bool();
    if (given.contains("must_be_refused")) {
      EXPECT_FALSE(is_compiled);
    } else if (is_compiled) {
      expect_texts(given, answer.at("results").as_array());
    } else {
      const std::string error(answer.at("error").as_string());
      const auto* name = given.if_contains("may_be_refused_naming");
      const bool may_be =
          name != nullptr && error.find(name->as_string().c_str()) != std::string::npos;
      EXPECT_TRUE(may_be) << error;
    }
  }
  EXPECT_EQ(num_cases, 129) << "xz or python3 is needed";
}

}  // namespace
}  // namespace slime::text
