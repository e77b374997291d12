#include "loop/run_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.h"

namespace slime::loop {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
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

TEST(RunDevices, EachProcessSeesItsOwnOfThoseTheUserShows) {
  ::setenv("CUDA_VISIBLE_DEVICES", "4,5,7", 1);
  EXPECT_THAT(visible_devices_of_engine(run_on("cuda", 1, 2), 0), ElementsAre("5"));
  EXPECT_THAT(visible_devices_of_engine(run_on("cuda", 1, 2), 1), ElementsAre("7"));
  EXPECT_THAT(visible_devices_of_rank(run_on("cuda", 2, 1), 1), ElementsAre("5"));
  EXPECT_THAT([] { check_devices(run_on("cuda", 4, 0), 3); },
              ThrowsMessage<ConfigError>(HasSubstr("(CUDA_VISIBLE_DEVICES=4,5,7)")));
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_THAT(visible_devices_of_engine(run_on("cuda", 1, 2), 1), ElementsAre("2"));
  EXPECT_THAT(visible_devices_of_engine(run_on("cpu", 1, 2), 1), IsEmpty());
}

}  // namespace
}  // namespace slime::loop
