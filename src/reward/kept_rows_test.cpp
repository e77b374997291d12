#include "reward/kept_rows.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"

namespace slime::reward {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

json::object row(int64_t group, const char* response, json::value score,
                 const char* status = "completed") {
  return {
      {"group", group}, {"response", response}, {"score", std::move(score)}, {"status", status}};
}

std::vector<std::string> kept(const KeepRule& rule, const std::vector<json::object>& rows) {
  std::vector<std::string> responses;
  KeptRows all(rule, [&responses](const json::object& each) {
    responses.emplace_back(each.at("response").as_string());
  });
  for (const json::object& each : rows) all.add(each, "in, line 1");
  all.end();
  EXPECT_EQ(all.num_kept(), static_cast<int64_t>(responses.size()));
  return responses;
}

TEST(KeptRows, TheBestOfEachGroupInTheirOrder) {
  const std::vector<json::object> rows{row(0, "a", 0), row(0, "b", 1), row(0, "c", 1),
                                       row(1, "d", 0.2), row(1, "e", 0.1)};
  EXPECT_THAT(kept({.best = 1}, rows), ElementsAre("b", "d"));
  EXPECT_THAT(kept({.best = 2}, rows), ElementsAre("b", "c", "d", "e"));
  EXPECT_THAT(kept({.min_score = 0.2, .best = 1}, rows), ElementsAre("b", "d"));
  EXPECT_THAT(kept({.min_score = 0.5}, rows), ElementsAre("b", "c"));
}

TEST(KeptRows, TruncatedOnesTakeNobodysPlace) {
  const std::vector<json::object> rows{row(0, "cut", 1, "truncated"), row(0, "whole", 1)};
  EXPECT_THAT(kept({.best = 1}, rows), ElementsAre("whole"));
  EXPECT_THAT(kept({.best = 1, .keeps_truncated = true}, rows), ElementsAre("cut"));
}

TEST(KeptRows, WithoutAChoiceAllAreWrittenAtOnce) {
  EXPECT_THAT(kept({}, {row(0, "a", nullptr), row(0, "b", 1, "truncated")}), ElementsAre("a", "b"));
}

TEST(KeptRows, WithoutAGroupRowsOfOnePromptBelongTogether) {
  const std::vector<json::object> rows{{{"prompt", "p"}, {"response", "a"}, {"score", 0}},
                                       {{"prompt", "p"}, {"response", "b"}, {"score", 1}},
                                       {{"prompt", "q"}, {"response", "c"}, {"score", nullptr}}};
  EXPECT_THAT(kept({.best = 1}, rows), ElementsAre("b"));
}

TEST(KeptRows, OneGroupNumberOfTwoPromptsIsTwoGroups) {
  const auto of = [](const char* prompt, const char* response, int64_t score) {
    json::object made = row(0, response, score);
    made["prompt"] = prompt;
    return made;
  };
  EXPECT_THAT(kept({.best = 1}, {of("p", "a", 0), of("p", "b", 1), of("q", "c", 0)}),
              ElementsAre("b", "c"));
}

std::string refusal_of(const KeepRule& rule, const std::vector<json::object>& rows) {
  KeptRows all(rule, [](const json::object&) {});
  try {
    for (std::size_t i = 0; i < rows.size(); ++i) all.add(rows[i], fmt::format("line {}", i + 1));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(KeptRows, AGroupThatGoesOnBehindOthersIsRefusedWithItsLine) {
  const std::vector<json::object> rows{row(0, "a", 0), row(1, "b", 0), row(0, "c", 1)};
  EXPECT_THAT(refusal_of({.best = 1}, rows), StartsWith("line 3: group 0 with the same prompt"));
  EXPECT_EQ(refusal_of({.min_score = 0}, rows), "");
  const std::vector<json::object> prompts{{{"prompt", "p"}, {"response", "a"}, {"score", 0}},
                                          {{"prompt", "q"}, {"response", "b"}, {"score", 1}},
                                          {{"prompt", "p"}, {"response", "c"}, {"score", 1}}};
  EXPECT_THAT(refusal_of({.best = 1}, prompts), StartsWith("line 3: a row with the same prompt"));
}

TEST(KeptRows, ARowOfNobodyIsRefusedOnlyWhereTheBestOfEachAreChosen) {
  const std::vector<json::object> rows{{{"response", "a"}, {"score", 0}}};
  EXPECT_THAT(refusal_of({.best = 1}, rows), StartsWith("line 1: neither group nor prompt"));
  EXPECT_EQ(refusal_of({.min_score = 0}, rows), "");
}

}  // namespace
}  // namespace slime::reward
