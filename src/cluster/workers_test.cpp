#include "cluster/workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <future>

#include "cluster/local_process.h"
#include "core/error.h"

namespace slime::cluster {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr std::chrono::seconds kLong{20};
const SystemClock kClock;
LocalLauncher launcher;

/// Shell scripts in the place of workers.
struct Scripts {
  explicit Scripts(const std::string& script) {
    config.count = 2;
    config.command = {"/bin/sh", "-c", script};
    config.log_folder =
        std::filesystem::temp_directory_path() / ("slime_workers_" + std::to_string(::getpid()));
    config.silence_limit = kLong;
  }
  ~Scripts() { std::filesystem::remove_all(config.log_folder); }

  /// What the owner is told who waits for an answer of rank 1.
  std::string failure() const {
    Workers workers(config, launcher, kClock);
    try {
      workers.answer(1, kLong);
    } catch (const WorkerFailure& error) {
      return error.what();
    }
    return "";
  }

  WorkersConfig config;
};

TEST(Workers, AWorkerThatDiesIsNamedWithItsSignalAndItsLastLines) {
  const std::string text = Scripts("echo one; echo two; kill -SEGV $$").failure();
  EXPECT_THAT(text, testing::MatchesRegex("rank [12] \\(process [0-9]+\\) was killed by signal 11 "
                                          "\\(Segmentation fault\\)\n.*\n  one\n  two"));
}

TEST(Workers, AWorkerThatEndsIsNamedWithItsExitCode) {
  EXPECT_THAT(Scripts("exit 7").failure(), HasSubstr("ended with exit code 7"));
}

TEST(Workers, AWorkerSeesItsOwnDeviceAndTheRestOfTheEnvironment) {
  Scripts scripts(R"(echo "sees $CUDA_VISIBLE_DEVICES, home $HOME"; exit 7)");
  scripts.config.places = {{.device = 0}, {.device = 1}};
  ::setenv("CUDA_VISIBLE_DEVICES", "3,GPU-8932f937", 1);
  const std::string text = scripts.failure();
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  const std::string home = std::getenv("HOME");
  EXPECT_THAT(
      text, AnyOf(HasSubstr("sees 3, home " + home), HasSubstr("sees GPU-8932f937, home " + home)));
}

TEST(Workers, SilenceEndsItToo) {
  // A heartbeat of 6 bytes: two collectives begun.
  Scripts scripts(
      R"(printf 'SLMF\004\000\000\000\006\000\000\000\000\000\000\0002 busy' >&3; exec sleep 100)");
  scripts.config.silence_limit = std::chrono::milliseconds(150);
  const std::string text = scripts.failure();
  EXPECT_THAT(text, HasSubstr("has said nothing for 0."));
  EXPECT_THAT(text, HasSubstr("the last thing it did: busy"));
}

TEST(Workers, AWorkerThatNeverBeginsEndsItToo) {
  Scripts scripts("exec sleep 100");
  scripts.config.silence_limit = scripts.config.start_limit = std::chrono::milliseconds(150);
  EXPECT_THAT(scripts.failure(), HasSubstr("has not begun within 0."));
}

TEST(Workers, WhereEachRankIsSaysWhoStayedAway) {
  Scripts scripts(
      R"(printf 'SLMF\004\000\000\000\006\000\000\000\000\000\000\0002 busy' >&3; exec sleep 100)");
  scripts.config.blame_limit = std::chrono::milliseconds(300);
  scripts.config.stop_limit = std::chrono::milliseconds(50);
  Workers workers(scripts.config, launcher, kClock);
  try {
    workers.blame("rank 0: summing the gradients: timed out", 3);
  } catch (const WorkerFailure& error) {
    EXPECT_THAT(error.what(), testing::MatchesRegex(
                                  "rank 0: summing the gradients: timed out\n"
                                  "rank 1 \\(process [0-9]+\\): 2 collectives begun, too few, now "
                                  "busy\n"
                                  "rank 2 .*"));
  }
}

TEST(Workers, ARankThatBlamesOthersIsBelievedWhenNobodyElseIsFound) {
  // A failure of 6 bytes: p, and what happened.
  Scripts scripts(
      R"(printf 'SLMF\005\000\000\000\006\000\000\000\000\000\000\000preset' >&3; exec sleep 100)");
  scripts.config.blame_limit = std::chrono::milliseconds(100);
  EXPECT_THAT(scripts.failure(), HasSubstr("cannot reach the other ranks: reset"));
}

TEST(Workers, BytesThatAreNoFrameEndIt) {
  EXPECT_THAT(Scripts("echo this is not a frame at all >&3; exec sleep 100").failure(),
              HasSubstr("what arrived is no frame"));
}

TEST(Workers, AFailureThatNobodyNoticesReachesTheLastResort) {
  Scripts scripts("exit 7");
  std::promise<std::string> told;
  scripts.config.notice_limit = std::chrono::milliseconds(10);
  scripts.config.last_resort = [&](const std::string& message) { told.set_value(message); };
  Workers workers(scripts.config, launcher, kClock);
  auto message = told.get_future();
  ASSERT_EQ(message.wait_for(kLong), std::future_status::ready);
  EXPECT_THAT(message.get(), HasSubstr("exit code 7"));
}

TEST(Workers, WorkersThatIgnoreEverythingAreGoneWithTheirOwner) {
  Scripts scripts("trap '' INT TERM; echo $$; exec sleep 100");
  scripts.config.stop_limit = std::chrono::milliseconds(50);
  std::vector<int> processes;
  {
    Workers workers(scripts.config, launcher, kClock);
    for (int rank = 1; rank <= 2; ++rank) {
      const auto log = scripts.config.log_folder / ("rank_" + std::to_string(rank) + ".log");
      int process = 0;
      while (process == 0) std::ifstream(log) >> process;
      processes.push_back(process);
    }
  }
  for (const int process : processes) EXPECT_NE(::kill(process, 0), 0);
}

TEST(Workers, EachWorkerMayHaveASecondConnectionAndAnotherNoun) {
  Scripts scripts("echo $0 >&4; exit 3");
  scripts.config.noun = "engine";
  scripts.config.count = 1;
  scripts.config.has_data = true;
  Workers workers(scripts.config, launcher, kClock);
  const int data = workers.take_data(1);
  try {
    workers.answer(1, kLong);
    ADD_FAILURE() << "it has ended";
  } catch (const WorkerFailure& error) {
    EXPECT_THAT(error.what(),
                testing::MatchesRegex("engine 1 \\(process [0-9]+\\) ended with exit code 3"));
  }
  std::array<char, 100> said{};
  EXPECT_GT(::read(data, said.data(), said.size()), 0);
  EXPECT_EQ(::read(data, said.data(), said.size()), 0) << "nobody else holds the other end";
  ::close(data);
  EXPECT_TRUE(std::filesystem::exists(scripts.config.log_folder / "engine_1.log"));
}

/// A greeting, and then an answer of 2 bytes.
const char* const kGreets =
    R"(greet() { printf 'SLMF\006\000\000\000\001\000\000\000\000\000\000\000%s' "$1" >&3; }
       answer() { printf 'SLMF\003\000\000\000\002\000\000\000\000\000\000\000ok' >&3; }
       )";

