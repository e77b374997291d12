#include "report/alarms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace slime::report {
namespace {

/// A made-up run of 60 steps. Each metric is a function of the step.
class MadeUpRun {
 public:
  MadeUpRun& with(const std::string& name, const std::function<double(int64_t)>& value) {
    MetricSeries& series = metrics_.series[name];
    for (int64_t step = 0; step < 60; ++step) {
      series.steps.push_back(step);
      series.values.push_back(value(step));
    }
    return *this;
  }
  /// Kinds of its alarms.
  std::vector<std::string> kinds(std::optional<double> groups = std::nullopt) const {
    std::vector<std::string> kinds;
    for (const Alarm& alarm : find_alarms(metrics_, groups)) kinds.push_back(alarm.kind);
    return kinds;
  }
  Alarm alarm(std::optional<double> groups = std::nullopt) const {
    return find_alarms(metrics_, groups).at(0);
  }

 private:
  RunMetrics metrics_;
};

using Kinds = std::vector<std::string>;

/// A little noise, the same each time.
double noise(int64_t step) { return step % 2 == 0 ? 0.01 : -0.01; }
double rising(int64_t step) { return 0.2 + 0.01 * static_cast<double>(step) + noise(step); }
double flat(int64_t step) { return 0.3 + noise(step); }
/// `before`, from step 30 on `after`.
std::function<double(int64_t)> jump(double before, double after) {
  return [=](int64_t step) { return step < 30 ? before : after; };
}

TEST(Alarms, ARunThatLearnsHasNone) {
  const MadeUpRun run = MadeUpRun()
                            .with("rollout/raw_reward", rising)
                            .with("rollout/response_len/mean", jump(200, 350))
                            .with("train/entropy_loss", jump(0.9, 0.4))
                            .with("rollout/repetition_frac", jump(0, 0.05))
                            .with("train/grad_norm", [](int64_t s) { return s == 7 ? 0.0 : 0.5; })
                            .with("train/train_rollout_logprob_abs_diff", jump(0.004, 0.006))
                            .with("rollout/zero_std/count_0.0", jump(10, 12))
                            .with("rollout/weight_version/lag_mean", jump(1, 1))
                            .with("rollout/weight_version/lag_share/4", jump(0.05, 0.1));
  EXPECT_EQ(run.kinds(32), Kinds{});
}

TEST(Alarms, RewardRisesWhileResponsesGrowThreefold) {
  const MadeUpRun run = MadeUpRun()
                            .with("rollout/raw_reward", rising)
                            .with("rollout/response_len/mean", jump(200, 600));
  EXPECT_EQ(run.kinds(), Kinds{"reward_hacking"});
  const Alarm alarm = run.alarm();
  EXPECT_TRUE(alarm.is_now);
  EXPECT_EQ(alarm.last_step, 59);
  // Of the ten last lengths six must be 600 for a mean above 400.
  EXPECT_EQ(alarm.first_step, 35);
  EXPECT_EQ(alarm.look.at("sort"), "length-");
  EXPECT_NE(alarm.what.find("from 200 to 600 tokens"), std::string::npos) << alarm.what;
}

TEST(Alarms, RewardRisesWhileEntropyOrRepetitionLeavesItsBounds) {
  EXPECT_EQ(MadeUpRun()
                .with("rollout/raw_reward", rising)
                .with("train/entropy_loss", jump(0.9, 0.1))
                .kinds(),
            Kinds{"reward_hacking"});
  EXPECT_EQ(MadeUpRun()
                .with("rollout/raw_reward", rising)
                .with("rollout/repetition_frac", jump(0.01, 0.3))
                .kinds(),
            Kinds{"reward_hacking"});
}

TEST(Alarms, ARewardThatStaysIsNotHackedHoweverLengthsMove) {
  EXPECT_EQ(MadeUpRun()
                .with("rollout/raw_reward", flat)
                .with("rollout/response_len/mean", jump(200, 600))
                .with("train/entropy_loss", jump(0.9, 0.1))
                .kinds(),
            Kinds{});
}

TEST(Alarms, TokensOfOldWeights) {
  const auto run = [](double share) {
    return MadeUpRun()
        .with("rollout/weight_version/lag_mean", jump(1, 4))
        .with("rollout/weight_version/lag_share/1", jump(0.9, 0.1))
        .with("rollout/weight_version/lag_share/5", jump(0.0, share))
        .with("rollout/weight_version/lag_share/8_up", jump(0.0, share));
  };
  EXPECT_EQ(run(0.1).kinds(), Kinds{});
  EXPECT_EQ(run(0.2).kinds(), Kinds{"stale_tokens"});
  EXPECT_EQ(run(0.2).alarm().look.at("sort"), "version+");
}

TEST(Alarms, GroupsOfEqualRewards) {
  const auto run = [](double zeros) {
    return MadeUpRun()
        .with("rollout/raw_reward", flat)
        .with("rollout/zero_std/count_0.0", jump(4, zeros))
        .with("rollout/zero_std/count_1.0", jump(2, 2));
  };
  EXPECT_EQ(run(20).kinds(32), Kinds{});
  EXPECT_EQ(run(26).kinds(32), Kinds{"dead_groups"});
  EXPECT_EQ(run(26).alarm(32).look.at("dead"), 1);
  EXPECT_EQ(run(26).kinds(), Kinds{});  // nobody knows of how many
}

TEST(Alarms, ThreeUpdatesWithoutAGradient) {
  const auto run = [](int64_t count) {
    return MadeUpRun().with("train/grad_norm", [count](int64_t step) {
      return step >= 20 && step < 20 + count ? 0.0 : 0.4;
    });
  };
  EXPECT_EQ(run(2).kinds(), Kinds{});
  const Alarm alarm = run(3).alarm();
  EXPECT_EQ(alarm.kind, "zero_gradients");
  EXPECT_EQ(alarm.first_step, 20);
  EXPECT_EQ(alarm.last_step, 22);
  EXPECT_FALSE(alarm.is_now);
}

TEST(Alarms, LogProbsOfEngineAndTrainerMoveApart) {
  const auto run = [](double before, double after) {
    return MadeUpRun().with("train/train_rollout_logprob_abs_diff", jump(before, after)).kinds();
  };
  EXPECT_EQ(run(0.002, 0.2), Kinds{"log_prob_difference"});
  EXPECT_EQ(run(0.002, 0.03), Kinds{"log_prob_difference"});  // fifteen times the beginning
  EXPECT_EQ(run(0.02, 0.03), Kinds{});
  EXPECT_EQ(run(0.0002, 0.005), Kinds{});  // too small to matter
}

TEST(Alarms, OneBadStepAndMissingNumbersAreNone) {
  EXPECT_EQ(MadeUpRun()
                .with("train/train_rollout_logprob_abs_diff",
                      [](int64_t step) { return step == 40 ? 0.3 : 0.002; })
                .with("rollout/raw_reward", [](int64_t) { return std::nan(""); })
                .kinds(),
            Kinds{});
  EXPECT_EQ(MadeUpRun().kinds(32), Kinds{});
}

}  // namespace
}  // namespace slime::report
