#include "kernels/gpu/rocm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "config/flag_table.h"

namespace slime::kernels {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A made-up machine: files below a folder that goes with it, variables, and the runtimes that can be loaded.
class AmdMachine {
 public:
  AmdMachine() : root_(fs::path(testing::TempDir()) / "slime_rocm") {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~AmdMachine() { fs::remove_all(root_); }
  AmdMachine(const AmdMachine&) = delete;
  AmdMachine& operator=(const AmdMachine&) = delete;

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  void has_driver() const { write("dev/kfd", ""); }
  void close_driver() const { fs::permissions(root_ / "dev/kfd", fs::perms::none); }
  void has_gpu(int node, int target_version) const {
    write("sys/class/kfd/kfd/topology/nodes/" + std::to_string(node) + "/properties",
          "cpu_cores_count 0\nsimd_count 1216\ngfx_target_version " +
              std::to_string(target_version) + "\nvendor_id 4098\n");
  }

  Rocm probe() const {
    return probe_rocm({.root = root_,
                       .variable = [this](const std::string& name) -> std::optional<std::string> {
                         const auto found = variables.find(name);
                         if (found == variables.end()) return std::nullopt;
                         return found->second;
                       },
                       .count = [this](const std::string& name) -> std::optional<HipCount> {
                         const auto found = runtimes.find(name);
                         if (found == runtimes.end()) return std::nullopt;
                         return found->second;
                       }});
  }

  std::map<std::string, std::string> variables;
  std::map<std::string, HipCount> runtimes;

 private:
  fs::path root_;
};

constexpr const char* kNoDriver =
    "there is no /dev/kfd: the amdgpu driver is not loaded, or the container was started without "
    "--device /dev/kfd --device /dev/dri";
constexpr const char* kNoRuntime =
    "no HIP runtime can be loaded (libamdhip64.so.7, libamdhip64.so.6, libamdhip64.so.5): install "
    "ROCm 7, and put its lib folder into LD_LIBRARY_PATH";

TEST(ProbeRocm, NamesDriverAndRuntimeWhereNeitherIsThere) {
  const Rocm rocm = AmdMachine().probe();
  EXPECT_THAT(rocm.missing, ElementsAre(kNoDriver, kNoRuntime));
  EXPECT_FALSE(rocm.is_anything_there());
  EXPECT_EQ(rocm.num_visible, 0);
}

TEST(ProbeRocm, TakesTheNewestRuntimeThatIsThere) {
  AmdMachine machine;
  machine.has_driver();
  machine.has_gpu(1, 90402);
  machine.write("opt/rocm/.info/version", "7.2.0-43\n");
  machine.runtimes = {{"libamdhip64.so.5", {0, 1}}, {"libamdhip64.so.7", {0, 2}}};
  const Rocm rocm = machine.probe();
  EXPECT_THAT(rocm.missing, IsEmpty());
  EXPECT_EQ(rocm.runtime, "libamdhip64.so.7");
  EXPECT_EQ(rocm.num_visible, 2);
  EXPECT_EQ(rocm.version, "7.2.0-43");
  EXPECT_THAT(rocm.gfx, ElementsAre("gfx942"));
}

TEST(ProbeRocm, SaysTheRuntimesWordWhereThereIsNoDevice) {
  AmdMachine machine;
  machine.runtimes = {{"libamdhip64.so.5", {100, 0}}};
  EXPECT_THAT(machine.probe().missing, ElementsAre(kNoDriver, "no AMD GPU (hipErrorNoDevice)"));
  EXPECT_TRUE(machine.probe().is_anything_there());
}

TEST(ProbeRocm, NamesTheVariablesThatMayHideDevices) {
  AmdMachine machine;
  machine.has_driver();
  machine.runtimes = {{"libamdhip64.so.6", {100, 0}}};
  machine.variables = {{"HIP_VISIBLE_DEVICES", "-1"}, {"ROCR_VISIBLE_DEVICES", "0"}};
  EXPECT_THAT(machine.probe().missing,
              ElementsAre("no AMD GPU (hipErrorNoDevice) (HIP_VISIBLE_DEVICES=-1, "
                          "ROCR_VISIBLE_DEVICES=0)"));
  machine.runtimes = {{"libamdhip64.so.6", {0, 0}}};
  machine.variables = {{"HIP_VISIBLE_DEVICES", ""}};
  EXPECT_THAT(machine.probe().missing,
              ElementsAre("libamdhip64.so.6 shows no device (HIP_VISIBLE_DEVICES=)"));
}

TEST(ProbeRocm, NumbersTheErrorsItHasNoWordFor) {
  AmdMachine machine;
  machine.has_driver();
  machine.runtimes = {{"libamdhip64.so.7", {35, 0}}};
  EXPECT_THAT(machine.probe().missing,
              ElementsAre("libamdhip64.so.7 cannot count its devices: HIP error 35"));
}

/// Root may open everything.
TEST(ProbeRocm, NamesTheGroupsOfADriverThatIsClosed) {
  if (::geteuid() == 0) GTEST_SKIP() << "root opens every file";
  AmdMachine machine;
  machine.has_driver();
  machine.close_driver();
  EXPECT_THAT(machine.probe().missing,
              ElementsAre("/dev/kfd is there and this user may not open it: add the user to the "
                          "groups render and video (docker run --group-add video --group-add "
                          "render)",
                          kNoRuntime));
}

TEST(ProbeRocm, ReadsTheDriversGpusInTheirOrderAndLeavesProcessorsOut) {
  AmdMachine machine;
  machine.has_driver();
  machine.has_gpu(0, 0);  // a processor
  machine.has_gpu(10, 90500);
  machine.has_gpu(2, 90402);
  machine.has_gpu(3, 90010);
  EXPECT_THAT(machine.probe().gfx, ElementsAre("gfx942", "gfx90a", "gfx950"));
}

TEST(ProbeRocm, TakesNoVersionFromAFileOfAnotherKind) {
  AmdMachine machine;
  machine.write("opt/rocm/.info/version", "<html>");
  EXPECT_EQ(machine.probe().version, "");
}

/// config includes no kernels, so the flag's row has the words once more.
TEST(RocmLabel, IsWhatTheFlagSays) {
  const auto row = std::ranges::find(config::flag_table(), "--device", &config::FlagRow::name);
  ASSERT_NE(row, config::flag_table().end());
  EXPECT_THAT(std::string(row->meaning), ::testing::HasSubstr(std::string(kRocmLabel)));
}

TEST(GfxName, HasHexadecimalDigits) {
  EXPECT_EQ(gfx_name(90402), "gfx942");
  EXPECT_EQ(gfx_name(90500), "gfx950");
  EXPECT_EQ(gfx_name(90010), "gfx90a");
  EXPECT_EQ(gfx_name(110001), "gfx1101");
}

}  // namespace
}  // namespace slime::kernels