TEST(Workers, AWorkerOfTheRunsEpochIsHeard) {
  Scripts scripts(
      std::string(kGreets) +
      R"([ ${#SLIME_RUN_TOKEN} = 64 ] && greet "$SLIME_RUN_EPOCH"; answer; exec sleep 100)");
  scripts.config.identity = {.token = make_run_token(), .epoch = 2};
  scripts.config.stop_limit = std::chrono::milliseconds(50);
  Workers workers(scripts.config, launcher, kClock);
  EXPECT_EQ(workers.answer(1, kLong), "ok");
}

TEST(Workers, AWorkerWithoutAGreetingOrOfAnOlderEpochIsRefused) {
  const auto failure = [](const std::string& greeting) {
    Scripts scripts(kGreets + greeting + "; answer; exec sleep 100");
    scripts.config.identity = {.token = make_run_token(), .epoch = 2};
    return scripts.failure();
  };
  EXPECT_THAT(failure(R"(greet 1)"),
              HasSubstr("is refused: it is of epoch 1, and the run is in epoch 2"));
  EXPECT_THAT(failure("greet x"), HasSubstr("is refused: it does not begin with its epoch"));
  EXPECT_THAT(failure("true"), HasSubstr("is refused: it does not begin with its epoch"));
}

TEST(Workers, WhatTheUserGaveIsAConfigurationErrorWhicheverWorkerFindsIt) {
  Scripts scripts(
      R"(printf 'SLMF\005\000\000\000\010\000\000\000\000\000\000\000cno such' >&3; exec sleep 100)");
  Workers workers(scripts.config, launcher, kClock);
  try {
    workers.answer(1, kLong);
    ADD_FAILURE() << "it has failed";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "no such");
  }
}

TEST(Workers, AProgramThatDoesNotExistIsAConfigurationError) {
  Scripts scripts("");
  scripts.config.command = {"/nonexistent/slime", "worker"};
  EXPECT_THROW(Workers(scripts.config, launcher, kClock), ConfigError);
}

}  // namespace
}  // namespace slime::cluster
