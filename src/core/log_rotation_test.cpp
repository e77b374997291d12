#include "core/log_rotation.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

namespace slime {
namespace {

class LogRotation : public testing::Test {
 protected:
  LogRotation() { std::filesystem::create_directories(folder_); }
  ~LogRotation() override { std::filesystem::remove_all(folder_); }

  void append(const std::string& text) const { std::ofstream(file_, std::ios::app) << text; }
  static std::string text_of(const std::filesystem::path& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("slime_logs_" + std::to_string(::getpid()));
  std::filesystem::path file_ = folder_ / "a.log", before_ = folder_ / "a.log.1";
};

TEST_F(LogRotation, WhatIsAboveTheLimitIsSetAsideAndTheOneBeforeGoes) {
  append("one");
  rotate_log(file_, 3);
  EXPECT_EQ(text_of(file_), "one") << "it is not above";
  append("two");
  rotate_log(file_, 3);
  EXPECT_EQ(text_of(before_), "onetwo");
  EXPECT_FALSE(std::filesystem::exists(file_));
  append("three");
  rotate_log(file_, 3);
  EXPECT_EQ(text_of(before_), "three");
  rotate_log(folder_ / "none.log", 3);
}

TEST_F(LogRotation, WhoHoldsTheFileGoesOnAtItsBeginning) {
  const int other = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ASSERT_EQ(::write(other, "before", 6), 6);
  rotate_log_of_others(file_, 3);
  ASSERT_EQ(::write(other, "after", 5), 5);
  ::close(other);
  EXPECT_EQ(text_of(before_), "before");
  EXPECT_EQ(text_of(file_), "after");
}

TEST_F(LogRotation, AProcessMovesItsOwnOutput) {
  std::fflush(nullptr);  // or the copy would say it again
  const pid_t child = ::fork();
  if (child == 0) {
    const int output = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
    bool is_well = ::write(STDOUT_FILENO, "before", 6) == 6;
    rotate_own_output(3);
    is_well &= ::write(STDERR_FILENO, "after", 5) == 5;
    ::_exit(is_well ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(text_of(before_), "before");
  EXPECT_EQ(text_of(file_), "after");
}

}  // namespace
}  // namespace slime
