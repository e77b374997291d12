#include "kernels/gpu/interface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slime::kernels {
namespace {

using ::testing::HasSubstr;

TEST(GpuInterface, IsHashedFromTheSharedHeaders) {
  EXPECT_EQ(std::string_view(interface_hash()).size(), 16);
  EXPECT_EQ(std::string_view(interface_hash()).find_first_not_of("0123456789abcdef"),
            std::string_view::npos);
}

TEST(GpuInterface, ALibraryOfTheSameHeadersIsTaken) {
  EXPECT_EQ(interface_problem("libslime_cuda.so", interface_hash()), "");
}

TEST(GpuInterface, ALibraryOfOtherHeadersIsRefusedAndBothAreNamed) {
  const std::string problem = interface_problem("build/libslime_cuda.so", "0123456789abcdef");
  EXPECT_THAT(problem,
              HasSubstr("build/libslime_cuda.so was built with interface 0123456789abcdef"));
  EXPECT_THAT(problem, HasSubstr(std::string("this program with interface ") + interface_hash()));
  EXPECT_THAT(problem, HasSubstr("./dev build"));
}

}  // namespace
}  // namespace slime::kernels
