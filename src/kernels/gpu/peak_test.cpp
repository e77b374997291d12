#include "kernels/gpu/peak.h"

#include <gtest/gtest.h>

namespace slime::kernels {
namespace {

TEST(PeakFlops, IsThatOfTheLongestNameThatFits) {
  EXPECT_EQ(peak_flops("NVIDIA H200, 132 multiprocessors, driver 13.0"), 989e12);
  EXPECT_EQ(peak_flops("NVIDIA H20"), 148e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 PCIe"), 756e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 80GB HBM3"), 989e12);
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-80GB"), 312e12);
  EXPECT_EQ(peak_flops("NVIDIA L40S"), 362e12);
  EXPECT_EQ(peak_flops("NVIDIA L4"), 121e12);
}

TEST(PeakFlops, OfAGpuThatNobodyKnowsIsNotGuessed) {
  EXPECT_EQ(peak_flops("NVIDIA GeForce GT 710"), std::nullopt);
  EXPECT_EQ(peak_flops(""), std::nullopt);
}

}  // namespace
}  // namespace slime::kernels
