#include "core/descriptor_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>

namespace slime {
namespace {

TEST(DescriptorLimit, RisesToWhatTheSystemAllowsAndNeverFalls) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto after = [&](rlim_t soft) {
    const rlimit low{.rlim_cur = soft, .rlim_max = before.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    raise_descriptor_limit();
    rlimit now{};
    getrlimit(RLIMIT_NOFILE, &now);
    EXPECT_EQ(now.rlim_max, before.rlim_max);
    return now.rlim_cur;
  };
  const rlim_t wanted = std::min<rlim_t>(before.rlim_max, 1 << 20);
  EXPECT_EQ(after(wanted / 2), wanted);
  EXPECT_EQ(after(before.rlim_max), before.rlim_max);
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace slime
