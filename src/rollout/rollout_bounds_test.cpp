// What ends a step that would go on for ever, what does not, and groups that nothing is sampled for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "rollout/test_world.h"

namespace slime::rollout {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Rewards of every third prompt fail.
void fail_rewards(World& world) {
  world.config.groups_per_step = world.config.groups_per_refill = 20;
  world.hooks.scorer.rule.score = [](const Sample& sample,
                                     const std::stop_token&) -> Expected<json::value> {
    if (sample.group % 3 == 0) return failure("the judge timed out");
    return json::value(1.0);
  };
}

std::string error_of(World& world) {
  try {
    world.run();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(RolloutBounds, FailedGroupsAreBoundedByTheirShareOnceTheyAreMany) {
  // 20 kept ones need 29 or 30, of which a third fails.
  World few;
  fail_rewards(few);
  few.config.max_failed_groups = 20;
  EXPECT_EQ(few.run().groups.size(), 20U);
  World many;
  fail_rewards(many);
  many.config.max_failed_groups = 2;
  many.config.max_failed_share = 0.6;
  EXPECT_EQ(many.run().groups.size(), 20U);
  World too_many;
  fail_rewards(too_many);
  too_many.config.max_failed_groups = 2;
  too_many.config.max_failed_share = 0.1;
  EXPECT_THAT(error_of(too_many),
              AllOf(HasSubstr("groups failed in one rollout step"),
                    HasSubstr("the judge timed out"), HasSubstr("--max-failed-group-share")));
}

TEST(RolloutBounds, AFilterThatDropsEverythingEndsTheStepWithItsReason) {
  World world;
  world.hooks.filter.emplace<FilterRule>() = [](const Group&) {
    return FilterVerdict{.keep = false, .reason = "equal", .keep_when_insufficient = false};
  };
  world.config.max_filtered_groups = 12;
  EXPECT_THAT(error_of(world), AllOf(HasSubstr("the filter dropped 13 groups of one rollout step"),
                                     HasSubstr("\"equal\""), HasSubstr("--max-filter-ratio")));
  EXPECT_EQ(world.dropped.size(), 13U);
  EXPECT_EQ(world.dropped.size() + world.returned.size(), static_cast<std::size_t>(world.next))
      << "what was open is handed back";
}

TEST(RolloutBounds, AFilterThatDropsEverythingStopsWhenItIsTold) {
  World world;
  std::atomic<bool> told{false};
  world.hooks.filter.emplace<FilterRule>() = [&](const Group& group) {
    if (group.ordinal == 40) told = true;
    return FilterVerdict{.keep = false, .reason = "equal", .keep_when_insufficient = false};
  };
  Rollout rollout(world.engine, world.config, world.hooks);
  StepOrder order = world.order();
  order.stop = StopFlags(world.stop, told);
  rollout.open_step(order);
  EXPECT_TRUE(take_step(rollout).groups.empty());
}

TEST(RolloutBounds, GroupsThatComeFinishedAreTrainedAsTheyAre) {
  World world;
  const auto finished = [](int64_t ordinal) {
    Group group = group_of(ordinal, 2);
    for (Sample& sample : group.samples) {
      sample.tokens.insert(sample.tokens.end(), {7, 8, 9});
      sample.log_probs = {-1.0F, -2.0F, -3.0F};
      sample.status = Status::kCompleted;
      sample.reward = 0.25;
    }
    return group;
  };
  world.prompts.on_take = [&](int64_t count) {
    std::vector<Group> groups;
    for (int64_t i = 0; i < count; ++i) groups.push_back(finished(world.next++));
    return groups;
  };
  world.prompts.on_replayed = [](const Group&) { return true; };
  const StepResult result = world.run();
  ASSERT_EQ(result.groups.size(), 3U);
  EXPECT_EQ(result.end.generated_tokens, 0);
  EXPECT_EQ(result.end.discarded_tokens, 0);
  for (const Group& group : result.groups) {
    for (const Sample& sample : group.samples) {
      EXPECT_EQ(sample.tokens, finished(group.ordinal).samples[0].tokens);
      EXPECT_EQ(sample.reward, json::value(0.25)) << "it is not scored again";
      EXPECT_EQ(sample.response, "3") << "rendered, where it had no text";
    }
  }
}

}  // namespace
}  // namespace slime::rollout
