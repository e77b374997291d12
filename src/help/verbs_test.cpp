#include "help/verbs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace slime::help {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> kVerbs{{"train", "train a model", "Train", true},
                                        {"report", "one page", "Look at runs", false},
                                        {"worker", "a rank", "", false}};
  return kVerbs;
}

TEST(Verbs, TheFrontPageHasWhatPeopleBeginWith) {
  EXPECT_THAT(front_page(verbs(), {}), AllOf(HasSubstr("slime train"), HasSubstr("slime help"),
                                             Not(HasSubstr("report")), Not(HasSubstr("doctor"))));
}

TEST(Verbs, TheListHasAllButThoseThatProgramsStart) {
  EXPECT_THAT(list_of_verbs(verbs(), {}),
              AllOf(HasSubstr("Look at runs\n  report  one page\n"), Not(HasSubstr("worker"))));
}

TEST(Verbs, AMistypedOneIsTheNearestAndOtherProgramsWordsAreOurs) {
  EXPECT_EQ(verb_meant_by("trian", verbs()), "train");
  EXPECT_EQ(verb_meant_by("finetune", verbs()), "train");
  EXPECT_EQ(verb_meant_by("evaluate", verbs()), std::nullopt);  // there is no eval here
  EXPECT_EQ(verb_meant_by("workr", verbs()), std::nullopt);
}

}  // namespace
}  // namespace slime::help
