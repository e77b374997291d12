#include "doctor/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "doctor/disk.h"
#include "doctor/programs.h"

namespace slime::doctor {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// A made-up machine: files below a folder that goes with it.
class Machine {
 public:
  Machine() : root_(fs::path(testing::TempDir()) / "slime_doctor_machine") {
    fs::remove_all(root_);
    write("proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n");
    write("proc/cpuinfo", "model name\t: Example 3000\n");
    write("proc/self/cgroup", "0::/user.slice/job\n");
    fs::create_directories(root_ / "cgroup");
  }
  ~Machine() { fs::remove_all(root_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  SystemFiles files() const {
    return {.proc = root_ / "proc", .cgroup = root_ / "cgroup", .shared_memory = root_};
  }

 private:
  fs::path root_;
};

TEST(Doctor, TheStrictestGroupUpwardsBoundsTheProcess) {
  const Machine machine;
  machine.write("cgroup/cgroup.controllers", "cpu memory\n");
  machine.write("cgroup/user.slice/job/cpu.max", "max 100000\n");
  machine.write("cgroup/user.slice/job/memory.max", "max\n");
  machine.write("cgroup/user.slice/cpu.max", "50000 100000\n");
  machine.write("cgroup/user.slice/memory.max", "1073741824\n");
  machine.write("cgroup/user.slice/memory.current", "1024\n");
  const GroupLimits limits = group_limits(machine.files());
  EXPECT_EQ(limits.cores, 0.5);
  EXPECT_EQ(limits.memory_bytes, 1073741824);
  EXPECT_EQ(limits.memory_used, 1024);

  const Check processor = check_processor(machine.files());
  EXPECT_EQ(processor.state, State::kNote);
  EXPECT_THAT(processor.what, HasSubstr("Example 3000"));
  EXPECT_THAT(processor.cure, HasSubstr("--num-threads 1"));
  const Checks memory = check_memory(machine.files());
  EXPECT_EQ(memory[0].state, State::kNote);
  EXPECT_THAT(memory[0].what,
              HasSubstr("8.0 GiB of 16.0 GiB are available; the control group allows 1.0 GiB"));
}

TEST(Doctor, AGroupOfVersionOneIsReadToo) {
  const Machine machine;
  machine.write("cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  machine.write("cgroup/cpu/cpu.cfs_period_us", "100000\n");
  machine.write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const GroupLimits limits = group_limits(machine.files());
  EXPECT_EQ(limits.cores, 2.0);
  EXPECT_FALSE(limits.memory_bytes.has_value());
}

TEST(Doctor, WithoutGroupsTheMachineCounts) {
  const Machine machine;
  EXPECT_FALSE(group_limits(machine.files()).cores.has_value());
  EXPECT_EQ(check_memory(machine.files())[0].state, State::kOk);
}

TEST(Doctor, AFolderThatIsNotThereIsLookedAtWhereItWouldBeMade) {
  const fs::path folder = fs::path(testing::TempDir());
  const Checks checks = check_disk(folder / "no" / "such" / "run");
  ASSERT_EQ(checks.size(), 1U);
  EXPECT_NE(checks[0].state, State::kProblem) << checks[0].what;
  EXPECT_THAT(checks[0].what, HasSubstr("free"));
}

TEST(Doctor, AFileInTheWayOfTheRunIsAProblem) {
  const fs::path file = fs::path(testing::TempDir()) / "slime_doctor_file";
  std::ofstream(file) << "x";
  EXPECT_EQ(check_disk(file / "run")[0].state, State::kProblem);
  fs::remove(file);
}

TEST(Doctor, APythonThatIsNotThereOrIsNoneIsANote) {
  EXPECT_EQ(check_python("/no/such/python")[0].state, State::kNote);
  const Checks checks = check_python("/bin/echo");  // prints the script
  EXPECT_EQ(checks[0].state, State::kNote);
  EXPECT_THAT(checks[0].what, HasSubstr("something else"));
}

TEST(Doctor, BytesHaveTheUnitThatPeopleReadThemIn) {
  EXPECT_EQ(in_bytes(512), "512 bytes");
  EXPECT_EQ(in_bytes(1536), "1.5 KiB");
  EXPECT_EQ(in_bytes(150.0 * 1024 * 1024 * 1024), "150 GiB");
}

}  // namespace
}  // namespace slime::doctor
