#include "core/child_process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "core/temporary_folder.h"

namespace slime {
namespace {

using How = ChildEnd::How;

ChildPlan shell(const std::string& script) { return {.words = {"/bin/sh", "-c", script}}; }

TEST(RunChild, GivesTheWholeTextAndTheExitStatus) {
  const ChildEnd end = run_child(shell("echo one; printf two; exit 3"));
  EXPECT_EQ(end.how, How::kExited);
  EXPECT_EQ(end.number, 3);
  EXPECT_FALSE(end.is_success());
  EXPECT_EQ(end.text, "one\ntwo");
  EXPECT_TRUE(run_child(shell("exit 0")).is_success());
}

TEST(RunChild, GivesLinesAsTheyComeAndNotTheirText) {
  std::vector<std::string> lines;
  ChildPlan plan = shell("echo one; echo; echo two; kill -ABRT $$");
  plan.on_line = [&](const std::string& line) { lines.push_back(line); };
  const ChildEnd end = run_child(plan);
  EXPECT_EQ(end.how, How::kSignalled);
  EXPECT_EQ(end.number, SIGABRT);
  EXPECT_EQ(end.text, "");
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "", "two"}));
}

TEST(RunChild, IsKilledWhenItsTimeIsOver) {
  ChildPlan plan = shell("echo one; exec sleep 100");
  plan.patience = std::chrono::milliseconds(300);
  const ChildEnd end = run_child(plan);
  EXPECT_EQ(end.how, How::kTimedOut);
  EXPECT_FALSE(end.is_success());
  EXPECT_EQ(end.text, "one\n");
}

TEST(RunChild, ThatPrintsWithoutEndIsKilled) {
  ChildPlan plan = shell("exec yes");
  plan.most_bytes = 1000;
  EXPECT_EQ(run_child(plan).how, How::kPrintedTooMuch);
  plan = shell("exec tr '\\0' 'x' < /dev/zero");
  plan.on_line = [](const std::string&) { FAIL() << "a line"; };
  EXPECT_EQ(run_child(plan).how, How::kPrintedTooMuch);
}

TEST(RunChild, ManyShortLinesAreNotTooMuch) {
  int count = 0;
  ChildPlan plan = shell("yes | head -n 5000");
  plan.most_bytes = 100;
  plan.on_line = [&](const std::string&) { ++count; };
  EXPECT_TRUE(run_child(plan).is_success());
  EXPECT_EQ(count, 5000);
}

TEST(RunChild, MayGoOnWithoutTheRestOfItsText) {
  ChildPlan plan = shell("yes | head -n 5000; exit 4");
  plan.most_bytes = 5;
  plan.drops_the_rest = true;
  const ChildEnd end = run_child(plan);
  EXPECT_EQ(end.how, How::kExited);
  EXPECT_EQ(end.number, 4);
  EXPECT_EQ(end.text, "y\ny\ny");
}

TEST(RunChild, ThatCannotBeStartedSaysTheError) {
  const ChildEnd end = run_child({.words = {"/no/such/program"}});
  EXPECT_EQ(end.how, How::kNotStarted);
  EXPECT_EQ(end.number, ENOENT);
}

TEST(RunChild, LooksInThePathWhereThatIsWanted) {
  EXPECT_EQ(run_child({.words = {"true"}}).how, How::kNotStarted);
  EXPECT_TRUE(run_child({.words = {"true"}, .is_on_path = true}).is_success());
}

TEST(RunChild, GetsTheEnvironmentAndNoInput) {
  ChildPlan plan = shell("cat; echo \"$SLIME_WORD$HOME\"");
  plan.environment = std::vector<std::string>{"SLIME_WORD=here", "PATH=/usr/bin:/bin"};
  EXPECT_EQ(run_child(plan).text, "here\n");
}

TEST(RunChild, ReadsStandardErrorWhereThatIsWanted) {
  ChildPlan plan = shell("echo output; echo error >&2");
  plan.reads = ChildPlan::Stream::kErrors;
  EXPECT_EQ(run_child(plan).text, "error\n");
}

TEST(RunChild, AppendsStandardErrorToItsLog) {
  const TemporaryFolder folder("slime-child-test");
  ChildPlan plan = shell("echo output; echo error >&2");
  plan.error_log = folder.path() / "log";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(run_child(plan).text, "output\n");
  std::ifstream log(plan.error_log);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(log), {}), "error\nerror\n");
}

/// An exception of the caller leaves no process behind: `sleep` would keep the pipe open for 100 s.
TEST(RunChild, IsEndedByAnExceptionOfTheCallback) {
  ChildPlan plan = shell("echo $$; exec sleep 100");
  pid_t child = 0;
  plan.on_line = [&](const std::string& line) {
    child = std::stoi(line);
    throw std::runtime_error("enough");
  };
  EXPECT_THROW(run_child(plan), std::runtime_error);
  ASSERT_GT(child, 0);
  EXPECT_EQ(::kill(child, 0), -1);
}

}  // namespace
}  // namespace slime
