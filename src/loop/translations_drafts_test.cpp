// Notes on flags of drafts and of verification that nothing in a run reads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loop/translations_for_tests.h"
#include "model/config.h"

namespace slime::loop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(UnreadFlags, OfVerificationWithoutExactMode) {
  const Words tokens{"--rollout-verify-tokens", "8"};
  EXPECT_THAT(notes(policy() + tokens), HasSubstr("--rollout-verify-tokens has no effect"));
  EXPECT_THAT(notes(policy() + tokens), HasSubstr("it counts with --true-on-policy"));
  EXPECT_THAT(notes(policy() + tokens + Words{"--true-on-policy"}), IsEmpty());
}

TEST(UnreadFlags, OfDraftsWhereThereAreNone) {
  const std::string plain = notes(policy() + Words{"--rollout-draft-tokens", "3"});
  EXPECT_THAT(plain, HasSubstr("--rollout-draft-tokens has no effect"));
  EXPECT_THAT(plain, HasSubstr("it counts with --rollout-drafts suffix, mtp or eagle3"));
  const Words drafts{"--rollout-drafts", "suffix", "--rollout-draft-tokens", "3"};
  EXPECT_THAT(notes(policy() + drafts), IsEmpty());
  model::ModelConfig model;
  model.delta.in_layer = {true, false};
  EXPECT_THAT(notes(policy() + drafts, &model), HasSubstr("--rollout-drafts has no effect"));
}

TEST(UnreadFlags, OfADraftLayerThatAModelDoesNotHave) {
  const Words layer{"--rollout-drafts", "mtp", "--rollout-draft-tokens", "3"};
  const Words eagle{"--sglang-speculative-algorithm", "EAGLE"};
  EXPECT_THAT(notes(policy() + layer), IsEmpty());
  model::ModelConfig model;
  EXPECT_THAT(notes(policy() + layer, &model), HasSubstr("--rollout-drafts has no effect"));
  EXPECT_THAT(notes(policy() + eagle, &model),
              AllOf(HasSubstr("--sglang-speculative-algorithm has no effect"),
                    HasSubstr("EAGLE or NEXTN where config.json tells")));
  model.drafts.count = 1;
  EXPECT_THAT(notes(policy() + layer, &model), IsEmpty());
  EXPECT_THAT(notes(policy() + eagle, &model), IsEmpty());
  EXPECT_THAT(notes(policy() + layer + Words{"--rollout-draft-text-mb", "3"}, &model),
              HasSubstr("--rollout-draft-text-mb has no effect"));
  model.drafts.has_own_embedding = true;
  EXPECT_THAT(notes(policy() + layer, &model), HasSubstr("--rollout-drafts has no effect"));
}

TEST(UnreadFlags, OfADraftModelThatIsNotAskedFor) {
  const Words path{"--rollout-draft-model", "/models/eagle3"};
  const Words eagle3 = Words{"--rollout-drafts", "eagle3"} + path;
  EXPECT_THAT(notes(policy() + eagle3), IsEmpty());
  model::ModelConfig model;
  EXPECT_THAT(notes(policy() + eagle3, &model), IsEmpty());
  for (const char* word : {"EAGLE3", "EAGLE"})
    EXPECT_THAT(notes(policy() + eagle3 + Words{"--sglang-speculative-algorithm", word}, &model),
                IsEmpty());
  EXPECT_THAT(notes(policy() + path, &model),
              AllOf(HasSubstr("--rollout-draft-model has no effect"),
                    HasSubstr("it counts with --rollout-drafts eagle3, on CPUs")));
  EXPECT_THAT(notes(policy() + Words{"--rollout-drafts", "suffix"} + path, &model),
              HasSubstr("--rollout-draft-model has no effect"));
  model.delta.in_layer = {true, false};
  EXPECT_THAT(notes(policy() + eagle3, &model), HasSubstr("--rollout-drafts has no effect"));
}

}  // namespace
}  // namespace slime::loop
