/// Routes of a gateway besides those that it passes on: workers, orders, state, keys.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "core/json.h"
#include "gateway/gateway.h"
#include "gateway/scripted_worker.h"

namespace slime::gateway {
namespace {

using Does = ScriptedWorker::Does;
using testing::HasSubstr;

TEST(GatewayRoutes, AnAbortGoesToWhoHasTheRequestElseToAll) {
  Gated gated(2, with_policy(PolicyKind::kRoundRobin));
  gated.workers[0].does = Does::kHang;
  auto running =
      std::async(std::launch::async, [&] { return gated.generate(R"({"rid":"turn-1"})"); });
  EXPECT_TRUE(eventually([&] { return gated.workers[0].num_requests == 1; }));
  const auto abort = [&](std::string body) {
    EXPECT_EQ(gated.call("POST", "/abort_request", std::move(body)).status, 200);
    return std::pair(gated.workers[0].seen("/abort_request").size(),
                     gated.workers[1].seen("/abort_request").size());
  };
  EXPECT_EQ(abort(R"({"rid":"turn-1"})"), (std::pair<std::size_t, std::size_t>(1, 0)));
  EXPECT_EQ(abort(R"({"rid":"turn"})"), (std::pair<std::size_t, std::size_t>(2, 0)));
  EXPECT_EQ(abort(R"({"rid":"made by a worker"})"), (std::pair<std::size_t, std::size_t>(3, 1)));
  EXPECT_EQ(abort(R"({"rid":"turn-1","abort_all":true})"),
            (std::pair<std::size_t, std::size_t>(4, 2)));
  gated.workers[0].does = Does::kAnswer;
  running.get();
  EXPECT_EQ(abort(R"({"rid":"turn-1"})"), (std::pair<std::size_t, std::size_t>(5, 3)));
}

TEST(GatewayRoutes, OrdersGoToAllAndAnyFailureIsTheAnswer) {
  Gated gated(2);
  EXPECT_EQ(gated.call("POST", "/pause_generation", "{}").status, 200);
  for (const ScriptedWorker& worker : gated.workers)
    EXPECT_EQ(worker.seen("/pause_generation").size(), 1U);
  gated.workers[1].status = 507;
  const auto refused = gated.call("POST", "/update_weights_from_disk", "{}");
  EXPECT_EQ(refused.status, 507);
  EXPECT_EQ(net::find_header(refused.headers, "x-slime-worker"), gated.workers[1].url());
  const std::string url = gated.workers[1].url();
  gated.workers.pop_back();
  const auto unreachable = gated.call("POST", "/pause_generation", "{}");
  EXPECT_EQ(unreachable.status, 502);
  EXPECT_THAT(unreachable.body, HasSubstr(url));
}

TEST(GatewayRoutes, WeightGroupsAreTheWorkersOwn) {
  Gated gated(1);
  EXPECT_EQ(gated.call("POST", "/init_weights_update_group", "{}").status, 501);
  EXPECT_EQ(gated.workers[0].num_requests, 0);
}

TEST(GatewayRoutes, WorkersComeAndGoByBothGenerationsOfRoutes) {
  Gated gated(1);
  ScriptedWorker other("z");
  EXPECT_EQ(gated.call("POST", "/workers", R"({"url":")" + other.url() + R"("})").status, 202);
  EXPECT_TRUE(eventually([&] { return gated.gateway.workers().list().back().is_healthy; }));
  const json::value list = parse_json(gated.call("GET", "/workers").body, "workers");
  EXPECT_EQ(list.at("total"), 2);
  EXPECT_EQ(list.at("workers").at(1).at("url"), json::string(other.url()));
  const std::string id(list.at("workers").at(1).at("id").as_string());
  EXPECT_EQ(gated.call("GET", "/workers/" + id).status, 200);
  EXPECT_EQ(gated.call("DELETE", "/workers/" + id).status, 202);
  EXPECT_EQ(gated.call("DELETE", "/workers/" + id).status, 404);

  EXPECT_EQ(gated.call("POST", "/add_worker?url=" + other.url()).status, 202);
  EXPECT_EQ(gated.call("POST", "/add_worker?url=" + other.url()).status, 202);  // it is there
  EXPECT_EQ(
      parse_json(gated.call("GET", "/list_workers").body, "urls").at("urls").as_array().size(), 2U);
  EXPECT_EQ(gated.call("POST", "/remove_worker?url=" + other.url()).status, 202);
  EXPECT_EQ(gated.call("DELETE", "/workers/http:%2F%2Fnobody:1").status, 404);
  for (const char* body :
       {"{}", "[]", R"({"url":7})", R"({"url":"ftp://x"})", R"({"url":"http://a/b"})",
        R"({"url":"http://u:p@a"})", R"({"url":"http://a","worker_type":"prefill"})",
        R"({"url":"http://a","api_key":"secret"})"}) {
    EXPECT_EQ(gated.call("POST", "/workers", body).status, 400) << body;
  }
}

TEST(GatewayRoutes, IsAliveWithoutWorkersAndReadyWithOne) {
  Gated gated(0);
  EXPECT_EQ(gated.call("GET", "/liveness").status, 200);
  EXPECT_EQ(gated.call("GET", "/readiness").status, 503);
  EXPECT_EQ(gated.call("GET", "/health").status, 503);
  EXPECT_EQ(gated.generate().status, 503);
  ScriptedWorker worker("a");
  gated.call("POST", "/workers", R"({"url":")" + worker.url() + R"("})");
  EXPECT_TRUE(eventually([&] { return gated.call("GET", "/readiness").status == 200; }));
  EXPECT_EQ(gated.generate().status, 200);
  worker.health = 503;
  EXPECT_TRUE(eventually([&] { return gated.call("GET", "/health").status == 503; }));
  worker.health = 200;
  EXPECT_TRUE(eventually([&] { return gated.call("GET", "/health").status == 200; }));
}

TEST(GatewayRoutes, ASessionStaysWithItsWorker) {
  Gated gated(3, with_policy(PolicyKind::kConsistentHashing));
  std::map<std::string, std::string> homes;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 12; ++i) {
      const std::string key = "s" + std::to_string(i);
      const auto answer = gated.call("POST", "/generate", "{}", {{"X-SMG-Routing-Key", key}});
      const auto [home, is_new] = homes.emplace(key, answer.body);
      EXPECT_EQ(home->second, answer.body);
    }
  }
}

TEST(GatewayRoutes, KeysAreAskedForAndPassedOn) {
  GatewayConfig config;
  config.http.access.api_key = "client";
  config.http.access.admin_api_key = "admin";
  Gated gated(1, config);
  EXPECT_EQ(gated.generate().status, 401);
  EXPECT_EQ(gated.call("POST", "/generate", "{}", {{"Authorization", "Bearer client"}}).status,
            200);
  EXPECT_EQ(gated.workers[0].seen("/generate")[0].header("Authorization"), "Bearer client");
  EXPECT_EQ(gated.call("DELETE", "/workers/w1", "", {{"Authorization", "Bearer client"}}).status,
            401);
  EXPECT_EQ(gated.call("DELETE", "/workers/w1", "", {{"Authorization", "Bearer admin"}}).status,
            202);
}

TEST(GatewayRoutes, LargeAndEmptyBodiesComeThrough) {
  Gated gated(1);
  const std::string large(3 << 20, 'y');
  EXPECT_EQ(gated.call("POST", "/generate", large).status, 200);
  EXPECT_EQ(gated.workers[0].seen("/generate")[0].body.size(), large.size());
  EXPECT_EQ(gated.call("POST", "/generate").status, 200);
  EXPECT_EQ(gated.call("GET", "/get_model_info").body, "\"a\"");
  for (const std::size_t size : {256U << 10, (256U << 10) + 1, 3U << 20}) {
    gated.workers[0].answer_bytes = size;
    EXPECT_EQ(gated.generate().body, "\"a\"" + std::string(size - 3, ' ')) << size;
  }
}

}  // namespace
}  // namespace slime::gateway
