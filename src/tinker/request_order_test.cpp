#include "tinker/request_order.h"

#include <gtest/gtest.h>

#include <string>

namespace slime::tinker {
namespace {

class Order {
 public:
  void come(int64_t seq_id) {
    const auto jobs = order.add(seq_id, "req-" + std::to_string(seq_id),
                                [this, seq_id] { done += std::to_string(seq_id); });
    for (const auto& each : jobs) each.job();
  }
  RequestOrder order;
  std::string done;
};

TEST(RequestOrder, DoesRequestsByTheirNumbers) {
  Order order;
  for (const int64_t seq_id : {3, 1, 4, 2}) order.come(seq_id);
  EXPECT_EQ(order.done, "1234");
}

TEST(RequestOrder, KnowsTheFutureOfANumberThatCame) {
  Order order;
  order.come(2);
  EXPECT_EQ(order.order.known(2), "req-2");
  EXPECT_FALSE(order.order.known(1).has_value());
}

TEST(RequestOrder, GivesUpWhatWaitsForANumberThatDoesNotComeAndGoesOnBehindIt) {
  Order order;
  order.come(1);
  order.come(3);
  order.come(5);
  const auto now = std::chrono::steady_clock::now();
  EXPECT_FALSE(order.order.give_up(now - std::chrono::hours(1)).has_value());
  const auto given_up = order.order.give_up(now + std::chrono::hours(1));
  ASSERT_TRUE(given_up.has_value());
  EXPECT_EQ(given_up->missing, 2);
  EXPECT_EQ(given_up->futures,
            (std::vector<std::pair<int64_t, std::string>>{{3, "req-3"}, {5, "req-5"}}));
  EXPECT_TRUE(order.order.is_late(2));
  EXPECT_EQ(order.order.last(), 5);
  EXPECT_FALSE(order.order.is_late(6));
  order.come(6);
  EXPECT_EQ(order.done, "16");
}

TEST(RequestOrder, NumberZeroMayComeFirstAndNotLater) {
  Order order;
  EXPECT_FALSE(order.order.is_late(0));
  order.come(0);
  order.come(1);
  EXPECT_EQ(order.done, "01");
  EXPECT_TRUE(order.order.is_late(0));
}

TEST(RequestOrder, GoesOnBehindWhatAnotherProcessHasDone) {
  Order order;
  order.order.remember(3, "req-3");
  order.order.go_on_from(4);
  EXPECT_EQ(order.order.known(3), "req-3");
  EXPECT_TRUE(order.order.is_late(2));
  order.come(5);
  EXPECT_EQ(order.done, "");
  order.come(4);
  EXPECT_EQ(order.done, "45");
}

}  // namespace
}  // namespace slime::tinker
