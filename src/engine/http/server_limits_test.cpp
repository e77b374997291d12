/// What one client must not be able to do to the others: hold threads, memory or time.

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <filesystem>
#include <fstream>
#include <future>

#include "engine/http/test_server.h"

namespace slime::engine {
namespace {

namespace fs = std::filesystem;

TEST(ControlRoutes, FlushesThatWaitHoldUpNoOtherControlRequest) {
  TestServer test("");
  std::jthread client([&] {
    test.post("/generate",
              R"({"text":"x","rid":"r","sampling_params":{"max_new_tokens":1000000}})");
  });
  EXPECT_TRUE(eventually([&] { return test.engine.load()->num_running == 1; }));
  std::vector<std::jthread> flushes;
  for (int i = 0; i < 6; ++i) {
    flushes.emplace_back(
        [&] { EXPECT_EQ(test.call("POST", "/flush_cache?timeout=600").status, 200); });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  for (const char* path : {"/pause_generation", "/continue_generation", "/abort_request"}) {
    const auto response = net::http_call({.method = "POST",
                                          .url = test.server.url() + path,
                                          .body = R"({"mode":"in_place","rid":"r"})",
                                          .timeout = std::chrono::seconds(10)});
    EXPECT_TRUE(response.has_value()) << path;
  }
  test.engine.abort_all();
}

TEST(ControlRoutes, AFlushEndsWithItsTimeout) {
  TestServer test("");
  std::jthread client([&] {
    test.post("/generate", R"({"text":"x","sampling_params":{"max_new_tokens":1000000}})");
  });
  EXPECT_TRUE(eventually([&] { return test.engine.load()->num_running == 1; }));
  EXPECT_EQ(test.call("POST", "/flush_cache?timeout=0.1").status, 400);
  EXPECT_EQ(test.call("POST", "/flush_cache").status, 400);
  test.engine.abort_all();
}

TEST(GenerateRoute, ATextThatCannotFitIsRefusedBeforeItIsTokenised) {
  TestServer test("Hi");  // 1000 tokens of at most ten bytes
  const std::string text(20'000, 'x');
  for (const auto& [path, body] :
       {std::pair<const char*, std::string>{"/generate", R"({"text":")" + text + R"("})"},
        {"/v1/completions", R"({"prompt":")" + text + R"("})"},
        {"/v1/chat/completions",
         R"({"messages":[{"role":"user","content":")" + text + R"("}]})"}}) {
    const auto response = test.call("POST", path, body);
    EXPECT_EQ(response.status, 400) << path;
    EXPECT_NE(response.body.find("bytes, and so many tokens hold at most 10000"), std::string::npos)
        << response.body;
  }
}

TEST(GenerateRoute, LargeRequestsAreReadApartFromTheConnections) {
  TestServer test("Hi");
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::atomic<int> num_rendering{0};
  test.model.chat =
      make_test_chat(*test.tokenizer, [&, released](const json::array&, const json::object&) {
        ++num_rendering;
        released.wait();
        return std::string("x");
      });
  const std::string body =
      R"({"messages":[{"role":"user","content":")" + std::string(100'000, 'x') + R"("}]})";
  std::vector<std::jthread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back(
        [&] { EXPECT_EQ(test.call("POST", "/v1/chat/completions", body).status, 200); });
  }
  EXPECT_TRUE(eventually([&] { return num_rendering == 2; }));
  const auto response = net::http_call(
      {.method = "GET", .url = test.server.url() + "/health", .timeout = std::chrono::seconds(10)});
  EXPECT_TRUE(response.has_value() && response->status == 200);
  release.set_value();
}

TEST(GenerateRoute, ChatTemplatesRunApartFromTheConnectionsAndHoldUpNoEnd) {
  TestServer test("Hi");
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::atomic<int> num_rendering{0};
  test.model.chat =
      make_test_chat(*test.tokenizer, [&, released](const json::array&, const json::object&) {
        ++num_rendering;
        released.wait();
        return std::string("x");
      });
  std::vector<std::jthread> clients;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back([&] {  // cut off in the end
      static_cast<void>(
          net::http_call({.method = "POST",
                          .url = test.server.url() + "/v1/chat/completions",
                          .body = R"({"messages":[{"role":"user","content":"x"}]})"}));
    });
  }
  EXPECT_TRUE(eventually([&] { return num_rendering == 2; }));
  const auto response = net::http_call(
      {.method = "GET", .url = test.server.url() + "/health", .timeout = std::chrono::seconds(10)});
  EXPECT_TRUE(response.has_value() && response->status == 200);
  std::jthread stops([&] { test.server.stop(std::chrono::milliseconds(0)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  release.set_value();
  stops.join();
  EXPECT_EQ(num_rendering, 2) << "those that waited are not begun";
}

TEST(ResponseMemory, ACallThatOutgrowsItsShareEndsAndItsRequestsToo) {
  TestServer test("", {.response_limit_bytes = 50'000});
  for (const auto& [path, body] :
       {std::pair<const char*, const char*>{
            "/generate", R"({"text":"x","sampling_params":{"n":2,"max_new_tokens":1000000}})"},
        {"/v1/completions", R"({"prompt":"x","max_tokens":1000000,"n":2})"},
        {"/v1/chat/completions",
         R"({"messages":[{"role":"user","content":"x"}],"max_tokens":1000000,"n":2})"}}) {
    const auto response = test.call("POST", path, body);
    EXPECT_EQ(response.status, 400) << path;
    EXPECT_NE(response.body.find("50000 bytes that one call may hold"), std::string::npos)
        << response.body;
    EXPECT_TRUE(eventually([&] { return test.engine.load()->num_running == 0; })) << path;
  }
}

TEST(ResponseMemory, CallsTogetherHoldNoMoreThanTheServerMay) {
  TestServer test("", {.all_responses_limit_bytes = 50'000});
  const auto response = test.call("POST", "/generate",
                                  R"({"text":"x","sampling_params":{"max_new_tokens":1000000}})");
  EXPECT_EQ(response.status, 429);
  EXPECT_NE(response.body.find("50000 bytes of responses"), std::string::npos) << response.body;
  EXPECT_TRUE(eventually([&] { return test.engine.load()->num_running == 0; }));
  // What an ended call held is there for the next one, a moment after its answer.
  EXPECT_TRUE(eventually([&] {
    return test.call("POST", "/generate", R"({"text":"x","sampling_params":{"max_new_tokens":20}})")
               .status == 200;
  }));
}

TEST(ResponseMemory, AClientThatDoesNotReadItsStreamIsBoundedToo) {
  TestServer test("", {.response_limit_bytes = 200'000});
  boost::asio::io_context context;
  boost::asio::ip::tcp::socket socket(context);
  const std::string url = test.server.url();
  const auto port = static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  socket.open(boost::asio::ip::tcp::v4());
  // The less the system takes in for the client, the sooner the server holds it.
  socket.set_option(boost::asio::socket_base::receive_buffer_size(4096));
  socket.connect({boost::asio::ip::make_address("127.0.0.1"), port});
  const std::string body =
      R"({"text":"x","stream":true,"return_logprob":true,"sampling_params":{"max_new_tokens":1000000}})";
  boost::asio::write(socket,
                     boost::asio::buffer("POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                                         std::to_string(body.size()) + "\r\n\r\n" + body));
  EXPECT_TRUE(eventually([&] { return !test.engine.requests().empty(); }));
  EXPECT_TRUE(eventually([&] { return test.engine.load()->num_running == 0; }));
}

TEST(ResponseMemory, FullResponsesDoNotMakeTheEngineUnhealthy) {
  TestServer test("Hi", {.all_responses_limit_bytes = 1});
  EXPECT_EQ(test.call("POST", "/generate", R"({"input_ids":[65,66]})").status, 429);
  EXPECT_EQ(test.call("GET", "/health_generate").status, 200);
}

TEST(ServerLimits, AFullQueueRefusesTheCallAtOnceAndHarmsNoOther) {
  TestServer test("");
  test.engine.refuses = [](const GenerateRequest& request) -> std::optional<FinishReason> {
    if (request.rid != "late") return std::nullopt;
    return aborted(FinishReason::Cause::kQueueFull, "the queue is full");
  };
  std::thread admitted([&] {
    const json::value reply = test.post(
        "/generate", R"({"text":"x","rid":"early","sampling_params":{"max_new_tokens":1000000}})");
    EXPECT_EQ(at(reply, "/meta_info/finish_reason/message"), "aborted");
  });
  EXPECT_TRUE(eventually([&] { return test.engine.load()->num_running == 1; }));
  const auto refused = test.call(
      "POST", "/generate",
      R"({"text":["x","y"],"rid":["a","late"],"sampling_params":{"max_new_tokens":1000000}})");
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_TRUE(net::find_header(refused.headers, "Retry-After"));
  EXPECT_TRUE(eventually([&] { return test.engine.load()->num_running == 1; }));
  EXPECT_EQ(test.call("POST", "/abort_request", R"({"rid":"early"})").status, 200);
  admitted.join();
}

TEST(ServedModel, TheDefaultRootOfWeightsIsNeverTheWholeFileSystem) {
  EXPECT_EQ(default_weight_root("/model"), "/model");
  EXPECT_EQ(default_weight_root("/model/"), "/model");
  EXPECT_EQ(default_weight_root("/no/models/qwen"), "/no/models");
  EXPECT_EQ(default_weight_root("/no/models/qwen/"), "/no/models");
}

TEST(ServedModel, TheDefaultRootInTheHubsCacheHasItsBlobs) {
  const fs::path cache = fs::path(::testing::TempDir()) / "root_of_cache" / "models--A--B";
  fs::remove_all(cache.parent_path());  // of an earlier run
  fs::create_directories(cache / "snapshots" / "abc");
  EXPECT_EQ(default_weight_root(cache / "snapshots" / "abc"), fs::canonical(cache) / "snapshots");
  fs::create_directories(cache / "blobs");
  EXPECT_EQ(default_weight_root(cache / "snapshots" / "abc"), fs::canonical(cache));
}

/// A link to a directory, or a link in one, is read where it leads.
TEST(ServedModel, WeightsAreReadBelowTheRootsAloneAlsoThroughLinks) {
  const fs::path folder = fs::path(::testing::TempDir()) / "linked_weights";
  fs::remove_all(folder);
  for (const char* name : {"root/plain", "root/inside", "root/outside", "root/gone", "elsewhere"})
    fs::create_directories(folder / name);
  for (const char* name : {"root/plain/config.json", "elsewhere/secret.json"})
    std::ofstream(folder / name) << "{}";
  fs::create_symlink("../plain/config.json", folder / "root/inside/config.json");
  fs::create_symlink("../../elsewhere/secret.json", folder / "root/outside/adapter_config.json");
  fs::create_symlink("nothing", folder / "root/gone/config.json");
  fs::create_directory_symlink("../elsewhere", folder / "root/link");
  ServedModel model;
  model.weight_roots = {folder / "root"};
  const auto confined = [&](const char* name) {
    return confined_directory(model, "model_path", (folder / name).string());
  };
  EXPECT_EQ(confined("root/plain"), fs::canonical(folder / "root/plain"));
  EXPECT_EQ(confined("root/../root/inside"), fs::canonical(folder / "root/inside"));
  for (const char* name : {"elsewhere", "root/link", "root/../elsewhere", "root/nothing"})
    EXPECT_THROW(confined(name), ConfigError) << name;
  for (const auto& [name, file] :
       {std::pair{"root/outside", "adapter_config.json"}, std::pair{"root/gone", "config.json"}}) {
    try {
      confined(name);
      ADD_FAILURE() << name << " was taken";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(file), std::string::npos) << error.what();
    }
  }
}

TEST(ServedModel, TokenIdsNeedNoTokenizer) {
  TestServer test("Hi");
  test.model.tokenizer = nullptr;
  const json::value reply =
      test.post("/generate", R"({"input_ids":[65,66],"return_logprob":true,"rid":"r"})");
  EXPECT_EQ(at(reply, "/output_ids"), json::value({72, 105, 127}));
  EXPECT_FALSE(reply.get_object().contains("text"));
  EXPECT_EQ(at(reply, "/meta_info/id"), "r");
  for (const auto& [path, body] : {
           std::pair<const char*, const char*>{"/generate", R"({"text":"x"})"},
           {"/generate", R"({"input_ids":[65],"sampling_params":{"stop":"x"}})"},
           {"/generate", R"({"input_ids":[65],"return_text_in_logprobs":true})"},
           {"/v1/completions", R"({"prompt":[65]})"},
           {"/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}]})"},
       }) {
    const auto response = test.call("POST", path, body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_NE(response.body.find("tokenizer"), std::string::npos) << response.body;
  }
}

}  // namespace
}  // namespace slime::engine
