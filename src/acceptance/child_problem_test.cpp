#include "acceptance/child_problem.h"

#include <gtest/gtest.h>

#include <vector>

namespace slime::acceptance {
namespace {

ChildPlan shell(const std::string& script, std::vector<std::string>* lines = nullptr) {
  ChildPlan plan{.words = {"/bin/sh", "-c", script}};
  if (lines != nullptr) plan.on_line = [lines](const std::string& line) { lines->push_back(line); };
  return plan;
}

TEST(ChildProblem, GivesTheLinesOfItsOutput) {
  std::vector<std::string> lines;
  EXPECT_EQ(problem_of_child(shell("echo one; echo two", &lines)), "");
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "two"}));
}

/// As a process ends whose GPU has faulted.
TEST(ChildProblem, KeepsWhatItSaidBeforeASignalEndedIt) {
  std::vector<std::string> lines;
  EXPECT_EQ(problem_of_child(shell("echo one; kill -ABRT $$", &lines)), "ended by signal 6");
  EXPECT_EQ(lines, std::vector<std::string>{"one"});
}

TEST(ChildProblem, SaysItsExitCode) { EXPECT_EQ(problem_of_child(shell("exit 3")), "exit code 3"); }

TEST(ChildProblem, IsKilledWhenItsTimeIsOver) {
  ChildPlan plan = shell("exec sleep 100");
  plan.patience = std::chrono::seconds(1);
  EXPECT_EQ(problem_of_child(plan), "took more than 1 s");
}

TEST(ChildProblem, OfEndlessLinesIsEnded) {
  EXPECT_EQ(problem_of_child(shell("exec tr '\\0' 'x' < /dev/zero")),
            "printed a line that is no figure");
}

}  // namespace
}  // namespace slime::acceptance
