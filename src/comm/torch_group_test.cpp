#include "comm/torch_group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>

#include "comm/rank_group.h"
#include "net/tcp.h"

namespace slime::comm {
namespace {

TorchGroupConfig rank_of(int rank, int port) {
  return {.address = "127.0.0.1",
          .port = port,
          .rank = rank,
          .world_size = 2,
          .name = "weights",
          .holds_store = rank == 0,
          .timeout = std::chrono::seconds(20)};
}

TEST(TorchGroup, RankZerosTensorsReachTheOthersInOrder) {
  const int socket = net::listen_on("127.0.0.1", 0), port = net::port_of(socket);
  ::close(socket);
  const Tensor first = at::arange(6).to(at::kBFloat16).view({2, 3}), second = at::rand({5});
  auto trainer = std::async(std::launch::async, [&] {
    const auto group = join_torch_group(rank_of(0, port));
    group->broadcast(first);
    group->broadcast(second);
  });
  const auto group = join_torch_group(rank_of(1, port));
  const Tensor one = at::zeros({2, 3}, at::kBFloat16), two = at::zeros({5});
  group->broadcast(one);
  group->broadcast(two);
  trainer.get();
  EXPECT_TRUE(at::equal(one, first));
  EXPECT_TRUE(at::equal(two, second));
}

TEST(TorchGroup, ATrainerThatIsNotThereIsAnError) {
  TorchGroupConfig config = rank_of(1, 1);
  config.timeout = std::chrono::seconds(1);
  try {
    join_torch_group(config);
    FAIL() << "nobody listens at port 1";
  } catch (const GroupError& error) {
    EXPECT_NE(std::string(error.what()).find("joining the group weights at 127.0.0.1:1"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace slime::comm
