#include "buffer/filter.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/golden_test.h"

namespace slime::buffer {
namespace {

Group group_of(const json::array& rewards, const json::value& reward_key) {
  Group group;
  for (const json::value& reward : rewards) {
    Sample& sample = group.samples.emplace_back();
    sample.reward = reward_key.is_null() ? reward : json::object{{reward_key.get_string(), reward}};
  }
  return group;
}

GOLDEN_TEST(DynamicFilter, "dynamic_filter.json") {
  const json::object& params = c.at("params").get_object();
  const json::object& inputs = c.at("inputs").get_object();
  const json::object& expected = c.at("expected").get_object();
  if (params.at("function") == "should_drop") {
    const FilterVerdict verdict{
        .keep = inputs.at("keep").get_bool(),
        .reason = "",
        .keep_when_insufficient = params.at("keep_when_insufficient").get_bool()};
    EXPECT_EQ(should_drop(verdict, inputs.at("remaining_batch_size").get_int64(),
                          inputs.at("target_data_size").get_int64()),
              expected.at("drop").get_bool());
    return;
  }
  const json::value& key = params.at("reward_key");
  const std::string reward_key = key.is_null() ? "" : std::string(key.get_string());
  const FilterVerdict verdict =
      check_reward_nonzero_std(group_of(inputs.at("rewards").get_array(), key), reward_key);
  EXPECT_EQ(verdict.keep, expected.at("keep").get_bool());
  EXPECT_EQ(verdict.reason,
            expected.at("reason").is_null() ? "" : std::string(expected.at("reason").get_string()));
  EXPECT_FALSE(verdict.keep_when_insufficient);
}

TEST(Filter, IsFoundByTheNameThatScriptsUse) {
  const std::string hub = "slime.rollout.filter_hub.dynamic_sampling_filters.";
  const Group equal = group_of({1, 1}, nullptr);
  EXPECT_TRUE(make_filter("")(equal, "").keep);
  EXPECT_FALSE(make_filter(hub + "check_reward_nonzero_std")(equal, "").keep_when_insufficient);
  EXPECT_TRUE(make_filter(hub + "check_reward_nonzero_std_with_fallback")(equal, "")
                  .keep_when_insufficient);
  EXPECT_THROW(make_filter("my.module.filter"), ConfigError);
}

}  // namespace
}  // namespace slime::buffer
