/// Routes that only look.

#include <gtest/gtest.h>

#include "engine/http/test_server.h"

namespace slime::engine {
namespace {

TEST(InformationRoutes, HealthIsAMatterOfProgress) {
  TestServer test("Hi");
  EXPECT_EQ(test.call("GET", "/health").status, 200);
  test.engine.set_seconds_without_progress(301);
  EXPECT_EQ(test.call("GET", "/health").status, 503);
  EXPECT_EQ(test.call("GET", "/health_generate").status, 503);
}

TEST(InformationRoutes, DescribeModelServerAndLoad) {
  TestServer test("Hi");
  const auto get = [&](const char* path) { return parse_json(test.call("GET", path).body, path); };
  EXPECT_EQ(at(get("/model_info"), "/model_type"), "fake");
  EXPECT_EQ(at(get("/get_model_info"), "/architectures/0"), "FakeForCausalLM");
  EXPECT_EQ(at(get("/server_info"), "/tp_size"), 1);
  EXPECT_EQ(at(get("/get_server_info"), "/internal_states/0/num_running_reqs"), 0);
  EXPECT_EQ(at(get("/v1/loads?include=core"), "/loads/0/num_waiting_reqs"), 0);
  EXPECT_EQ(at(get("/get_load"), "/0/num_reqs"), 0);
  EXPECT_EQ(at(get("/v1/models"), "/data/0/max_model_len"), 1000);
  EXPECT_NE(
      test.call("GET", "/metrics").body.find("sglang:num_running_reqs{model_name=\"ascii\"} 0\n"),
      std::string::npos);
}

}  // namespace
}  // namespace slime::engine
