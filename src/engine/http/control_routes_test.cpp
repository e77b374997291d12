/// Routes that change the server.

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "engine/http/test_server.h"

namespace slime::engine {
namespace {

TEST(ControlRoutes, AbortAnswersTheAbortedRequest) {
  TestServer test("");
  std::thread aborter([&] {
    EXPECT_TRUE(eventually([&] { return test.engine.load()->num_running == 1; }));
    EXPECT_EQ(test.call("POST", "/abort_request", R"({"rid":"r9"})").status, 200);
  });
  const json::value reply = test.post(
      "/generate", R"({"text":"x","rid":"r9","sampling_params":{"max_new_tokens":1000000}})");
  aborter.join();
  EXPECT_EQ(at(reply, "/meta_info/finish_reason/type"), "abort");
  EXPECT_EQ(test.call("POST", "/abort_request", R"({})").status, 400);
}

TEST(ControlRoutes, AbortByTheBaseRidEndsAllItsSamples) {
  TestServer test("");
  std::thread aborter([&] {
    EXPECT_TRUE(eventually([&] { return test.engine.load()->num_running == 2; }));
    EXPECT_EQ(test.call("POST", "/abort_request", R"({"rid":"x"})").status, 200);
    if (!eventually([&] { return test.engine.load()->num_running == 0; })) {
      ADD_FAILURE() << "x_0 and x_1 still run";
      test.call("POST", "/abort_request", R"({"abort_all":true})");
    }
  });
  const json::value reply = test.post(
      "/generate", R"({"text":"q","rid":"x","sampling_params":{"n":2,"max_new_tokens":1000000}})");
  aborter.join();
  EXPECT_EQ(at(reply, "/0/meta_info/finish_reason/type"), "abort");
  EXPECT_EQ(at(reply, "/1/meta_info/id"), "x_1");
}

TEST(ControlRoutes, PauseAndContinue) {
  TestServer test("Hi");
  EXPECT_EQ(at(test.post("/pause_generation", R"({"mode":"retract"})"), "/status"), "ok");
  EXPECT_TRUE(test.engine.load()->is_paused);
  EXPECT_EQ(test.call("GET", "/health").status, 200);
  EXPECT_EQ(test.call("GET", "/health_generate").status, 200);
  EXPECT_EQ(at(test.post("/continue_generation", "{}"), "/status"), "ok");
  EXPECT_FALSE(test.engine.load()->is_paused);
  EXPECT_EQ(test.call("GET", "/health_generate").status, 200);
  EXPECT_EQ(test.call("POST", "/pause_generation", R"({"mode":"later"})").status, 400);
}

TEST(ControlRoutes, MemoryOfTheCacheIsReleasedAndResumed) {
  TestServer test("Hi");
  EXPECT_EQ(test.call("POST", "/release_memory_occupation", "{}").status, 200);
  EXPECT_TRUE(test.engine.load()->is_paused);
  EXPECT_EQ(test.call("POST", "/resume_memory_occupation", R"({"tags":["weights"]})").status, 200);
  EXPECT_TRUE(test.engine.load()->is_paused);
  EXPECT_EQ(test.call("POST", "/resume_memory_occupation", R"({"tags":["kv_cache","cuda_graph"]})")
                .status,
            200);
  EXPECT_FALSE(test.engine.load()->is_paused);
  EXPECT_EQ(test.call("POST", "/release_memory_occupation", R"({"tags":["disk"]})").status, 400);
}

TEST(ControlRoutes, FlushTheCacheWhenIdle) {
  TestServer test("Hi");
  EXPECT_EQ(test.call("GET", "/flush_cache").status, 200);
  EXPECT_EQ(test.call("POST", "/flush_cache?timeout=1").status, 200);
  EXPECT_EQ(test.call("POST", "/flush_cache?timeout=soon").status, 400);
}

TEST(ControlRoutes, UpdateWeightsReadsBelowTheRootsOnly) {
  TestServer test("Hi");
  const std::string models = SLIME_SOURCE_DIR "/tests/fixtures/models";
  const auto update = [&](const std::string& path) {
    return test.call("POST", "/update_weights_from_disk",
                     json_text(json::value{{"model_path", path}, {"weight_version", "7"}}));
  };
  EXPECT_EQ(update(models + "/llama").status, 200);
  EXPECT_EQ(test.call("GET", "/get_weight_version").body, R"({"weight_version":"7"})");
  EXPECT_EQ(update(models + "/qwen2").body,
            R"({"success":false,"message":"another shape","num_paused_requests":0})");
  EXPECT_EQ(update(models + "/../../http").status, 400);
  EXPECT_EQ(update("/etc").status, 400);
  EXPECT_EQ(update("/no/such/place").status, 400);
  EXPECT_EQ(test.call("GET", "/weight_version").body, R"({"weight_version":"7"})");
  test.post("/update_weight_version", R"({"new_version":"8"})");
  EXPECT_EQ(at(test.post("/generate", R"({"text":"x"})"), "/meta_info/weight_version"), "8");
}

TEST(ControlRoutes, WeightsAreCheckedAsBySglang) {
  TestServer test("Hi");
  const auto sums = test.call("POST", "/weights_checker", R"({"action":"checksum"})");
  EXPECT_EQ(sums.status, 200);
  const json::value body = json::parse(sums.body);
  EXPECT_EQ(body.at_pointer("/success"), json::value(true));
  EXPECT_EQ(body.at_pointer("/ranks/0/checksums/b"), json::value("00000000000000ff"));
  EXPECT_EQ(body.at_pointer("/ranks/0/per_gpu_checksum"), body.at_pointer("/per_engine_checksum"));
  EXPECT_EQ(test.call("POST", "/weights_checker", R"({"action":"snapshot"})").status, 200);
  EXPECT_EQ(test.call("POST", "/weights_checker", R"({"action":"reset_tensors"})").status, 200);
  const auto compared = test.call("POST", "/weights_checker", R"({"action":"compare"})");
  EXPECT_EQ(compared.status, 400);
  EXPECT_EQ(json::parse(compared.body).at_pointer("/message"),
            json::value("1 of 2 tensors differ: a"));
  for (const char* wrong : {R"({})", R"({"action":"look"})", R"({"action":7})",
                            R"({"action":"compare","skip_tensor_list":["a"]})"})
    EXPECT_EQ(test.call("POST", "/weights_checker", wrong).status, 400) << wrong;
}

TEST(ControlRoutes, AnAnswerCarriesTheNameOfTheVersionThatMadeIt) {
  TestServer test("Hi", {.weight_version = "start"});
  const std::string model = SLIME_SOURCE_DIR "/tests/fixtures/models/llama";
  const std::set<std::string> names{"start", "step-1", "step-2", "step-3"};
  std::atomic<bool> is_over = false;
  std::jthread client([&] {
    while (!is_over) {
      const json::value asked = json::parse(test.call("GET", "/get_weight_version").body);
      for (const json::value& told :
           {at(test.post("/generate", R"({"text":"x"})"), "/meta_info/weight_version"),
            at(test.post("/v1/completions", R"({"model":"ascii","prompt":"x"})"),
               "/metadata/weight_version"),
            at(asked, "/weight_version")})
        EXPECT_TRUE(names.contains(json::value_to<std::string>(told))) << told;
    }
  });
  for (const char* name : {"step-1", "step-2", "step-3"}) {
    test.post("/update_weights_from_disk",
              json::serialize(json::value{{"model_path", model}, {"weight_version", name}}));
  }
  // Without a name, as in SGLang, they are called as before; a refused update takes its name along.
  test.post("/update_weights_from_disk", json::serialize(json::value{{"model_path", model}}));
  test.call(
      "POST", "/update_weights_from_disk",
      json::serialize(json::value{{"model_path", SLIME_SOURCE_DIR "/tests/fixtures/models/qwen2"},
                                  {"weight_version", "step-4"}}));
  is_over = true;
  client.join();
  EXPECT_EQ(test.call("GET", "/get_weight_version").body, R"({"weight_version":"step-3"})");
}

TEST(ControlRoutes, UpdatesThatMeetGetVersionsOfTheirOwn) {
  TestServer test("Hi");
  const std::string models = SLIME_SOURCE_DIR "/tests/fixtures/models";
  const auto update = [&] {
    EXPECT_EQ(test.call("POST", "/update_weights_from_disk",
                        json_text(json::value{{"model_path", models + "/llama"}}))
                  .status,
              200);
  };
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < 3; ++i) clients.emplace_back(update);
  }
  EXPECT_EQ(test.engine.update_versions(), (std::vector<WeightVersion>{1, 2, 3}));
}

