#include "core/field_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "core/error.h"

namespace slime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json::object object_of(std::string_view text) { return parse_json(text, "test").as_object(); }

TEST(FieldReader, TypedFieldsAreReadAndAbsentOnesAreNothing) {
  const json::object object = object_of(
      R"({"a": 3, "b": 3.0, "c": 0.5, "d": true, "e": "x", "f": null, "g": [1, 2], "h": {}})");
  std::vector<std::string> problems;
  const FieldReader fields(object, "", problems);
  EXPECT_EQ(fields.integer("a"), 3);
  EXPECT_EQ(fields.integer("b"), 3);
  EXPECT_EQ(fields.number("a"), 3.0);
  EXPECT_EQ(fields.number("c", 0, 1), 0.5);
  EXPECT_EQ(fields.boolean("d"), true);
  EXPECT_EQ(fields.text("e"), "x");
  EXPECT_EQ(fields.text("f"), std::nullopt);
  EXPECT_EQ(fields.text("missing"), std::nullopt);
  EXPECT_THAT(fields.numbers<int32_t>("g"), ElementsAre(1, 2));
  EXPECT_NE(fields.object("h"), nullptr);
  EXPECT_THAT(problems, IsEmpty());
}

TEST(FieldReader, AWholeNumberMayHaveBeenMadeWithoutSign) {
  const json::object object{{"checksum", uint32_t{3706040235}}, {"large", uint64_t{1} << 63}};
  std::vector<std::string> problems;
  const FieldReader fields(object, "", problems);
  EXPECT_EQ(fields.integer("checksum", 0), 3706040235);
  EXPECT_EQ(fields.integer("large"), std::nullopt);
  EXPECT_EQ(problems.size(), 1U);
}

TEST(FieldReader, AProblemHasThePathTheRuleAndTheValue) {
  const json::object object = object_of(R"({"sampling_params": {"temperature": "hot", "n": 2.5}})");
  std::vector<std::string> problems;
  const auto sampling = FieldReader(object, "request: ", problems).fields("sampling_params");
  ASSERT_TRUE(sampling.has_value());
  EXPECT_EQ(sampling->number("temperature", 0, 2), std::nullopt);
  EXPECT_EQ(sampling->integer("n", 1), std::nullopt);
  EXPECT_THAT(
      problems,
      ElementsAre("request: sampling_params.temperature must be a number from 0 to 2, not \"hot\"",
                  "request: sampling_params.n must be a whole number of at least 1, not 2.5"));
}

TEST(FieldReader, WithoutAListTheFirstProblemIsThrown) {
  const json::object object = object_of(R"({"a": 1})");
  const FieldReader fields(object, "run.json: ");
  try {
    fields.text("a");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "run.json: a must be a string, not 1");
  }
}

TEST(FieldReader, WhatIsRequiredAndAbsentOrNullIsAProblemWithTheRule) {
  const json::object object = object_of(R"({"b": null})");
  std::vector<std::string> problems;
  const FieldReader needed = FieldReader(object, "", problems).required();
  EXPECT_EQ(needed.integer("a", 1, 8), std::nullopt);
  EXPECT_EQ(needed.text("b"), std::nullopt);
  EXPECT_EQ(needed.fields("c"), std::nullopt);
  EXPECT_THAT(needed.token_ids("d", 10), IsEmpty());
  EXPECT_THAT(problems,
              ElementsAre("a is missing; it must be a whole number from 1 to 8",
                          "b is missing; it must be a string", "c is missing; it must be an object",
                          "d is missing; it must be a list of token ids"));
}

TEST(FieldReader, ElementsOfListsAreNamedByTheirIndex) {
  const json::object object = object_of(
      R"({"steps": [{"kind": "a"}, 7, {"kind": 7}], "ids": [0, 300], "bytes": [1, 256]})");
  std::vector<std::string> problems;
  const FieldReader fields(object, "f: ", problems);
  const std::vector<FieldReader> steps = fields.list("steps");
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].text("kind"), "a");
  EXPECT_EQ(steps[1].text("kind"), std::nullopt);
  steps[1].note_object("is of no known kind");
  EXPECT_THAT(fields.token_ids("ids", 300), IsEmpty());
  EXPECT_THAT(fields.numbers<uint8_t>("bytes"), IsEmpty());
  EXPECT_THAT(
      problems,
      ElementsAre("f: steps[1] must be an object, not 7",
                  "f: steps[2].kind must be a string, not 7", "f: steps[2] is of no known kind",
                  "f: ids must be a list of token ids, whole numbers from 0 to 299, not "
                  "300 at index 1",
                  "f: bytes[1] must be a whole number from 0 to 255, not 256"));
}

