/// Routes that only look.

#include <gtest/gtest.h>

#include "engine/http/test_server.h"

namespace slime::engine {
namespace {

TEST(InformationRoutes, HealthIsAMatterOfProgress) {
  TestServer test("Hi");
  EXPECT_EQ(test.call("GET", "/health").status, 200);
  test.engine.seconds_without_progress = 301;
  EXPECT_EQ(test.call("GET", "/health").status, 503);
  EXPECT_EQ(test.call("GET", "/health_generate").status, 503);
}

TEST(InformationRoutes, DescribeModelServerAndLoad) {
  TestServer test("Hi", {.tp_size = 2});
  const auto get = [&](const char* path) { return parse_json(test.call("GET", path).body, path); };
  EXPECT_EQ(at(get("/model_info"), "/model_type"), "fake");
  EXPECT_EQ(at(get("/get_model_info"), "/architectures/0"), "FakeForCausalLM");
  EXPECT_EQ(at(get("/server_info"), "/tp_size"), 2);
  EXPECT_EQ(at(get("/server_info"), "/num_gpus"), 2);
  EXPECT_EQ(at(get("/get_server_info"), "/internal_states/0/num_running_reqs"), 0);
  EXPECT_EQ(at(get("/v1/loads?include=core"), "/loads/0/num_waiting_reqs"), 0);
  EXPECT_EQ(at(get("/get_load"), "/0/num_reqs"), 0);
  EXPECT_EQ(at(get("/v1/models"), "/data/0/max_model_len"), 1000);
  EXPECT_NE(
      test.call("GET", "/metrics").body.find("sglang:num_running_reqs{model_name=\"ascii\"} 0\n"),
      std::string::npos);
}

TEST(InformationRoutes, LoadsAreGivenInTheFormThatIsAskedForOrRefused) {
  TestServer test("Hi");
  const net::HttpResponse text =
      test.call("GET", "/v1/loads?format=prometheus&include=core,queues");
  EXPECT_EQ(text.content_type, "text/plain; version=0.0.4");
  EXPECT_NE(text.body.find("sglang:num_running_reqs{dp_rank=\"0\"} 0\n"), std::string::npos)
      << text.body;
  EXPECT_EQ(test.call("GET", "/v1/loads?dp_rank=0&format=json&include=all").status, 200);
  for (const char* query : {"format=yaml", "include=core,weather", "include=", "dp_rank=1"})
    EXPECT_EQ(test.call("GET", std::string("/v1/loads?") + query).status, 400) << query;
}

TEST(InformationRoutes, MetricsHaveTheLatenciesOfRequests) {
  TestServer test("Hi");
  test.post("/generate", R"({"text":"x"})");
  test.post("/v1/completions", R"({"prompt":"x"})");
  const std::string body = test.call("GET", "/metrics").body;
  for (const char* line :
       {"sglang:num_requests_total{model_name=\"ascii\"} 2\n",
        "sglang:generation_tokens_total{model_name=\"ascii\"} 6\n",
        "sglang:time_to_first_token_seconds_count{model_name=\"ascii\"} 2\n",
        "sglang:inter_token_latency_seconds_count{model_name=\"ascii\"} 4\n",
        "sglang:e2e_request_latency_seconds_bucket{model_name=\"ascii\",le=\"+Inf\"} 2\n",
        "# TYPE sglang:queue_time_seconds histogram\n"})
    EXPECT_NE(body.find(line), std::string::npos) << line << body;
}

TEST(InformationRoutes, PingAndVersionAnswerVllmsClients) {
  TestServer test("Hi");
  EXPECT_EQ(test.call("GET", "/ping").status, 200);
  EXPECT_EQ(at(parse_json(test.call("GET", "/version").body, ""), "/version"), "slime");
}

TEST(InformationRoutes, DraftsAreToldWhereTheEngineHasSome) {
  TestServer test("Hi");
  const auto metrics = [&] { return test.call("GET", "/metrics").body; };
  EXPECT_EQ(metrics().find("sglang:spec_"), std::string::npos);
  const auto state = [&] { return parse_json(test.call("GET", "/server_info").body, "info"); };
  EXPECT_FALSE(at(state(), "/internal_states/0").get_object().contains("avg_spec_accept_length"));
  test.engine.drafts = {.num_drafted = 8, .num_kept = 6, .num_steps = 4};
  for (const char* line : {"sglang:spec_accept_length{model_name=\"ascii\"} 2.5\n",
                           "sglang:spec_accept_rate{model_name=\"ascii\"} 0.75\n",
                           "sglang:spec_verify_calls_total{model_name=\"ascii\"} 4\n",
                           "sglang:spec_proposed_drafts_total{model_name=\"ascii\"} 8\n",
                           "sglang:spec_correct_drafts_total{model_name=\"ascii\"} 6\n"})
    EXPECT_NE(metrics().find(line), std::string::npos) << line << metrics();
  EXPECT_EQ(at(state(), "/internal_states/0/avg_spec_accept_length"), 2.5);
  EXPECT_EQ(metrics().find("sglang:verify_"), std::string::npos);
  test.engine.drafts.num_compared = 8;
  test.engine.drafts.num_redrawn = 2;
  for (const char* line : {"sglang:verify_compared_total{model_name=\"ascii\"} 8\n",
                           "sglang:verify_redrawn_total{model_name=\"ascii\"} 2\n"})
    EXPECT_NE(metrics().find(line), std::string::npos) << line << metrics();
  EXPECT_EQ(at(state(), "/internal_states/0/verify_redrawn_rate"), 0.25);
  EXPECT_EQ(at(state(), "/internal_states/0/spec_accept_rate"), 0.75);
}

TEST(InformationRoutes, MetricsCountGrammars) {
  TestServer test("Hi");
  const std::string body = test.call("GET", "/metrics").body;
  for (const char* name : {"grammars_compiled_total", "grammar_cache_hits_total",
                           "grammar_masks_total", "grammar_mask_seconds_total"})
    EXPECT_NE(body.find(std::string("sglang:") + name + "{model_name=\"ascii\"} 0\n"),
              std::string::npos)
        << name << body;
}

}  // namespace
}  // namespace slime::engine
