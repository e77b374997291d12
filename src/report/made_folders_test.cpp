#include "report/made_folders.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>

namespace slime::report {
namespace {

namespace fs = std::filesystem;

class MadeFoldersTest : public testing::Test {
 protected:
  MadeFoldersTest() {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }

  /// A start that makes runs/a with its folders, does `what` there, and ends.
  void start(const std::function<void(const fs::path& run)>& what) {
    const fs::path run = root_ / "runs" / "a";
    MadeFolders made(run / "run.json");
    std::error_code error;
    made.make(run, error);
    made.make(run / "rollouts", error);
    made.make(root_ / "saved", error);
    ASSERT_FALSE(error) << error.message();
    write(run / "lock", "{}");
    write(root_ / "saved" / "lock", "{}");
    what(run);
  }

  static void write(const fs::path& path, const char* text) { std::ofstream(path) << text; }

  const fs::path root_ = fs::path(testing::TempDir()) / "made_folders";
};

TEST_F(MadeFoldersTest, ARefusedStartLeavesNothing) {
  start([](const fs::path& run) {
    fs::create_directories(run / "plugin");
    write(run / "plugin" / "host-0.log", "");
  });
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(MadeFoldersTest, ARunThatBeganKeepsAll) {
  start([](const fs::path& run) { write(run / "run.json", "{}"); });
  EXPECT_TRUE(fs::exists(root_ / "runs" / "a" / "rollouts"));
  EXPECT_TRUE(fs::exists(root_ / "saved" / "lock"));
}

TEST_F(MadeFoldersTest, WhatSomebodyMayWantStays) {
  start([](const fs::path& run) {
    fs::create_directories(run / "plugin");
    write(run / "plugin" / "host-0.log", "what the function printed\n");
  });
  EXPECT_TRUE(fs::exists(root_ / "runs" / "a" / "plugin" / "host-0.log"));
  EXPECT_TRUE(fs::exists(root_ / "runs" / "a" / "lock"));
  EXPECT_FALSE(fs::exists(root_ / "saved"));
}

TEST_F(MadeFoldersTest, FoldersThatWereThereStayAndSoDoOthersRuns) {
  fs::create_directories(root_ / "saved");
  start([this](const fs::path&) { fs::create_directories(root_ / "runs" / "b"); });
  EXPECT_FALSE(fs::exists(root_ / "runs" / "a"));
  EXPECT_TRUE(fs::exists(root_ / "runs" / "b"));
  EXPECT_TRUE(fs::exists(root_ / "saved" / "lock"));
}

}  // namespace
}  // namespace slime::report
