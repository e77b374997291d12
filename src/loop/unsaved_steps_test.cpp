#include "loop/unsaved_steps.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "buffer/ledger.h"
#include "core/error.h"

namespace slime::loop {
namespace {

namespace fs = std::filesystem;

class UnsavedStepsTest : public testing::Test {
 protected:
  UnsavedStepsTest()
      : folder_(fs::temp_directory_path() /
                ("unsaved_steps_" + std::to_string(::getpid()) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~UnsavedStepsTest() override { fs::remove_all(folder_); }

  /// `count` groups of prompts of a source without rows, each sampled to its end.
  static std::vector<Group> sampled(buffer::DataSource& prompts, int64_t count) {
    std::vector<Group> groups = prompts.take(count);
    for (Group& group : groups) {
      for (Sample& sample : group.samples) {
        sample.tokens = {1, 2};
        sample.log_probs = {-0.5F, -0.25F};
        sample.versions = {{3, 2}};
        sample.status = Status::kCompleted;
        sample.reward = 1.0;
      }
    }
    return groups;
  }
  static report::Collected collected(std::vector<Group> groups) {
    report::Collected step;
    step.groups = std::move(groups);
    return step;
  }

  fs::path folder_;
};

TEST_F(UnsavedStepsTest, StepsAreReadInTheirOrderWithoutAGap) {
  buffer::DataSource prompts(nullptr, {.samples_per_prompt = 2});
  UnsavedSteps steps(folder_);
  for (const int64_t step : {4, 5, 7}) steps.keep(step, collected(sampled(prompts, 1)));
  const auto [groups, num_steps, damage] = UnsavedSteps(folder_).read(4);
  EXPECT_EQ(num_steps, 2);
  EXPECT_EQ(damage, "");
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].ordinal, 0);
  EXPECT_EQ(groups[1].ordinal, 1);
  EXPECT_EQ(groups[1].samples[0].reward, json::value(1.0));
  EXPECT_TRUE(steps.read(3).groups.empty());
}

TEST_F(UnsavedStepsTest, ThoseThatACheckpointHasAreRemoved) {
  buffer::DataSource prompts(nullptr, {.samples_per_prompt = 2});
  UnsavedSteps steps(folder_);
  for (const int64_t step : {4, 5, 6}) steps.keep(step, collected(sampled(prompts, 1)));
  steps.saved(5);
  EXPECT_TRUE(steps.read(4).groups.empty());
  EXPECT_EQ(steps.read(6).groups.size(), 1u);
}

TEST_F(UnsavedStepsTest, AFileThatIsTornEndsThemAndIsNamed) {
  buffer::DataSource prompts(nullptr, {.samples_per_prompt = 2});
  UnsavedSteps steps(folder_);
  steps.keep(0, collected(sampled(prompts, 1)));
  std::ofstream(folder_ / "step_0000001.json") << R"({"step": 1, "groups": [)";
  const UnsavedGroups found = steps.read(0);
  EXPECT_EQ(found.groups.size(), 1u);
  EXPECT_EQ(found.num_steps, 1);
  EXPECT_NE(found.damage.find("step_0000001.json: is cut off"), std::string::npos) << found.damage;
  // A file of another step under this name is no next step either.
  fs::copy_file(folder_ / "step_0000000.json", folder_ / "step_0000001.json",
                fs::copy_options::overwrite_existing);
  EXPECT_NE(steps.read(0).damage.find("says that it is step 0"), std::string::npos);
}

TEST_F(UnsavedStepsTest, GroupsComeAgainFinishedAndBeforeAllOthers) {
  buffer::DataSource first(nullptr, {.samples_per_prompt = 2});
  std::vector<Group> generated = sampled(first, 3);
  generated.erase(generated.begin() + 1);  // a filter dropped it
  buffer::DataSource prompts(nullptr, {.samples_per_prompt = 2});
  fs::create_directories(folder_);
  OutcomeLog outcomes(
      std::make_unique<buffer::Ledger>(buffer::Ledger::create(folder_ / "ledger.jsonl")), true);
  EXPECT_EQ(give_again(std::move(generated), prompts, outcomes), (std::set<int64_t>{0, 2}));
  const std::vector<Group> next = prompts.take(4);
  EXPECT_EQ(next[0].ordinal, 0);
  EXPECT_EQ(next[0].samples[1].status, Status::kCompleted);
  EXPECT_EQ(next[1].ordinal, 2);
  EXPECT_EQ(next[2].ordinal, 1);
  EXPECT_EQ(next[2].samples[0].status, Status::kPending);
  EXPECT_EQ(next[3].ordinal, 3);
  EXPECT_TRUE(prompts.gave_finished(2));
  EXPECT_FALSE(prompts.gave_finished(1));
  EXPECT_TRUE(outcomes.knows(2));
}

TEST_F(UnsavedStepsTest, GroupsOfOtherPromptsAreLeft) {
  buffer::DataSource first(nullptr, {.samples_per_prompt = 2});
  std::vector<Group> generated = sampled(first, 1);
  for (Sample& sample : generated[0].samples) sample.prompt_length = 1;
  buffer::DataSource prompts(nullptr, {.samples_per_prompt = 2});
  fs::create_directories(folder_);
  OutcomeLog outcomes(
      std::make_unique<buffer::Ledger>(buffer::Ledger::create(folder_ / "ledger.jsonl")), true);
  EXPECT_TRUE(give_again(std::move(generated), prompts, outcomes).empty());
  EXPECT_EQ(prompts.take(1)[0].samples[0].status, Status::kPending);
}

}  // namespace
}  // namespace slime::loop
