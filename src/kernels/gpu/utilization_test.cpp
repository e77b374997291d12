#include "kernels/gpu/utilization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace slime::kernels {
namespace {

using std::chrono::milliseconds;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(GpuUtilization, IsTheMeanSinceItWasLastTaken) {
  std::atomic<int> reads = 0;
  // 0.2 and 0.6 in turns; the second GPU always 1.
  GpuUtilization utilization(
      [&] {
        return std::vector<double>{reads++ % 2 == 0 ? 0.2 : 0.6, 1.0};
      },
      milliseconds(1));
  while (reads < 50) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_THAT(utilization.take(), ElementsAre(DoubleNear(0.4, 0.02), 1.0));
  const int before = reads;
  while (reads < before + 2) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_THAT(utilization.take(), ElementsAre(DoubleNear(0.4, 0.21), 1.0));
}

TEST(GpuUtilization, OfNothingIsNothing) {
  GpuUtilization without_nvml(nullptr);
  EXPECT_THAT(without_nvml.take(), IsEmpty());
  std::atomic<int> reads = 0;
  GpuUtilization of_slices(
      [&] {
        ++reads;
        return std::vector<double>();
      },
      milliseconds(1));
  while (reads < 3) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_THAT(of_slices.take(), IsEmpty());
}

TEST(GpuUtilization, EndsAtOnceHoweverLongItsPeriodIs) {
  const GpuUtilization utilization([] { return std::vector<double>{1}; }, std::chrono::hours(1));
}

}  // namespace
}  // namespace slime::kernels
