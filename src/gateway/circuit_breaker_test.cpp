#include "gateway/circuit_breaker.h"

#include <gtest/gtest.h>

namespace slime::gateway {
namespace {

using std::chrono::seconds;
using State = CircuitBreaker::State;

const CircuitBreaker::TimePoint kStart{seconds(1000)};

BreakerConfig small() {
  return {.failures_to_open = 3,
          .successes_to_close = 2,
          .open_time = seconds(60),
          .failure_window = seconds(120)};
}

CircuitBreaker opened_at_start() {
  CircuitBreaker breaker(small());
  for (int i = 0; i < 3; ++i) {
    breaker.begin(kStart);
    breaker.fail(kStart);
  }
  return breaker;
}

TEST(CircuitBreaker, OpensAfterSoManyFailuresInARow) {
  CircuitBreaker breaker(small());
  for (int i = 0; i < 2; ++i) breaker.fail(kStart);
  breaker.succeed(kStart);  // begins the count again
  for (int i = 0; i < 2; ++i) breaker.fail(kStart);
  EXPECT_TRUE(breaker.allows(kStart));
  breaker.fail(kStart);
  EXPECT_FALSE(breaker.allows(kStart));
  EXPECT_EQ(breaker.state(kStart), State::kOpen);
}

TEST(CircuitBreaker, ForgetsFailuresOfLongAgo) {
  CircuitBreaker breaker(small());
  for (int i = 0; i < 2; ++i) breaker.fail(kStart);
  breaker.fail(kStart + seconds(121));
  EXPECT_TRUE(breaker.allows(kStart + seconds(121)));
}

TEST(CircuitBreaker, LetsOneTrialThroughWhenItsTimeIsOver) {
  CircuitBreaker breaker = opened_at_start();
  EXPECT_FALSE(breaker.allows(kStart + seconds(59)));
  const auto later = kStart + seconds(60);
  EXPECT_TRUE(breaker.allows(later));
  breaker.begin(later);
  EXPECT_FALSE(breaker.allows(later));  // until that one has ended
  breaker.succeed(later);
  EXPECT_EQ(breaker.state(later), State::kHalfOpen);
  breaker.begin(later);
  breaker.succeed(later);
  EXPECT_EQ(breaker.state(later), State::kClosed);
}

TEST(CircuitBreaker, OpensAgainWhenATrialFails) {
  CircuitBreaker breaker = opened_at_start();
  const auto later = kStart + seconds(60);
  breaker.begin(later);
  breaker.fail(later);
  EXPECT_FALSE(breaker.allows(later + seconds(59)));
  EXPECT_TRUE(breaker.allows(later + seconds(60)));
}

TEST(CircuitBreaker, KnowsNothingFromATrialWhoseClientLeft) {
  CircuitBreaker breaker = opened_at_start();
  const auto later = kStart + seconds(60);
  breaker.begin(later);
  breaker.leave(later);
  EXPECT_TRUE(breaker.allows(later));
  EXPECT_EQ(breaker.state(later), State::kHalfOpen);
}

TEST(CircuitBreaker, AnswersOfRequestsFromBeforeItOpenedChangeNothing) {
  CircuitBreaker breaker = opened_at_start();
  breaker.succeed(kStart + seconds(1));
  breaker.fail(kStart + seconds(30));
  EXPECT_FALSE(breaker.allows(kStart + seconds(59)));
  EXPECT_TRUE(breaker.allows(kStart + seconds(60)));
}

TEST(CircuitBreaker, ThatIsOffNeverOpens) {
  BreakerConfig config = small();
  config.is_on = false;
  CircuitBreaker breaker(config);
  for (int i = 0; i < 100; ++i) breaker.fail(kStart);
  EXPECT_TRUE(breaker.allows(kStart));
}

}  // namespace
}  // namespace slime::gateway
