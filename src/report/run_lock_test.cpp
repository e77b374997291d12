#include "report/run_lock.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "core/error.h"

namespace slime::report {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::filesystem::path empty_folder(const std::string& name) {
  const auto folder = std::filesystem::path(testing::TempDir()) / ("run_lock_" + name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

std::string refusal(const std::filesystem::path& folder) {
  try {
    const RunLock lock(folder, "--run-dir");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(RunLock, TheSecondOneIsToldWhoHoldsIt) {
  const auto folder = empty_folder("second");
  const RunLock lock(folder, "--run-dir");
  EXPECT_TRUE(lock.keeps_others_out());
  EXPECT_THAT(refusal(folder),
              AllOf(HasSubstr("--run-dir " + folder.string()),
                    HasSubstr(fmt::format("process {} on ", ::getpid())), HasSubstr(" UTC;")));
}

TEST(RunLock, IsFreeAgainWhenItsOwnerIsGone) {
  const auto folder = empty_folder("free");
  { const RunLock lock(folder, "--run-dir"); }
  EXPECT_EQ(refusal(folder), "");
}

TEST(RunLock, IsFreeAgainWhenItsOwnerWasKilled) {
  const auto folder = empty_folder("killed");
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      const RunLock lock(folder, "--run-dir");
      ::kill(::getpid(), SIGKILL);
    } catch (const ConfigError&) {
    }
    ::_exit(1);  // never on into the other tests
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(refusal(folder), "");
}

}  // namespace
}  // namespace slime::report
