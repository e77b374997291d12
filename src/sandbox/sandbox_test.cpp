#include "sandbox/sandbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "core/error.h"
#include "sandbox/for_tests.h"

namespace slime::sandbox {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::StartsWith;

/// Each test says why it cannot be here.
class SandboxTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto& why = no_bubblewrap()) GTEST_SKIP() << *why;
  }
};

Command shell(const std::string& text, const std::string& input = "") {
  return {.words = {"sh", "-c", text}, .input = input};
}

Limits limits_of(std::chrono::milliseconds time) {
  Limits limits;
  limits.time = time;
  return limits;
}

TEST_F(SandboxTest, WhereBubblewrapWorksTheSandboxDoes) {
  EXPECT_EQ(why_unavailable(), std::nullopt);
}

TEST_F(SandboxTest, ACommandsOutputsInputAndExitCodeAreSeen) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.run(shell("cat; echo problem >&2; exit 7", "question"));
  EXPECT_EQ(outcome.ending, Ending::kExited);
  EXPECT_EQ(outcome.code, 7);
  EXPECT_EQ(outcome.output, "question");
  EXPECT_EQ(outcome.error, "problem\n");
  EXPECT_EQ(outcome.reason, "exit code 7");
  EXPECT_FALSE(outcome.is_success());
}

TEST_F(SandboxTest, BytesStayAsTheyAre) {
  Sandbox sandbox;
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  EXPECT_EQ(sandbox.run({.words = {"cat"}, .input = bytes}).output, bytes);
  EXPECT_THAT(sandbox.read("/dev/zero", 100).error().message, HasSubstr("larger than 100 bytes"));
  ASSERT_TRUE(sandbox.write("/work/deep/folder/file", bytes));
  EXPECT_EQ(sandbox.read("/work/deep/folder/file", 256).value(), bytes);
}

TEST_F(SandboxTest, AnInputThatIsNotReadHoldsNothingUp) {
  Sandbox sandbox;
  EXPECT_TRUE(sandbox.run({.words = {"true"}, .input = std::string(8 << 20, 'x')}).is_success());
  const Outcome counted = sandbox.run({.words = {"wc", "-c"}, .input = std::string(8 << 20, 'x')});
  EXPECT_EQ(counted.output, "8388608\n");
}

TEST_F(SandboxTest, FilesStayFromCommandToCommandAndProcessesToo) {
  Sandbox sandbox;
  EXPECT_TRUE(sandbox.run(shell("echo 1 > kept; sleep 600 & echo $! > process")).is_success());
  EXPECT_EQ(sandbox.run(shell("cat kept; kill -0 $(cat process) && echo runs")).output,
            "1\nruns\n");
}

TEST_F(SandboxTest, EachSandboxHasItsOwnFiles) {
  Sandbox one, other;
  ASSERT_TRUE(one.write("/tmp/mine", "1"));
  EXPECT_EQ(one.read("/work/.tmp/mine", 8).value(), "1");
  EXPECT_THAT(other.read("/tmp/mine", 8).error().message, HasSubstr("No such file"));
}

TEST_F(SandboxTest, ASignalIsNamed) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.run(shell("kill -SEGV $$"));
  EXPECT_EQ(outcome.ending, Ending::kSignal);
  EXPECT_EQ(outcome.code, SIGSEGV);
  EXPECT_EQ(outcome.reason, "was ended by signal 11 (Segmentation fault)");
}

TEST_F(SandboxTest, AProgramThatIsNotThereIsNotStarted) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.run({.words = {"no-such-program"}});
  EXPECT_EQ(outcome.ending, Ending::kNotStarted);
  EXPECT_EQ(outcome.code, ENOENT);
  EXPECT_THAT(outcome.reason, StartsWith("could not run the program (no-such-program): "));
  EXPECT_THAT(sandbox.run({.words = {"true"}, .folder = "/nowhere"}).reason,
              StartsWith("could not enter the folder"));
}

TEST_F(SandboxTest, TimeEndsTheCommandAndItsGroupAndLeavesTheSandbox) {
  Sandbox sandbox;
  const Outcome outcome =
      sandbox.run(shell("echo begun; sleep 600 & echo $! > process; wait"), limits_of(300ms));
  EXPECT_EQ(outcome.ending, Ending::kTime);
  EXPECT_EQ(outcome.output, "begun\n");
  EXPECT_EQ(outcome.reason, "was ended after 0.3 s");
  EXPECT_FALSE(sandbox.is_over());
  const Outcome after = sandbox.run(shell("kill -0 $(cat process)"));
  EXPECT_EQ(after.code, 1) << "the command's child still runs";
}

