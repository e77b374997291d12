#include "train/lr_schedule.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::train {
namespace {

LrSchedule schedule(DecayStyle style) {
  return {.lr = 1.0, .min_lr = 0.1, .warmup_samples = 20, .decay_samples = 120, .style = style};
}

TEST(LearningRate, RisesFromZeroDuringWarmUp) {
  for (const auto style :
       {DecayStyle::kConstant, DecayStyle::kCosine, DecayStyle::kInverseSquareRoot}) {
    EXPECT_DOUBLE_EQ(learning_rate(schedule(style), 0), 0);
    EXPECT_DOUBLE_EQ(learning_rate(schedule(style), 5), 0.25);
    EXPECT_DOUBLE_EQ(learning_rate(schedule(style), 20), 1);
  }
}

TEST(LearningRate, FallsAsItsStyleSays) {
  EXPECT_DOUBLE_EQ(learning_rate(schedule(DecayStyle::kConstant), 70), 1);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(DecayStyle::kLinear), 70), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(DecayStyle::kCosine), 70), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(DecayStyle::kInverseSquareRoot), 80), 0.5);
}

TEST(LearningRate, IsTheMinimumAfterTheDecayExceptWhenConstant) {
  EXPECT_DOUBLE_EQ(learning_rate(schedule(DecayStyle::kConstant), 121), 1);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(DecayStyle::kLinear), 121), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(DecayStyle::kInverseSquareRoot), 121), 0.1);
}

TEST(LearningRate, WsdStaysThenFalls) {
  LrSchedule wsd = schedule(DecayStyle::kWsd);
  wsd.wsd_decay_samples = 40;
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 80), 1);
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 120), 0.1);
  wsd.wsd_style = WsdStyle::kLinear;
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 100), 0.55);
}

TEST(LearningRate, CountsIterationsInSamples) {
  const LrSchedule s = with_iterations({}, {.train_iters = 30, .lr_warmup_iters = 5}, 4);
  EXPECT_EQ(s.decay_samples, 120);
  EXPECT_EQ(s.warmup_samples, 20);
  EXPECT_EQ(with_iterations({}, {.train_iters = 30, .lr_warmup_fraction = 0.1}, 4).warmup_samples,
            12);
  EXPECT_EQ(with_iterations({}, {.train_iters = 30, .lr_decay_iters = 10}, 4).decay_samples, 40);
}

TEST(LearningRate, RefusesAWarmUpLongerThanTheDecayAndNegativeRatesTogether) {
  try {
    with_iterations({.lr = -1}, {.train_iters = 3, .lr_warmup_iters = 3}, 4);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("lr-warmup-iters"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("lr: -1"), std::string::npos);
  }
}

TEST(LearningRate, KnowsMegatronsWordsAlone) {
  EXPECT_EQ(decay_style_from_string("WSD"), DecayStyle::kWsd);
  EXPECT_EQ(wsd_style_from_string("minus_sqrt"), WsdStyle::kMinusSqrt);
  EXPECT_THROW(decay_style_from_string("polynomial"), ConfigError);
}

}  // namespace
}  // namespace slime::train
