#include "comm/call_gate.h"

#include <gtest/gtest.h>

#include <latch>
#include <thread>

namespace slime::comm {
namespace {

using namespace std::chrono_literals;

TEST(CallGate, ClosedItLetsNobodyIn) {
  CallGate gate;
  EXPECT_TRUE(CallGate::Pass(gate).is_open);
  EXPECT_TRUE(gate.close(0ms));
  EXPECT_FALSE(CallGate::Pass(gate).is_open);
}

TEST(CallGate, ClosingWaitsForWhoIsInside) {
  CallGate gate;
  std::latch is_inside(1), is_closing(1);
  bool has_left = false;
  std::jthread caller([&] {
    const CallGate::Pass pass(gate);
    is_inside.count_down();
    is_closing.wait();
    // Whoever closes is in close() once nobody gets in any more.
    while (CallGate::Pass(gate).is_open) std::this_thread::yield();
    has_left = true;
  });
  is_inside.wait();
  is_closing.count_down();
  EXPECT_TRUE(gate.close(60s));
  EXPECT_TRUE(has_left);
}

TEST(CallGate, ClosingGivesUpOnACallThatHangs) {
  CallGate gate;
  const CallGate::Pass pass(gate);
  EXPECT_FALSE(gate.close(1ms));
  EXPECT_FALSE(CallGate::Pass(gate).is_open);
}

}  // namespace
}  // namespace slime::comm
