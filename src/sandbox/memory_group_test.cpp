#include "sandbox/memory_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "sandbox/for_tests.h"
#include "sandbox/sandbox.h"

namespace slime::sandbox {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;

/// A folder that looks like a system's control groups; this process is in a/b, as "0::/a/b" says.
struct FakeGroups {
  FakeGroups() {
    fs::remove_all(root);
    fs::create_directories(root / "a" / "b");
    write("own", "9:name=systemd:/\n4:memory:/x\n0::/a/b\n");
  }
  ~FakeGroups() { fs::remove_all(root); }
  void write(const fs::path& file, const std::string& text) const {
    std::ofstream(root / file) << text;
  }
  ControlGroups groups() const { return {.root = root, .own = root / "own"}; }
  fs::path root = fs::temp_directory_path() / ("slime_groups_" + std::to_string(getpid()));
};

TEST(MemoryGroup, IsMadeBelowTheNearestGroupThatHandsTheMemoryControllerDown) {
  const FakeGroups fake;
  fake.write("cgroup.subtree_control", "cpu memory pids\n");
  fake.write("a/cgroup.subtree_control", "memory\n");
  fake.write("a/b/cgroup.subtree_control", "cpu\n");
  const auto group = MemoryGroup::make(fake.groups(), 1000);
  ASSERT_TRUE(group) << group.error().message;
  EXPECT_EQ(group->folder().parent_path(), fake.root / "a");
  EXPECT_EQ(text_of(group->folder() / "memory.max"), "1000");
  EXPECT_FALSE(group->was_exceeded());
  std::ofstream(group->folder() / "memory.events") << "low 0\nmax 9\noom 1\noom_kill 1\n";
  EXPECT_TRUE(group->was_exceeded());
}

TEST(MemoryGroup, WhereNoneHandsItDownThereIsNoneAndItIsToldWhy) {
  const FakeGroups fake;
  fake.write("cgroup.subtree_control", "cpu\n");
  EXPECT_THAT(MemoryGroup::make(fake.groups(), 1000).error().message,
              HasSubstr("a/b upwards hands the memory controller down"));
  fake.write("own", "4:memory:/x\n");
  EXPECT_THAT(MemoryGroup::make(fake.groups(), 1000).error().message,
              HasSubstr("names no group of version 2"));
  fake.write("own", "0::/../outside\n");
  EXPECT_FALSE(MemoryGroup::make(fake.groups(), 1000));
}

TEST(MemoryGroup, EmptyOnesOfProcessesThatAreGoneAreRemoved) {
  const FakeGroups fake;
  fake.write("cgroup.subtree_control", "memory\n");
  // No process has this number: they end at 4194304.
  fs::create_directories(fake.root / "slime-sandbox-2000000000-1");
  const fs::path alive = fake.root / ("slime-sandbox-" + std::to_string(getpid()) + "-999");
  fs::create_directories(alive);
  ASSERT_TRUE(MemoryGroup::make(fake.groups(), 1000));
  EXPECT_FALSE(fs::exists(fake.root / "slime-sandbox-2000000000-1"));
  EXPECT_TRUE(fs::exists(alive));
}

TEST(MemoryGroup, CommandsOfASandboxEnterItAndTheKernelsWordIsAVerdict) {
  if (const auto& why = no_bubblewrap()) GTEST_SKIP() << *why;
  const FakeGroups fake;
  fake.write("cgroup.subtree_control", "memory\n");
  SandboxConfig config{.groups = fake.groups()};
  config.limits.memory_bytes = 64 << 20;
  config.limits.disk_bytes = 16 << 20;
  Sandbox sandbox(config);
  fs::path group;
  for (const auto& entry : fs::directory_iterator(fake.root)) {
    if (entry.path().filename().string().starts_with("slime-sandbox-")) group = entry.path();
  }
  EXPECT_THAT(sandbox.memory_bound(), HasSubstr(group.string() + ", and looks"));
  EXPECT_EQ(text_of(group / "memory.max"), std::to_string(80 << 20)) << "memory and files";
  EXPECT_TRUE(sandbox.run({.words = {"true"}}).is_success());
  EXPECT_EQ(text_of(group / "cgroup.procs"), "0");
  std::ofstream(group / "memory.events") << "oom_kill 1\n";
  EXPECT_EQ(sandbox.run({.words = {"true"}}).ending, Ending::kMemory);
  EXPECT_TRUE(sandbox.is_over());
}

/// On a system where a group can be made, by the kernel itself: a look would come a second late.
TEST(MemoryGroup, TheKernelKeepsToItWhereItCan) {
  if (const auto& why = no_bubblewrap()) GTEST_SKIP() << *why;
  SandboxConfig config;
  config.limits.memory_bytes = 64 << 20;
  config.limits.disk_bytes = 16 << 20;
  fs::path folder;
  {
    const auto group = MemoryGroup::make({}, 1 << 20);
    if (!group) GTEST_SKIP() << group.error().message;
    folder = group->folder();
    EXPECT_TRUE(fs::exists(folder / "memory.max"));
  }
  EXPECT_FALSE(fs::exists(folder));
  Sandbox sandbox(config);
  EXPECT_THAT(sandbox.memory_bound(), EndsWith(", and looks"));
  const Outcome outcome = sandbox.run(
      {.words = {
           "python3", "-c",
           "import os\nfor i in range(8):\n  if os.fork() == 0: break\nx = b'x' * (40 << 20)\n"
           "import time; time.sleep(5)"}});
  EXPECT_EQ(outcome.ending, Ending::kMemory) << outcome.reason;
}

}  // namespace
}  // namespace slime::sandbox
