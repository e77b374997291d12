#include "config/users_functions.h"

#include <gtest/gtest.h>

#include <map>

namespace slime::config {
namespace {

std::map<std::string, std::string> paths_by_hook(const RunConfig& config) {
  std::map<std::string, std::string> paths;
  for (const UsersFunction& each : users_functions(config))
    paths[std::string(each.hook)] += each.path + " ";
  return paths;
}

TEST(UsersFunctions, WhatIsBuiltInIsNone) {
  RunConfig config;
  config.dynamic_sampling_filter_path =
      "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std";
  config.buffer_filter_path = "slime.rollout.data_source.pop_first";
  config.custom_rm_path = "slime.rollout.on_policy_distillation.reward_func";
  config.custom_reward_post_process_path =
      "slime.rollout.on_policy_distillation.post_process_rewards";
  EXPECT_TRUE(users_functions(config).empty());
  EXPECT_FALSE(has_users_filter(config));
}

TEST(UsersFunctions, SourcesAndOrdersAreBuiltInUnderTheNamesOfAllVersions) {
  for (const char* path : {"slime.rollout.data_source.RolloutDataSourceWithBuffer",
                           "slime.data.data_source.RolloutDataSourceWithBuffer",
                           "slime.data.data_source.RolloutDataSource",
                           "slime.data.queue_data_source.QueueDataSource"}) {
    RunConfig config;
    config.data_source_path = path;
    config.buffer_filter_path = "slime.data.data_source.pop_first";
    EXPECT_TRUE(users_functions(config).empty()) << path;
  }
}

TEST(UsersFunctions, EachFlagNamesItsHook) {
  RunConfig config;
  config.custom_rm_path = "a.b";
  config.dynamic_sampling_filter_path = "f.py";
  config.rollout_sample_hook_path = {"h.one", "h.two"};
  config.custom_reward_post_process_path = "p.q";
  EXPECT_EQ(paths_by_hook(config),
            (std::map<std::string, std::string>{{"reward", "a.b "},
                                                {"dynamic_filter", "f.py "},
                                                {"sample_hook", "h.one h.two "},
                                                {"reward_post_process", "p.q "}}));
}

TEST(UsersFunctions, ThoseThatARunHasNoUseForAreIdle) {
  RunConfig config;
  config.custom_rm_path = "a.b";
  config.custom_reward_post_process_path = "p.q";
  config.custom_rollout_log_function_path = "l.m";
  config.custom_eval_rollout_log_function_path = "e.f";
  EXPECT_EQ(users_functions(config).size(), 3u);
  ASSERT_EQ(idle_functions(config).size(), 1u) << "nothing is evaluated";
  EXPECT_EQ(idle_functions(config)[0].flag, "--custom-eval-rollout-log-function-path");
  config.eval_interval = 1;
  EXPECT_TRUE(idle_functions(config).empty());
  config.debug_rollout_only = true;
  EXPECT_EQ(idle_functions(config)[0].hook, "reward_post_process");
  config.debug_rollout_only = false;
  config.load_debug_rollout_data = "dump";
  EXPECT_EQ(paths_by_hook(config), (std::map<std::string, std::string>{
                                       {"reward_post_process", "p.q "}, {"rollout_log", "l.m "}}));
}

}  // namespace
}  // namespace slime::config
