#include "setup/run_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.h"

namespace slime::setup {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

config::RunConfig run_on(const std::string& device, int64_t ranks, int64_t engines) {
  config::RunConfig config;
  config.device = device;
  config.actor_num_gpus_per_node = ranks;
  config.num_engine_workers = engines;
  return config;
}

TEST(RunDevices, TrainerRanksAndEnginesHaveADeviceEach) {
  EXPECT_EQ(devices_needed(run_on("cuda", 1, 0)), 1);
  EXPECT_EQ(devices_needed(run_on("cuda", 1, 3)), 4);
  EXPECT_EQ(devices_needed(run_on("cuda", 2, 2)), 4);
  EXPECT_EQ(devices_needed(run_on("cpu", 2, 2)), 0);
}

TEST(RunDevices, ServersOfOthersHaveTheirOwn) {
  config::RunConfig config = run_on("cuda", 2, 3);
  config.rollout_external_engine_addrs = std::vector<std::string>{"a:1", "b:1", "c:1"};
  EXPECT_EQ(devices_needed(config), 2);
}

TEST(RunDevices, TooFewAreRefusedWithWhatEachIsFor) {
  check_devices(run_on("cuda", 1, 1), 2);
  check_devices(run_on("cpu", 4, 4), 0);
  EXPECT_THAT([] { check_devices(run_on("cuda", 1, 3), 2); },
              ThrowsMessage<ConfigError>(
                  AllOf(HasSubstr("the run needs 4 GPUs"), HasSubstr("1 for training"),
                        HasSubstr("3 for engines (--rollout-num-gpus)"), HasSubstr("shows 2"))));
  EXPECT_THAT([] { check_devices(run_on("cuda", 1, 0), 0); },
              ThrowsMessage<ConfigError>(HasSubstr("the run needs 1 GPU, ")));
}

TEST(RunDevices, EnginesHaveThePlacesBehindThoseOfTheTrainer) {
  const cluster::Placement placement = place_workers(run_on("cuda", 2, 2), 1, 4);
  EXPECT_EQ(placement.of_rank(1), (cluster::WorkerPlace{.node = 0, .device = 1}));
  EXPECT_EQ(placement.of_engine(1), (cluster::WorkerPlace{.node = 0, .device = 3}));
  EXPECT_EQ(place_workers(run_on("cpu", 2, 2), 1, 0).of_engine(1), cluster::WorkerPlace{});
}

TEST(RunDevices, OnSeveralNodesPlacesGoOnWhereTheNodeBeforeEnds) {
  config::RunConfig config = run_on("cuda", 2, 3);
  config.actor_num_nodes = 2;
  const cluster::Placement placement = place_workers(config, 2, 4);
  EXPECT_EQ(placement.of_rank(3), (cluster::WorkerPlace{.node = 0, .device = 3}));
  EXPECT_EQ(placement.of_engine(2), (cluster::WorkerPlace{.node = 1, .device = 2}));
  config.num_gpus_per_node = 3;
  EXPECT_THAT([&] { place_workers(config, 2, 4); },
              ThrowsMessage<ConfigError>(
                  AllOf(HasSubstr("needs 7 places"), HasSubstr("2 nodes with 3 each"))));
}

}  // namespace
}  // namespace slime::setup
