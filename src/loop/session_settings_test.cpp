#include "loop/session_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/flag_table.h"
#include "core/error.h"
#include "loop/changed_settings.h"

namespace slime::loop {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

config::RunConfig first_command() {
  config::RunConfig config;
  config.hf_checkpoint = "model";
  config.rm_type = "math";
  config.num_rollout = 4;
  config.rollout_session_id = "mine";
  return config;
}

std::string refusal_of(const config::RunConfig& now) {
  try {
    check_session_settings(settings_of(first_command()), settings_of(now), "mine");
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(SessionSettings, LayoutMicroBatchesPlacesAndLengthMayDiffer) {
  config::RunConfig now = first_command();
  now.tensor_model_parallel_size = 2;
  now.actor_num_gpus_per_node = 2;
  now.micro_batch_size = 3;
  now.max_tokens_per_gpu = 99;
  now.num_rollout = 9;
  now.run_dir = "elsewhere";
  now.recompute_granularity = "full";
  now.use_fault_tolerance = true;
  EXPECT_EQ(refusal_of(now), "");
}

TEST(SessionSettings, AllOtherDifferencesAreNamedAtOnce) {
  config::RunConfig now = first_command();
  now.rm_type = "f1";
  now.n_samples_per_prompt = 5;
  now.tensor_model_parallel_size = 2;
  EXPECT_THAT(
      refusal_of(now),
      AllOf(HasSubstr("--rm-type  math -> f1"), HasSubstr("--n-samples-per-prompt  "),
            Not(HasSubstr("--tensor-model-parallel-size")), HasSubstr("slime session end mine")));
}

TEST(SessionSettings, AFlagThatIsGivenAnewIsADifference) {
  config::RunConfig now = first_command();
  now.use_kl_loss = true;
  EXPECT_THAT(refusal_of(now), HasSubstr("--use-kl-loss  not given -> given"));
}

TEST(SessionSettings, EachFlagThatMayDifferIsOneOfTheProgram) {
  int num_found = 0;
  for (const config::FlagRow& row : config::flag_table())
    num_found += may_differ_in_session(row.name);
  EXPECT_GT(num_found, 50);
  EXPECT_TRUE(may_differ_in_session("--recompute-method"));
  EXPECT_FALSE(may_differ_in_session("--rollout-num-gpus"));
  EXPECT_FALSE(may_differ_in_session("--lr"));
}

}  // namespace
}  // namespace slime::loop
