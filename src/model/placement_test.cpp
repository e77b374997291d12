#include "model/placement.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "kernels/gpu/for_tests.h"

namespace slime::model {
namespace {

TEST(Placement, TheCpuTakesItsOwnPrecision) {
  const Precision precision = precision_on("cpu", "float32");
  EXPECT_EQ(precision.device, at::kCPU);
  EXPECT_EQ(precision.weights, at::kFloat);
}

TEST(Placement, AnotherWordForADeviceIsAConfigurationError) {
  EXPECT_THROW(precision_on("gpu", "float32"), ConfigError);
}

TEST(Placement, TheGpuIsOpened) {
  SLIME_NEEDS_GPU();
  EXPECT_EQ(precision_on("cuda", "bfloat16").device.type(), at::kCUDA);
  EXPECT_NO_THROW(kernels::opened_gpu());
}

}  // namespace
}  // namespace slime::model
