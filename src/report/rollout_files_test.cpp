#include "report/rollout_files.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"

namespace slime::report {
namespace {

class RolloutFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("slime_rollout_files_" + std::to_string(getpid()));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(RolloutFiles, ComeBackAsTheyWere) {
  std::vector<Group> groups(2);
  for (int64_t g = 0; g < 2; ++g) {
    groups[g].ordinal = 10 + g;
    for (int64_t i = 0; i < 2; ++i) {
      Sample sample;
      sample.group = 10 + g;
      sample.ordinal = 20 + 2 * g + i;
      sample.tokens = {1, 2, 3};
      sample.prompt_length = 2;
      sample.log_probs = {-0.25F};
      sample.reward = 0.5;
      sample.status = Status::kCompleted;
      groups[g].samples.push_back(sample);
    }
  }
  const auto path = numbered_path((folder_ / "{rollout_id}.jsonl").string(), 7);
  EXPECT_EQ(path.filename(), "7.jsonl");
  write_samples(path, groups,
                {.train_log_probs = [](const Sample&) { return std::vector<float>{-0.5F}; },
                 .token_texts = [](const Sample&) { return std::vector<std::string>{"x"}; }});
  const std::vector<Group> again = read_samples(path);
  ASSERT_EQ(again.size(), 2u);
  for (int64_t g = 0; g < 2; ++g) {
    ASSERT_EQ(again[g].samples.size(), 2u);
    for (int64_t i = 0; i < 2; ++i)
      EXPECT_EQ(to_json(again[g].samples[i]), to_json(groups[g].samples[i]));
  }
}

TEST_F(RolloutFiles, ABrokenLineIsNamed) {
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ / "x.jsonl") << "{\"status\": \"completed\"}\n{broken\n";
  try {
    read_samples(folder_ / "x.jsonl");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("line 2"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace slime::report
