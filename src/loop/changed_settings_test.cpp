#include "loop/changed_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "train/run_parts.h"

namespace slime::loop {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

config::RunConfig command() {
  config::RunConfig config;
  config.hf_checkpoint = "model";
  config.rm_type = "math";
  config.num_rollout = 4;
  return config;
}

std::vector<std::string> names(const std::vector<ChangedSetting>& changes) {
  std::vector<std::string> found;
  for (const ChangedSetting& change : changes) found.push_back(change.flag);
  return found;
}

std::vector<ChangedSetting> changes_to(const config::RunConfig& now) {
  return changed_settings(settings_of(command()), settings_of(now));
}

TEST(ChangedSettings, TheSameCommandInAnotherFolderHasNone) {
  config::RunConfig now = command();
  now.run_dir = "elsewhere";
  now.save = "there";
  EXPECT_THAT(changes_to(now), IsEmpty());
}

TEST(ChangedSettings, OthersAreATableWithBothValues) {
  config::RunConfig now = command();
  now.num_rollout = 8;
  now.lr = 0.5;
  now.advantage_estimator = "gspo";
  const auto changes = changes_to(now);
  EXPECT_THAT(names(changes), ElementsAre("--advantage-estimator", "--lr", "--num-rollout"));
  EXPECT_THAT(table_of(changes, "iter_0000003"),
              ElementsAre("settings that iter_0000003 was not written with:",
                          "  --advantage-estimator  grpo (default) -> gspo",
                          "  --lr                   1e-06 (default) -> 0.5",
                          HasSubstr("4 -> 8 (learning rates that decay follow the new length")));
  EXPECT_NO_THROW(check_experiment(changes, now, "iter_0000003"));
}

TEST(ChangedSettings, AFlagThatIsGoneIsToldWithTheDefaultThatCounts) {
  config::RunConfig before = command();
  before.advantage_estimator = "gspo";
  before.use_tis = true;
  before.rollout_max_response_len = 64;
  before.freeze_params_name_list = {"embed", "norm"};
  const auto changes = changed_settings(settings_of(before), settings_of(command()));
  EXPECT_THAT(table_of(changes, "iter_0000003"),
              ElementsAre("settings that iter_0000003 was not written with:",
                          "  --advantage-estimator       gspo -> grpo (default)",
                          HasSubstr("embed norm -> not given (Adam begins anew)"),
                          "  --rollout-max-response-len  64 -> not given",
                          "  --use-tis                   given -> not given"));
}

TEST(ChangedSettings, AnotherRewardIsAnotherExperimentUnlessAFlagSaysOtherwise) {
  config::RunConfig now = command();
  now.rm_type = "f1";
  const auto changes = changes_to(now);
  try {
    check_experiment(changes, now, "iter_0000003");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("--rm-type: iter_0000003 was written with math"),
                      HasSubstr("--allow-other-experiment"), HasSubstr("--finetune")));
  }
  now.allow_other_experiment = true;
  EXPECT_NO_THROW(check_experiment(changes, now, "iter_0000003"));
}

TEST(ChangedSettings, SoIsAnotherModelButNotOneThatWasMoved) {
  const fs::path root = fs::path(testing::TempDir()) / "changed_settings_models";
  fs::remove_all(root);
  for (const char* name : {"one", "moved", "other"}) {
    fs::create_directories(root / name);
    std::ofstream(root / name / "config.json") << "{}";
    std::ofstream(root / name / "model.safetensors") << (std::string(name) == "other" ? "2" : "1");
  }
  const auto of = [&](const char* name) {
    config::RunConfig config = command();
    config.hf_checkpoint = (root / name).string();
    return settings_of(config);
  };
  const auto moved = changed_settings(of("one"), of("moved"));
  EXPECT_THAT(names(moved), ElementsAre("--hf-checkpoint"));
  EXPECT_FALSE(moved[0].is_other_experiment);
  EXPECT_TRUE(changed_settings(of("one"), of("other")).at(0).is_other_experiment);
  const json::object before = of("one");
  std::ofstream(root / "one" / "model.safetensors") << "3";
  const auto inside = changed_settings(before, of("one"));
  ASSERT_THAT(names(inside), ElementsAre("--hf-checkpoint"));
  EXPECT_TRUE(inside[0].is_other_experiment);
  EXPECT_EQ(inside[0].effect, "its files are others now");
  fs::remove_all(root);
}

TEST(ChangedSettings, OtherFrozenWeightsLeaveAdamOut) {
  config::RunConfig now = command();
  EXPECT_EQ(left_out_by(changes_to(now)), 0U);
  now.freeze_params_name_list = {"embed"};
  EXPECT_EQ(left_out_by(changes_to(now)), uint32_t{train::kOtherFreeze});
}

TEST(ChangedSettings, ACheckpointThatDoesNotSayIsComparedWithNothing) {
  EXPECT_THAT(changed_settings({}, settings_of(command())), IsEmpty());
}

}  // namespace
}  // namespace slime::loop
