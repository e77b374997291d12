#include "sandbox/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "sandbox/for_tests.h"
#include "sandbox/sandbox.h"

namespace slime::sandbox {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// A machine with two GPUs, the second and the fourth: empty files instead of devices, and a driver
/// library outside of /usr.
class GpuPlacesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    for (const char* name : {"nvidiactl", "nvidia-uvm", "nvidia1", "nvidia3"}) add("dev", name);
    add("driver", "libcuda.so.1");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void add(const char* folder, const char* name) {
    std::filesystem::create_directories(folder_ / folder);
    std::ofstream(folder_ / folder / name) << name;
  }
  GpuPlaces places() const {
    return {.devices = folder_ / "dev", .libraries = {folder_ / "none", folder_ / "driver"}};
  }

  std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) / "gpu_places";
};

std::string refusal(int number, const GpuPlaces& places) {
  try {
    files_of_gpu(number, places);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST_F(GpuPlacesTest, OneGpuIsTheDriversDoorItsMemoryAndOneFile) {
  const GpuFiles files = files_of_gpu(3, places());
  const std::filesystem::path devices = folder_ / "dev";
  EXPECT_THAT(files.devices,
              ElementsAre(devices / "nvidiactl", devices / "nvidia-uvm", devices / "nvidia3"));
  EXPECT_EQ(files.libraries, folder_ / "driver");
  EXPECT_THAT(files.environment, ElementsAre("LD_LIBRARY_PATH=" + (folder_ / "driver").string()));
}

TEST_F(GpuPlacesTest, WhatIsNotThereIsRefusedWithWhatIs) {
  EXPECT_THAT(refusal(0, places()),
              AllOf(HasSubstr("GPU 0: there is no "), HasSubstr("its GPUs are nvidia1, nvidia3;")));
  std::filesystem::remove(folder_ / "driver" / "libcuda.so.1");
  EXPECT_THAT(refusal(1, places()), HasSubstr("there is no libcuda.so.1"));
  std::filesystem::remove_all(folder_);
  EXPECT_THAT(refusal(1, places()), HasSubstr("this machine shows no NVIDIA GPU"));
}

TEST_F(GpuPlacesTest, ASandboxShowsTheChosenGpuAloneAndLimitsNoAddresses) {
  if (const auto& why = no_bubblewrap()) GTEST_SKIP() << *why;
  Sandbox sandbox({.gpu = 3, .gpu_places = places()});
  const std::string dev = (folder_ / "dev").string();
  const Outcome outcome = sandbox.run(
      {.words = {"sh", "-c", "ls " + dev + "; echo $LD_LIBRARY_PATH; ulimit -v; ulimit -d"}});
  EXPECT_EQ(outcome.output, "nvidia-uvm\nnvidia3\nnvidiactl\n" + (folder_ / "driver").string() +
                                "\nunlimited\n1048576\n");
  Sandbox other;
  EXPECT_THAT(other.run({.words = {"sh", "-c", "ulimit -v; ls /dev"}}).output,
              AllOf(Not(HasSubstr("unlimited")), Not(HasSubstr("nvidia"))));
}

// mbind of nothing: EINVAL where the call exists, ENOSYS where the filter has taken it away.
TEST_F(GpuPlacesTest, MemoryMayBeBoundToANodeBesideAGpuOnly) {
  if (const auto& why = no_bubblewrap()) GTEST_SKIP() << *why;
  constexpr const char* kScript =
      "import ctypes; c = ctypes.CDLL(None, use_errno=True); c.syscall(237, 0, 0, 99, 0, 0, 0);"
      "print(ctypes.get_errno())";
  Sandbox with({.gpu = 1, .gpu_places = places()}), without;
  EXPECT_EQ(with.run({.words = {"python3", "-c", kScript}}).output, "22\n");
  EXPECT_EQ(without.run({.words = {"python3", "-c", kScript}}).output, "38\n");
}

TEST_F(GpuPlacesTest, ASandboxWithAGpuThatIsNotThereIsRefused) {
  EXPECT_THROW(Sandbox({.gpu = 2, .gpu_places = places()}), ConfigError);
}

}  // namespace
}  // namespace slime::sandbox
