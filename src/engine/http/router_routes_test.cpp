#include <gtest/gtest.h>

#include "engine/http/test_server.h"

namespace slime::engine {
namespace {

TEST(RouterRoutes, AServerIsItsOwnOnlyWorker) {
  TestServer test("Hi");
  const json::value workers = parse_json(test.call("GET", "/workers").body, "workers");
  EXPECT_EQ(workers.at("total"), 1);
  const std::string url(workers.at("workers").at(0).at("url").as_string());
  EXPECT_EQ(url, test.server.url());
  const json::value list = parse_json(test.call("GET", "/list_workers").body, "urls");
  EXPECT_EQ(list.at("urls").at(0), json::string(url));
  EXPECT_EQ(test.call("GET", "/liveness").status, 200);
  EXPECT_EQ(test.call("GET", "/readiness").status, 200);
}

}  // namespace
}  // namespace slime::engine
