/// Routes that bring weights tensor by tensor.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <future>

#include "comm/torch_group.h"
#include "core/base64.h"
#include "engine/http/test_server.h"
#include "model/safetensors.h"
#include "model/tensor_update.h"
#include "net/tcp.h"

namespace slime::engine {
namespace {

using Sum = std::map<std::string, double>;

/// What updates had, by name: the sums of the tensors.
struct SeenUpdates {
  explicit SeenUpdates(TestServer& test) {
    test.engine.on_update_weights = [this](const WeightUpdate& update) -> Expected<void> {
      const auto* some = std::get_if<FromTensors>(&update.source);
      if (some == nullptr) return failure("not by tensors");
      for (const auto& [name, value] : some->update->tensors)
        sums[name] = value.to(at::kDouble).sum().item<double>();
      return {};
    };
  }
  Sum sums;
};

std::string safetensors_bytes() {
  const std::string path = testing::TempDir() + "weight_tensor_routes.safetensors";
  model::write_safetensors(
      path, {{"a", at::arange(4).to(at::kBFloat16).view({2, 2})}, {"b", at::full({3}, 0.5)}});
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  ::unlink(path.c_str());
  return bytes;
}

TEST(WeightTensors, ComeAsASafetensorsFileInBase64OrAsItIs) {
  TestServer test("Hi");
  const SeenUpdates seen(test);
  const std::string bytes = safetensors_bytes();
  const json::value body{{"serialized_named_tensors", json::array{to_base64(bytes)}},
                         {"load_format", nullptr},
                         {"flush_cache", true},
                         {"weight_version", "step-1"}};
  const json::value answer = test.post("/update_weights_from_tensor", json_text(body));
  EXPECT_EQ(at(answer, "/message"), "2 tensors are updated");
  EXPECT_EQ(seen.sums, (Sum{{"a", 6}, {"b", 1.5}}));
  EXPECT_EQ(test.call("GET", "/weight_version").body, R"({"weight_version":"step-1"})");
  const auto raw = net::http_call(
      {.method = "POST",
       .url = test.server.url() + "/update_weights_from_tensor?weight_version=step-2",
       .body = bytes,
       .content_type = "application/octet-stream"});
  ASSERT_TRUE(raw);
  EXPECT_EQ(raw->status, 200) << raw->body;
  EXPECT_EQ(test.call("GET", "/weight_version").body, R"({"weight_version":"step-2"})");
}

TEST(WeightTensors, APickleIsRefusedWithWhatWorks) {
  TestServer test("Hi");
  const SeenUpdates seen(test);
  const auto refused = [&](const std::string& bytes, const char* reason) {
    const json::value body{{"serialized_named_tensors", json::array{to_base64(bytes)}}};
    const auto response = test.call("POST", "/update_weights_from_tensor", json_text(body));
    EXPECT_EQ(response.status, 400);
    EXPECT_NE(response.body.find(reason), std::string::npos) << response.body;
  };
  refused("\x80\x04\x95", "is a pickle");
  refused("\x80\x04\x95", "octet-stream");
  refused("no file", "is no safetensors file");
  refused(safetensors_bytes().substr(0, 100), "is no safetensors file");
  for (const char* body :
       {"{}", R"({"serialized_named_tensors":[]})", R"({"serialized_named_tensors":["a","b"]})",
        R"({"serialized_named_tensors":["%%"]})",
        R"({"serialized_named_tensors":["AAAA"],"load_format":"flattened_bucket"})"})
    EXPECT_EQ(test.call("POST", "/update_weights_from_tensor", body).status, 400) << body;
  EXPECT_TRUE(seen.sums.empty());
}

/// The trainer's side of a group.
std::future<void> trainer(int port, const std::vector<Tensor>& tensors, int world_size = 2) {
  return std::async(std::launch::async, [port, tensors, world_size] {
    const auto group = comm::join_torch_group({.address = "127.0.0.1",
                                               .port = port,
                                               .rank = 0,
                                               .world_size = world_size,
                                               .name = "g",
                                               .holds_store = true,
                                               .timeout = std::chrono::seconds(30)});
    for (const Tensor& tensor : tensors) group->broadcast(tensor);
  });
}

int free_port() {
  const int socket = net::listen_on("127.0.0.1", 0);
  const int port = net::port_of(socket);
  ::close(socket);
  return port;
}

TEST(WeightTensors, ComeThroughAGroupOfTorchDistributed) {
  TestServer test("Hi");
  const SeenUpdates seen(test);
  const Tensor a = at::arange(4).to(at::kBFloat16).view({2, 2}), b = at::full({3}, 0.5);
  const Tensor bucket = at::cat({a.view(at::kByte).flatten(), b.view(at::kByte)});
  const int port = free_port();
  std::future<void> sends = trainer(port, {a, b, bucket});
  const std::string group = fmt::format(
      R"({{"master_address":"127.0.0.1","master_port":{},"rank_offset":1,"world_size":2,"group_name":"g","backend":"gloo"}})",
      port);
  test.post("/init_weights_update_group", group);
  EXPECT_EQ(test.call("POST", "/init_weights_update_group", group).status, 400);
  const std::string announced =
      R"({"names":["a","b"],"dtypes":["torch.bfloat16","float32"],"shapes":[[2,2],[3]],"group_name":"g","flush_cache":false)";
  test.post("/update_weights_from_distributed", announced + R"(,"weight_version":"7"})");
  EXPECT_EQ(seen.sums, (Sum{{"a", 6}, {"b", 1.5}}));
  EXPECT_EQ(test.call("GET", "/weight_version").body, R"({"weight_version":"7"})");
  test.post("/update_weights_from_distributed",
            announced + R"(,"load_format":"flattened_bucket"})");
  EXPECT_EQ(seen.sums, (Sum{{"a", 6}, {"b", 1.5}}));
  sends.get();
  test.post("/destroy_weights_update_group", R"({"group_name":"g"})");
  EXPECT_EQ(test.call("POST", "/destroy_weights_update_group", R"({"group_name":"g"})").status,
            400);
  EXPECT_EQ(test.call("POST", "/update_weights_from_distributed", announced + "}").status, 400);
}

TEST(WeightTensors, AServerOfSeveralRanksIsAllOfThemInTheGroup) {
  TestServer test("Hi", {.tp_size = 2});
  const SeenUpdates seen(test);
  const int port = free_port();
  std::future<void> sends = trainer(port, {at::full({3}, 0.5)}, 3);
  const auto group = [port](int offset) {
    return fmt::format(
        R"({{"master_address":"127.0.0.1","master_port":{},"rank_offset":{},"world_size":3,"group_name":"g","backend":"gloo"}})",
        port, offset);
  };
  EXPECT_EQ(test.call("POST", "/init_weights_update_group", group(2)).status, 400);
  test.post("/init_weights_update_group", group(1));
  test.post("/update_weights_from_distributed",
            R"({"names":["b"],"dtypes":["float32"],"shapes":[[3]],"group_name":"g"})");
  EXPECT_EQ(seen.sums, (Sum{{"b", 1.5}}));
  sends.get();
  // SGLang's clients send whole tensors once for each rank.
  const std::string bytes = to_base64(safetensors_bytes());
  const auto status_of = [&](const json::array& elements) {
    return test
        .call("POST", "/update_weights_from_tensor",
              json_text(json::value{{"serialized_named_tensors", elements}}))
        .status;
  };
  EXPECT_EQ(status_of({bytes, bytes}), 200);
  EXPECT_EQ(status_of({bytes}), 200);
  EXPECT_EQ(status_of({bytes, "AAAA"}), 400);
  EXPECT_EQ(status_of({bytes, bytes, bytes}), 400);
}

TEST(WeightTensors, ATrainerThatLeavesIsAnErrorAndTheGroupIsGivenUp) {
  TestServer test("Hi");
  const SeenUpdates seen(test);
  const int port = free_port();
  std::future<void> leaves = trainer(port, {});
  test.post(
      "/init_weights_update_group",
      fmt::format(
          R"({{"master_address":"127.0.0.1","master_port":{},"rank_offset":1,"world_size":2,"group_name":"g","backend":"gloo"}})",
          port));
  leaves.get();
  const auto response =
      test.call("POST", "/update_weights_from_distributed",
                R"({"names":["a"],"dtypes":["float32"],"shapes":[[2]],"group_name":"g"})");
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("the group is given up"), std::string::npos) << response.body;
  EXPECT_TRUE(seen.sums.empty());
}

TEST(WeightTensors, AnAnnouncementThatCannotBeIsRefusedBeforeAnythingIsReceived) {
  TestServer test("Hi");
  for (const char* body :
       {R"({"names":["a"],"dtypes":["float32"],"shapes":[[2]]})",
        R"({"names":["a","b"],"dtypes":["float32"],"shapes":[[2]]})",
        R"({"names":["a"],"dtypes":["int8"],"shapes":[[2]]})",
        R"({"names":["a"],"dtypes":["float32"],"shapes":[[-2]]})",
        R"({"names":["a"],"dtypes":["float32"],"shapes":[[4294967296,4294967296]]})",
        R"({"names":["a"],"dtypes":["float32"],"shapes":[7]})", R"({"names":[]})"})
    EXPECT_EQ(test.call("POST", "/update_weights_from_distributed", body).status, 400) << body;
  for (
      const char* body :
      {R"({"master_address":"127.0.0.1","master_port":1,"rank_offset":1,"world_size":2,"backend":"nccl"})",
       R"({"master_address":"127.0.0.1","master_port":1,"rank_offset":2,"world_size":2,"backend":"gloo"})",
       R"({"master_port":0,"rank_offset":1,"world_size":2,"backend":"gloo"})"})
    EXPECT_EQ(test.call("POST", "/init_weights_update_group", body).status, 400) << body;
}

}  // namespace
}  // namespace slime::engine