TEST(ControlRoutes, ARefusedUpdateChangesNothing) {
  TestServer test("");
  const std::string models = SLIME_SOURCE_DIR "/tests/fixtures/models";
  std::thread client([&] {
    test.post("/generate",
              R"({"text":"x","rid":"r","sampling_params":{"max_new_tokens":1000000}})");
  });
  EXPECT_TRUE(eventually([&] { return test.engine.load()->num_running == 1; }));
  EXPECT_EQ(test.call("POST", "/update_weights_from_disk",
                      json_text(json::value{{"model_path", models + "/qwen2"},
                                            {"abort_all_requests", true},
                                            {"keep_pause", true}}))
                .status,
            400);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(test.engine.load()->num_running, 1);
  EXPECT_FALSE(test.engine.load()->is_paused);
  EXPECT_EQ(test.engine.weight_version(), 0);
  test.call("POST", "/abort_request", R"({"rid":"r"})");
  client.join();
}

TEST(ControlRoutes, AMisspeltFieldIsRefusedWithTheOneThatWasMeant) {
  TestServer test("Hi");
  const std::string folder = SLIME_SOURCE_DIR "/tests/fixtures/models/llama";
  const std::tuple<const char*, std::string, const char*> cases[] = {
      {"/abort_request", R"({"rid":"x","abort_al":true})",
       "abort_al is unknown; did you mean abort_all?"},
      {"/pause_generation", R"({"mod":"retract"})", "mod is unknown; did you mean mode?"},
      {"/continue_generation", R"({"mode":"abort"})", "mode is unknown"},
      {"/continue_generation", R"({"torch_empty_cache":"yes"})", "torch_empty_cache must be true"},
      {"/flush_cache", R"({"force":true})", "force is unknown"},
      {"/flush_cache", R"({"timeout":5})", "/flush_cache?timeout=SECONDS"},
      {"/flush_cache", R"([])", "JSON object"},
      {"/release_memory_occupation", R"({"tag":["weights"]})", "did you mean tags?"},
      {"/resume_memory_occupation", R"({"tag":["weights"]})", "did you mean tags?"},
      {"/update_weights_from_disk", R"({"model_path":")" + folder + R"(","weight_verison":"7"})",
       "weight_verison is unknown; did you mean weight_version?"},
      {"/update_weight_version", R"({"new_version":"8","abort_all":false})",
       "abort_all is unknown"},
  };
  for (const auto& [path, body, message] : cases) {
    const auto response = test.call("POST", path, body);
    EXPECT_EQ(response.status, 400) << path << body;
    EXPECT_NE(response.body.find(message), std::string::npos) << path << " -> " << response.body;
  }
  EXPECT_FALSE(test.engine.load()->is_paused);
  EXPECT_EQ(test.engine.weight_version(), 0);
  EXPECT_EQ(test.call("GET", "/weight_version").body, R"({"weight_version":"default"})");
}

