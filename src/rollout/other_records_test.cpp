#include "rollout/other_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slime::rollout {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Two response tokens, each with its two likeliest.
Sample recorded_sample() {
  Sample sample;
  sample.tokens = {5, 6, 7};
  sample.prompt_length = 1;
  sample.log_probs = {-0.5F, -0.5F};
  sample.topk_ids = {6, 8, 7, 8};
  sample.topk_log_probs = {-0.5F, -1.0F, -0.5F, -1.0F};
  return sample;
}

TEST(OtherRecords, WaitingGroupsThatBeginAnewAreCountedWithTheFlagThatChanged) {
  const Group group{.samples = {recorded_sample(), recorded_sample()}};
  const Group untouched{.samples = {Sample{}}};
  const Group* const waiting[] = {&group, &group, &untouched};
  ResponseRules rules;
  rules.topk_log_probs = 2;
  EXPECT_FALSE(has_other_records(group.samples[0], rules));
  EXPECT_EQ(other_records_note(waiting, rules), "");
  rules.topk_log_probs = 3;
  EXPECT_TRUE(has_other_records(group.samples[0], rules));
  EXPECT_THAT(other_records_note(waiting, rules),
              AllOf(HasSubstr("--score-centering-top-k: changed"), HasSubstr("2 waiting groups"),
                    HasSubstr("8 sampled tokens"), Not(HasSubstr("--use-score-centering"))));
  rules.topk_log_probs = 0;
  EXPECT_THAT(other_records_note(waiting, rules), HasSubstr("--use-score-centering: changed"));
  rules.keeps_top_p_ids = true;
  EXPECT_THAT(other_records_note(waiting, rules),
              HasSubstr("--rollout-top-p, --use-score-centering: changed"));
}

TEST(OtherRecords, ResponsesWithoutLogProbsAreSampledAnewWhateverTheFlagsSay) {
  Sample sample = recorded_sample();
  sample.log_probs.clear();
  ResponseRules rules;
  rules.topk_log_probs = 2;
  EXPECT_TRUE(has_other_records(sample, rules));
}

}  // namespace
}  // namespace slime::rollout
