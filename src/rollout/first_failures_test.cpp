#include "rollout/first_failures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "rollout/test_world.h"

namespace slime::rollout {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A group whose samples failed with what `failure` says of each; "": it did not.
Group failed_group(int n, const std::function<std::string(int64_t)>& failure, int64_t ordinal = 0) {
  Group group = group_of(ordinal, n);
  for (Sample& sample : group.samples) {
    sample.failure = failure(sample.ordinal);
    sample.status = sample.failure.empty() ? Status::kCompleted : Status::kFailed;
  }
  return group;
}

std::string always(int64_t sample) {
  return "reward: KeyError: 'word " + std::to_string(sample) + "' (/my rewards/own.py:12)";
}

/// After how many groups the run is ended; 0: not within a hundred.
int64_t groups_until_end(int n, const std::function<std::string(int64_t)>& failure,
                         std::string* message = nullptr) {
  FirstFailures failures;
  for (int64_t i = 0; i < 100; ++i) {
    try {
      failures.see(failed_group(n, failure, i));
    } catch (const ConfigError& error) {
      if (message != nullptr) *message = error.what();
      return i + 1;
    }
  }
  return 0;
}

TEST(FirstFailures, TheKindIsTheErrorAndItsPlaceWhateverItSays) {
  const auto kind = failure_kind(always(3));
  ASSERT_TRUE(kind.has_value());
  EXPECT_EQ(kind->error, "reward: KeyError");
  EXPECT_EQ(kind->place, "/my rewards/own.py:12");
  EXPECT_EQ(failure_kind("generate: ZeroDivisionError (own.py:7)")->error,
            "generate: ZeroDivisionError");
  EXPECT_FALSE(failure_kind("reward: took longer than 6 s"));
  EXPECT_FALSE(failure_kind("reward: odd (see above)"));
  EXPECT_FALSE(failure_kind("reward: ClientConnectorError: refused (own.py:7)")) << "may pass";
}

TEST(FirstFailures, AFunctionThatAlwaysRaisesEndsTheRunWithinFourGroupsOfEight) {
  std::string message;
  EXPECT_EQ(groups_until_end(8, always, &message), 4);
  EXPECT_THAT(message, AllOf(HasSubstr("/my rewards/own.py:12"), HasSubstr("first 32 samples"),
                             HasSubstr("KeyError: 'word 24'"), HasSubstr("nothing was trained")));
  EXPECT_EQ(groups_until_end(16, always), 4);
  EXPECT_EQ(groups_until_end(1, always), 32) << "as many samples, however small the groups";
}

TEST(FirstFailures, OneThatFailsSometimesEndsNothing) {
  const auto all_but_the_last_before_the_bound = [](int64_t i) { return i == 31 ? "" : always(i); };
  EXPECT_EQ(groups_until_end(8, all_but_the_last_before_the_bound), 0);
  const auto only_the_first = [](int64_t i) { return i == 0 ? "" : always(i); };
  EXPECT_EQ(groups_until_end(8, only_the_first), 0) << "never once one has succeeded";
}

TEST(FirstFailures, FailuresAtTwoPlacesAreNotOneMistake) {
  const auto two_places = [](int64_t i) {
    return i % 8 < 7 ? always(i) : std::string("reward: KeyError: 'x' (/my rewards/own.py:13)");
  };
  EXPECT_EQ(groups_until_end(8, two_places), 0);
}

TEST(FirstFailures, GroupsThatTheEngineGaveUpSayNothing) {
  FirstFailures failures;
  for (int64_t i = 0; i < 3; ++i) failures.see(failed_group(8, always, i));
  Group aborted = failed_group(8, always, 3);
  aborted.samples[5].status = Status::kAborted;
  EXPECT_NO_THROW(failures.see(aborted));
  EXPECT_THROW(failures.see(failed_group(8, always, 4)), ConfigError);
}

TEST(FirstFailures, TheyEndAStepWhoseBoundsWouldLetItGoOn) {
  World world;
  world.config.max_failed_groups = 10'000;
  world.hooks.scorer.rule.score = [](const Sample& sample,
                                     const std::stop_token&) -> Expected<json::value> {
    return failure("KeyError: " + std::to_string(sample.ordinal) + " (own.py:12)");
  };
  EXPECT_THROW(world.run(), ConfigError);
  EXPECT_EQ(world.dropped.size(), 15U) << "groups of two; the sixteenth ends it";
}

}  // namespace
}  // namespace slime::rollout
