#include "reward/kept_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace slime::reward {
namespace {

using testing::ElementsAre;

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
  for (const json::object& each : rows) all.add(each);
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

}  // namespace
}  // namespace slime::reward