TEST(FieldReader, AnUnknownNameIsAProblemWithTheNearestOne) {
  constexpr std::array<std::string_view, 2> kKnown = {"temperature", "top_p"};
  const json::object object = object_of(R"({"temprature": 1, "top_p": 1, "zzz": 2})");
  std::vector<std::string> problems;
  FieldReader(object, "sampling_params.", problems).refuse_unknown(kKnown);
  EXPECT_THAT(problems,
              ElementsAre("sampling_params.temprature is unknown; did you mean temperature?",
                          "sampling_params.zzz is unknown"));
}

TEST(FieldReader, NumbersThatAreNotFiniteOrDoNotFitAreProblems) {
  const json::object object =
      object_of(R"({"a": 1e400, "b": 18446744073709551615, "c": 1e300, "d": [1.5]})");
  std::vector<std::string> problems;
  const FieldReader fields(object, "", problems);
  EXPECT_EQ(fields.number("a"), std::nullopt);
  EXPECT_EQ(fields.integer("b"), std::nullopt);
  EXPECT_EQ(fields.integer("c"), std::nullopt);
  EXPECT_THAT(fields.numbers<int64_t>("d"), IsEmpty());
  EXPECT_EQ(problems.size(), 4U);
}

TEST(FieldReader, OneValueIsARule) {
  const json::object object = object_of(R"({"dropout": 0.1, "act": "gelu"})");
  constexpr std::array<std::string_view, 2> kActs = {"silu", "swish"};
  std::vector<std::string> problems;
  const FieldReader fields(object, "", problems);
  fields.number("dropout", 0, 0);
  fields.one_of("act", kActs);
  EXPECT_THAT(problems, ElementsAre("dropout must be 0, not 0.1",
                                    "act must be one of silu, swish, not \"gelu\""));
}

TEST(FieldReader, HostileInputIsShownInShortAndListsOfProblemsAreBounded) {
  json::object object;
  object["text"] = json::array(100000);
  // Two bytes a character: the cut is between characters.
  std::string word = "x";
  for (int i = 0; i < 1000; ++i) word += "\xc3\xa4";
  object["number"] = word;
  object[std::string(100000, 'n')] = 1;
  std::vector<std::string> problems;
  const FieldReader fields(object, "", problems);
  for (int i = 0; i < 100; ++i) {
    fields.text("text");
    fields.number("number");
  }
  EXPECT_EQ(problems.size(), FieldReader::kMostProblems);
  EXPECT_EQ(problems[0], "text must be a string, not a list");
  EXPECT_LT(problems[1].size(), 200U);
  EXPECT_THAT(problems[1], HasSubstr("\xc3\xa4\"..."));
  for (const std::string& sentence : fields.unknown_fields({})) EXPECT_LT(sentence.size(), 200U);
}

TEST(FieldReader, WordsMayStandAlone) {
  const json::object object = object_of(R"({"a": "x", "b": ["x", "y"], "c": "", "d": ["x", ""]})");
  std::vector<std::string> problems;
  const FieldReader fields(object, "", problems);
  EXPECT_THAT(fields.texts("a"), ElementsAre("x"));
  EXPECT_THAT(fields.texts("b"), ElementsAre("x", "y"));
  EXPECT_THAT(fields.texts("c"), IsEmpty());
  EXPECT_THAT(problems, IsEmpty());
  EXPECT_THAT(fields.texts("d"), IsEmpty());
  EXPECT_THAT(fields.texts("b", 1, 8), IsEmpty());
  EXPECT_THAT(problems,
              ElementsAre(HasSubstr("d must be a string or a list"),
                          HasSubstr("b must be a string or a list of at most 1 strings")));
}

TEST(FieldReader, WhatAsksForNothingIsNotRefused) {
  const json::object object = object_of(R"({"a": false, "b": [], "c": "x"})");
  std::vector<std::string> problems;
  const FieldReader fields(object, "", problems);
  for (const char* name : {"a", "b", "c", "d"}) fields.refuse(name, "is not supported");
  EXPECT_THAT(problems, ElementsAre("c is not supported"));
}

}  // namespace
}  // namespace slime