TEST(ControlRoutes, TakeFieldsOfSglangThatChangeNothingHere) {
  TestServer test("Hi");
  const std::string folder = SLIME_SOURCE_DIR "/tests/fixtures/models/llama";
  test.post("/update_weights_from_disk",
            R"({"model_path":")" + folder +
                R"(","load_format":null,"abort_all_requests":false,"weight_version":null,
      "is_async":false,"torch_empty_cache":false,"keep_pause":false,"recapture_cuda_graph":false,"token_step":0,
      "flush_cache":true,"manifest":null})");
  EXPECT_EQ(test.call("POST", "/abort_request", R"({"rid":"","abort_all":true})").status, 200);
  test.post("/pause_generation", "{}");
  test.post("/continue_generation", R"({"torch_empty_cache":true})");
}

TEST(ControlRoutes, ModelInfoNamesTheFolderWhoseWeightsAreServed) {
  TestServer test("Hi");
  const std::string models = SLIME_SOURCE_DIR "/tests/fixtures/models";
  const auto served = [&](const char* route) {
    return std::string(
        parse_json(test.call("GET", route).body, route).at_pointer("/model_path").get_string());
  };
  EXPECT_EQ(served("/get_model_info"), models + "/llama");
  test.post("/update_weights_from_disk", json_text(json::value{{"model_path", models + "/qwen3"}}));
  EXPECT_EQ(served("/get_model_info"), models + "/qwen3");
  EXPECT_EQ(served("/server_info"), models + "/qwen3");
  test.call("POST", "/update_weights_from_disk",
            json_text(json::value{{"model_path", models + "/qwen2"}}));
  EXPECT_EQ(served("/get_model_info"), models + "/qwen3") << "a refused update changes nothing";
}

}  // namespace
}  // namespace slime::engine
