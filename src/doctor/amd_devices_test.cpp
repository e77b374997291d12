#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/devices.h"

namespace slime::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(CheckAmdDevices, SaysNothingWhereThereIsNothingOfAmd) {
  kernels::Rocm rocm;
  rocm.missing = {"there is no /dev/kfd", "no HIP runtime"};
  EXPECT_THAT(check_amd_devices(rocm), IsEmpty());
}

TEST(CheckAmdDevices, ShowsGfxNamesAndRocmsVersion) {
  kernels::Rocm rocm;
  rocm.has_driver = true;
  rocm.runtime = "libamdhip64.so.7";
  rocm.version = "7.2.0";
  rocm.gfx = {"gfx942", "gfx942", "gfx950"};
  rocm.num_visible = 3;
  const Checks checks = check_amd_devices(rocm);
  ASSERT_EQ(checks.size(), 1U);
  EXPECT_EQ(checks[0].what,
            "AMD GPUs: gfx942 x 2, gfx950 x 1; ROCm 7.2.0, runtime libamdhip64.so.7, 3 visible");
  EXPECT_THAT(checks[0].cure, HasSubstr("--device auto none"));
  EXPECT_THAT(checks[0].cure, HasSubstr("not yet run on it"));
}

TEST(CheckAmdDevices, HasALineForEachMissingPartAndNoProblem) {
  kernels::Rocm rocm;
  rocm.runtime = "libamdhip64.so.5";
  rocm.missing = {"there is no /dev/kfd", "no AMD GPU (hipErrorNoDevice)"};
  const Checks checks = check_amd_devices(rocm);
  ASSERT_EQ(checks.size(), 3U);
  EXPECT_EQ(checks[0].what,
            "AMD GPUs: none in the driver's list; ROCm of unknown version, runtime "
            "libamdhip64.so.5, 0 visible");
  EXPECT_EQ(checks[1].what, "there is no /dev/kfd");
  EXPECT_EQ(checks[2].what, "no AMD GPU (hipErrorNoDevice)");
  EXPECT_FALSE(has_problem(checks));
}

}  // namespace
}  // namespace slime::doctor