TEST_F(SandboxTest, WhatForkedProcessesShareCountsOnce) {
  SandboxConfig config;
  config.limits.memory_bytes = 256 << 20;
  Sandbox sandbox(config);
  const Outcome outcome = sandbox.run({.words = {"python3", "-c", R"(
import os, time
held = bytearray(b"x") * (150 << 20)
children = [os.fork() for _ in range(1)]
if children[0] == 0:
    grand = os.fork()
    time.sleep(0.3)
    os._exit(0)
time.sleep(0.5)
print("done")
)"}});
  EXPECT_EQ(outcome.output, "done\n") << outcome.reason << outcome.error;
}

TEST_F(SandboxTest, TooMuchMemoryEndsTheSandbox) {
  SandboxConfig config;
  config.limits.memory_bytes = 64 << 20;
  Sandbox sandbox(config);
  const Outcome outcome = sandbox.run({.words = {"python3", "-c", R"(
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = bytearray(b"x") * (40 << 20)
        time.sleep(60)
time.sleep(60)
)"}});
  EXPECT_EQ(outcome.ending, Ending::kMemory);
  EXPECT_EQ(outcome.reason, "was ended: more than 67108864 bytes of memory");
  EXPECT_TRUE(sandbox.is_over());
  const Outcome later = sandbox.run({.words = {"true"}});
  EXPECT_EQ(later.ending, Ending::kEnded);
  EXPECT_EQ(later.reason,
            "the sandbox is over: a command was ended: more than 67108864 bytes of memory");
}

TEST_F(SandboxTest, OutputIsKeptToItsLimit) {
  SandboxConfig config;
  config.limits.output_bytes = 1000;
  Sandbox sandbox(config);
  const Outcome fits = sandbox.run(shell("head -c 1000 /dev/zero; head -c 1000 /dev/zero >&2"));
  EXPECT_TRUE(fits.is_success()) << fits.reason;
  EXPECT_EQ(fits.error.size(), 1000u);
  const Outcome outcome = sandbox.run(shell("head -c 1001 /dev/zero; sleep 60"));
  EXPECT_EQ(outcome.ending, Ending::kOutput);
  EXPECT_EQ(outcome.output.size(), 1000u);
}

TEST_F(SandboxTest, CommandsRunAtTheSameTimeInOneSandbox) {
  Sandbox sandbox;
  Outcome reader;
  std::jthread waiting(
      [&] { reader = sandbox.run(shell("mkfifo -m 600 way 2>/dev/null; cat way")); });
  const Outcome writer =
      sandbox.run(shell("until [ -p way ]; do sleep 0.01; done; echo through > way"));
  waiting.join();
  EXPECT_TRUE(writer.is_success()) << writer.reason;
  EXPECT_EQ(reader.output, "through\n");
}

TEST_F(SandboxTest, AnEndEndsWhatRuns) {
  Sandbox sandbox;
  Outcome outcome;
  std::jthread waiting([&] { outcome = sandbox.run(shell("touch begun; sleep 600")); });
  while (!sandbox.read("/work/begun", 1)) std::this_thread::sleep_for(10ms);
  sandbox.end();
  waiting.join();
  EXPECT_EQ(outcome.ending, Ending::kEnded);
  EXPECT_EQ(outcome.reason, "the sandbox is over: it was closed");
}

TEST_F(SandboxTest, WhatIsReadableIsShownAndCannotBeWritten) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "slime_sandbox_readable";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "corpus") << "words";
  std::filesystem::permissions(folder, std::filesystem::perms(0777));
  SandboxConfig config;
  config.readable = {folder};
  Sandbox sandbox(config);
  EXPECT_EQ(sandbox.read((folder / "corpus").string(), 100).value(), "words");
  EXPECT_THAT(sandbox.write((folder / "more").string(), "x").error().message,
              HasSubstr("Read-only file system"));
  std::filesystem::remove_all(folder);
}

TEST_F(SandboxTest, EnvironmentAndFolderAreTheCommands) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.run(
      {.words = {"/usr/bin/env"}, .environment = {"A=1", "B=two words"}, .folder = "/tmp"});
  EXPECT_EQ(outcome.output, "A=1\nB=two words\n");
  EXPECT_EQ(sandbox.run({.words = {"sh", "-c", "pwd -P"}, .folder = "/tmp"}).output,
            "/work/.tmp\n");
}

TEST_F(SandboxTest, WhatIsToBeShownHasToBeThere) {
  SandboxConfig config;
  config.readable = {"/no/such/folder"};
  try {
    const Sandbox sandbox(config);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/no/such/folder"));
  }
}

TEST(SandboxLimits, OutOfRangeAreConfigurationErrors) {
  SandboxConfig config;
  config.limits.memory_bytes = 1;
  EXPECT_THROW(Sandbox{config}, ConfigError);
  config.limits = {};
  config.limits.time = 0ms;
  EXPECT_THROW(Sandbox{config}, ConfigError);
}

}  // namespace
}  // namespace slime::sandbox
