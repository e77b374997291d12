#include "core/interrupt.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <thread>

namespace slime::core {
namespace {

TEST(Interrupt, AClosedTerminalAsksForTheEndOnceHoweverOftenItIsTold) {
  std::signal(SIGHUP, SIG_DFL);  // also where the tests run under nohup
  const Interrupt interrupt;
  EXPECT_FALSE(interrupt.requested());
  std::raise(SIGHUP);
  EXPECT_TRUE(interrupt.requested());
  std::raise(SIGHUP);  // a second Ctrl-C would end the process here
  EXPECT_EQ(interrupt.exit_code(), Interrupt::kExitCode);
}

TEST(Interrupt, AClosedTerminalAfterCtrlCDoesNotTakeTheStepAway) {
  std::signal(SIGHUP, SIG_DFL);
  const Interrupt interrupt;
  std::raise(SIGTERM);
  std::raise(SIGHUP);
  EXPECT_TRUE(interrupt.requested());
}

TEST(Interrupt, WhatIsToldTwiceAtOnceIsOneWish) {
  const Interrupt interrupt;
  std::raise(SIGTERM);
  std::raise(SIGTERM);  // of `timeout`, which tells the process and its group
  EXPECT_TRUE(interrupt.requested());
}

TEST(Interrupt, TheSecondWishStopsAtOnce) {
  EXPECT_EXIT(
      {
        const Interrupt interrupt;
        std::raise(SIGINT);
        std::this_thread::sleep_for(std::chrono::milliseconds(150));
        std::raise(SIGINT);
      },
      testing::ExitedWithCode(Interrupt::kExitCode), "stopping now");
}

TEST(Interrupt, IsThereUntilTheLastOfSeveralRunsEnds) {
  auto first = std::make_unique<Interrupt>();
  std::raise(SIGTERM);
  auto second = std::make_unique<Interrupt>();
  EXPECT_TRUE(second->requested()) << "a run that is built later ends too";
  first.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  EXPECT_EXIT(std::raise(SIGTERM), testing::ExitedWithCode(Interrupt::kExitCode), "stopping now");
  second.reset();
  EXPECT_EXIT(std::raise(SIGTERM), testing::KilledBySignal(SIGTERM), "");
}

TEST(Interrupt, UnderNohupAClosedTerminalIsNothing) {
  std::signal(SIGHUP, SIG_IGN);
  {
    const Interrupt interrupt;
    std::raise(SIGHUP);
    EXPECT_FALSE(interrupt.requested());
  }
  std::raise(SIGHUP);  // ignored as before
  std::signal(SIGHUP, SIG_DFL);
}

}  // namespace
}  // namespace slime::core
