#include "model/foreign_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "model/config.h"

namespace slime::model {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ForeignCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(root_); }
  void TearDown() override { fs::remove_all(root_); }
  void touch(const std::string& file) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << "x";
  }
  const fs::path root_ = fs::path(testing::TempDir()) / "foreign_checkpoint";
};

TEST_F(ForeignCheckpoint, OfMegatronIsCalledWhatItIs) {
  touch("release/__0_0.distcp");
  touch("release/.metadata");
  touch("latest_checkpointed_iteration.txt");
  EXPECT_THAT(foreign_checkpoint(root_), HasSubstr("Megatron-LM (torch_dist)"));
  EXPECT_THAT(foreign_checkpoint(root_ / "release"), HasSubstr("convert_torch_dist_to_hf"));
  try {
    read_model_config(root_);
    FAIL() << "read";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("Megatron-LM (torch_dist), which is not read here"));
  }
}

TEST_F(ForeignCheckpoint, TheCommandThatConvertsTheNewestIsWholeAndFoundAgain) {
  for (const char* iteration : {"iter_0000100", "iter_0000020", "iter_0000300", "iter_0000040"})
    touch(std::string(iteration) + "/__0_0.distcp");
  const std::string input = (root_ / "iter_0000300").string();
  EXPECT_THAT(
      foreign_checkpoint(root_, "/models/Qwen3-4B"),
      HasSubstr("python3 tools/convert_torch_dist_to_hf.py --input-dir " + input +
                " --output-dir " + input + "-hf --origin-hf-dir /models/Qwen3-4B, and give " +
                input + "-hf in its place"));
  EXPECT_EQ(foreign_checkpoint(input + "/", "M"), foreign_checkpoint(root_, "M"));
  touch("iter_0000300-hf/config.json");
  touch("iter_0000300-hf/model.safetensors");
  EXPECT_THAT(foreign_checkpoint(root_, "M"),
              HasSubstr(input + "-hf is what it was converted to: give that in its place"));
}

TEST_F(ForeignCheckpoint, TheCommandCanBeTypedWhateverThePathsAre) {
  touch("a run's/iter_0000001/__0_0.distcp");
  const std::string input = (root_ / "a run'\\''s/iter_0000001").string();
  EXPECT_THAT(foreign_checkpoint(root_ / "a run's", "M"),
              HasSubstr("--input-dir '" + input + "' --output-dir '" + input +
                        "-hf' --origin-hf-dir M, and give "));
}

TEST_F(ForeignCheckpoint, OfOlderMegatronToo) {
  touch("iter_0000100/mp_rank_00/model_optim_rng.pt");
  EXPECT_THAT(foreign_checkpoint(root_), HasSubstr("Megatron-LM (torch)"));
}

TEST_F(ForeignCheckpoint, OfOtherSystemsIsCalledByTheirNames) {
  touch("deepspeed/zero_to_fp32.py");
  touch("verl/global_step_100/actor/model_world_size_8_rank_0.pt");
  touch("adapter/adapter_config.json");
  EXPECT_THAT(foreign_checkpoint(root_ / "deepspeed"), HasSubstr("DeepSpeed"));
  EXPECT_THAT(foreign_checkpoint(root_ / "verl"), HasSubstr("verl"));
  EXPECT_THAT(foreign_checkpoint(root_ / "adapter"), HasSubstr("PEFT"));
}

TEST_F(ForeignCheckpoint, AModelDirectoryWithFilesOfATrainerIsOneAllTheSame) {
  touch("config.json");
  touch("model.safetensors");
  touch("zero_to_fp32.py");
  touch("global_step3/rank_0_optim_states.pt");
  EXPECT_EQ(foreign_checkpoint(root_), "");
}

TEST_F(ForeignCheckpoint, OursAndNoneAreNot) {
  EXPECT_EQ(foreign_checkpoint(root_), "");
  touch("iter_0000100/config.json");
  touch("iter_0000100/COMMITTED");
  EXPECT_EQ(foreign_checkpoint(root_), "");
}

}  // namespace
}  // namespace slime::model
