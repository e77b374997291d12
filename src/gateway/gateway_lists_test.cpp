/// Choice by model, and sessions that stay with one worker.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/json.h"
#include "gateway/scripted_worker.h"

namespace slime::gateway {
namespace {

TEST(GatewayLists, ARequestGoesToAWorkerThatServesItsModel) {
  Gated gated(3, with_policy(PolicyKind::kRoundRobin), {"big", "small", "small"});
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(gated.call("POST", "/v1/completions", R"({"model":"big","prompt":"x"})").body,
              "\"a\"");
    EXPECT_NE(gated.call("POST", "/v1/completions", R"({"model":"small","prompt":"x"})").body,
              "\"a\"");
  }
  std::set<std::string> of_others;
  for (int i = 0; i < 6; ++i)
    of_others.insert(gated.call("POST", "/v1/completions", R"({"model":"gpt-4o"})").body);
  EXPECT_EQ(of_others.size(), 3U) << "a name that nobody has is everybody's";
  const json::value models = parse_json(gated.call("GET", "/v1/models").body, "");
  EXPECT_EQ(models.at("data").as_array().size(), 2U);
  const json::value workers = parse_json(gated.call("GET", "/workers").body, "");
  EXPECT_EQ(workers.at("workers").at(0).at("model_id"), "big");
}

TEST(GatewayLists, AModelWithoutAHealthyWorkerIsNobodyElses) {
  GatewayConfig config = with_policy(PolicyKind::kRoundRobin);
  config.proxy.retry.max_retries = 1;
  Gated gated(2, config, {"big", "small"});
  gated.workers[0].health = 500;
  ASSERT_TRUE(eventually([&] { return !gated.gateway.workers().list()[0].is_healthy; }));
  EXPECT_EQ(gated.call("POST", "/v1/completions", R"({"model":"big"})").status, 503);
  EXPECT_EQ(gated.call("POST", "/v1/completions", R"({"model":"small"})").body, "\"b\"");
}

TEST(GatewayLists, ASessionStaysWithOneWorkerWhateverThePolicy) {
  Gated gated(4, with_policy(PolicyKind::kRoundRobin));
  std::set<std::string> all;
  for (const std::string name : {"s-1", "s-2", "s-3", "s-4", "s-5", "s-6"}) {
    const std::string home = gated.call("POST", "/sessions", R"({"name":")" + name + "\"}").body;
    all.insert(home);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(gated.call("POST", "/sessions/" + name + "/v1/messages", "{}").body, home);
      EXPECT_EQ(gated.call("POST", "/v1/chat/completions", "{}", {{"x-slime-session", name}}).body,
                home);
    }
    EXPECT_EQ(gated.call("DELETE", "/sessions/" + name).body, home);
  }
  EXPECT_GT(all.size(), 1U);
  const json::value sessions = parse_json(gated.call("GET", "/sessions").body, "");
  EXPECT_EQ(sessions.at("sessions").as_array().size(), 4U);
}

TEST(GatewayLists, ANewSessionWithoutANameGetsOneThatItsWorkerIsFoundBy) {
  Gated gated(3, with_policy(PolicyKind::kRoundRobin));
  const std::string home = gated.call("POST", "/sessions", R"({"max_turns":3})").body;
  const ScriptedWorker& worker = *std::ranges::find(
      gated.workers, home, [](const ScriptedWorker& each) { return "\"" + each.name + "\""; });
  const auto seen = worker.seen("/sessions");
  ASSERT_EQ(seen.size(), 1U);
  const json::value body = parse_json(seen[0].body, "");
  EXPECT_EQ(body.at("max_turns"), 3);
  const std::string name(body.at("name").as_string());
  EXPECT_EQ(gated.call("POST", "/sessions/" + name + "/v1/responses", "{}").body, home);
}

}  // namespace
}  // namespace slime::gateway
