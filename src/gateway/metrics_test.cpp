#include "gateway/metrics.h"

#include <gtest/gtest.h>

namespace slime::gateway {
namespace {

TEST(GatewayMetrics, OfSeveralWorkersStandTogetherByName) {
  const std::string first =
      "# HELP a Requests.\n# TYPE a counter\na{model=\"m\"} 1\nb 2\n"
      "# TYPE h histogram\nh_bucket{le=\"1\"} 3\nh_sum 4\n";
  const std::string second =
      "# HELP a Requests.\r\n# TYPE a counter\r\na{} 5 1700000000\r\nb 6\r\n";
  EXPECT_EQ(merge_metrics({{"http://x", first}, {"http://y", second}}),
            "# HELP a Requests.\n# TYPE a counter\n"
            "a{worker_addr=\"http://x\",model=\"m\"} 1\na{worker_addr=\"http://y\"} 5 1700000000\n"
            "b{worker_addr=\"http://x\"} 2\nb{worker_addr=\"http://y\"} 6\n"
            "# TYPE h histogram\nh_bucket{worker_addr=\"http://x\",le=\"1\"} 3\n"
            "h_sum{worker_addr=\"http://x\"} 4\n");
}

TEST(GatewayMetrics, LeavesOutWhatIsNoSample) {
  EXPECT_EQ(merge_metrics({{"http://x", "<html>\n\n# EOF\nname\n= 3\nok 1"}}),
            "ok{worker_addr=\"http://x\"} 1\n");
}

}  // namespace
}  // namespace slime::gateway
