#include "bench/device_profile.h"

#include <gtest/gtest.h>

namespace slime::bench {
namespace {

TEST(DeviceProfile, WhatNothingRunsBesideIsExposedAndWhatNobodyFillsIsIdle) {
  constexpr int64_t kMs = 1'000'000;
  // Two steps of 10 ms: a product beside half of a collective, then a pause, then a short kernel.
  const std::vector<kernels::TracedKernel> kernels{
      {"nvjet_hsh_128x256", 7, 0, 8 * kMs},
      {"ncclDevKernel_AllReduce", 9, 4 * kMs, 12 * kMs},
      {"void slime::kernels::cuda::add_rms_norm_kernel<float>", 7, 19'999'000, 20 * kMs},
  };
  const json::object profile = device_profile(kernels, 2);
  EXPECT_DOUBLE_EQ(profile.at("span_ms").to_number<double>(), 10);
  EXPECT_DOUBLE_EQ(profile.at("compute_ms").to_number<double>(), 4.0005);
  EXPECT_DOUBLE_EQ(profile.at("collectives_ms").to_number<double>(), 4);
  EXPECT_DOUBLE_EQ(profile.at("exposed_collectives_ms").to_number<double>(), 2);
  EXPECT_DOUBLE_EQ(profile.at("idle_ms").to_number<double>(), 3.9995);
  EXPECT_DOUBLE_EQ(profile.at("short_kernels_ms").to_number<double>(), 0.0005);
  EXPECT_DOUBLE_EQ(profile.at("groups").at("products").to_number<double>(), 4);
  EXPECT_EQ(profile.at("kernels").as_array().size(), 3U);
  ASSERT_EQ(profile.at("gaps").as_array().size(), 1U);
  EXPECT_EQ(profile.at("gaps").at(0).at(0).as_string(), "ncclDevKernel_AllReduce");
  EXPECT_DOUBLE_EQ(profile.at("gaps").at(0).at(2).to_number<double>(), 3.9995);
}

TEST(DeviceProfile, AKernelThatWaitsInsideAddsWhatIsBehindTheOneBefore) {
  constexpr int64_t kMs = 1'000'000;
  const std::vector<kernels::TracedKernel> kernels{
      {"down", 7, 6 * kMs, 9 * kMs},  // launched early, behind the next one in this list
      {"gate_up", 7, 0, 8 * kMs},
      {"norm", 7, 10 * kMs, 11 * kMs},
  };
  const json::object profile = device_profile(kernels, 1);
  EXPECT_EQ(profile.at("added").as_array().size(), 3U);
  EXPECT_DOUBLE_EQ(profile.at("added").at(0).at(1).to_number<double>(), 8);
  EXPECT_DOUBLE_EQ(profile.at("added").at(1).at(1).to_number<double>(), 1);
  EXPECT_DOUBLE_EQ(profile.at("kernels").at(1).at(2).to_number<double>(), 3);
}

TEST(DeviceProfile, OfNothingIsEmpty) { EXPECT_TRUE(device_profile({}, 1).empty()); }

}  // namespace
}  // namespace slime::bench
