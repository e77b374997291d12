#include "report/rollout_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <mutex>

#include "core/error.h"
#include "report/rollout_files.h"

namespace slime::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

TEST(GroupsWithin, AreAllWhereTheyFitAndOtherwiseEvenlySpacedOnes) {
  const std::vector<uint64_t> sizes(8, 10);
  EXPECT_THAT(groups_within(sizes, 80), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(groups_within(sizes, 40), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(groups_within(sizes, 20), ElementsAre(1, 5));
  EXPECT_THAT(groups_within(sizes, 1), ElementsAre(4)) << "one at least";
  EXPECT_TRUE(groups_within({}, 1).empty());
  const std::vector<uint64_t> uneven{100, 1, 1, 1, 1, 1};
  uint64_t bytes = 0;
  for (const std::size_t i : groups_within(uneven, 50)) bytes += uneven[i];
  EXPECT_LE(bytes, 50U);
}

class RolloutWriters : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.run_dir = folder_.string();
    config_.hf_checkpoint = SLIME_SOURCE_DIR "/tests/fixtures/models/qwen3";
    fs::remove_all(folder_);
    run_.emplace(config_);
    tokenizer_ = text::Tokenizer::load(SLIME_SOURCE_DIR "/tests/fixtures/tokenizers/tiny_smollm");
  }
  ~RolloutWriters() override {
    run_.reset();
    fs::remove_all(folder_);
  }
  std::unique_ptr<RolloutWriter> writer() {
    return std::make_unique<RolloutWriter>(config_, *run_, *tokenizer_,
                                           [this](const std::string& text) {
                                             const std::lock_guard lock(mutex_);
                                             told_ += text + "\n";
                                           });
  }
  /// Groups of one sample with a response of so many tokens.
  static Collected step(int64_t num_groups, int64_t length) {
    Collected collected;
    for (int64_t g = 0; g < num_groups; ++g) {
      Sample sample{.ordinal = g, .group = g, .prompt_length = 1};
      sample.tokens.assign(static_cast<std::size_t>(1 + length), 5);
      sample.status = Status::kCompleted;
      sample.reward = 1.0;
      collected.groups.push_back({g, {sample}});
    }
    return collected;
  }

  const fs::path folder_ =
      fs::path(::testing::TempDir()) / ("rollout_writer_" + std::to_string(::getpid()));
  config::RunConfig config_;
  std::optional<RunFolder> run_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::mutex mutex_;
  std::string told_;
};

TEST_F(RolloutWriters, WriteWhatTheTrainerSawBesideEachSample) {
  const auto writes = writer();
  train::TrainReport report;
  report.log_probs = {{-1, -2}, {-3, -4}};
  writes->write(0, step(2, 2), &report);
  writes->drain();
  const std::vector<Group> groups = read_samples(run_->rollouts(0));
  ASSERT_EQ(groups.size(), 2U);
  std::ifstream file(run_->rollouts(0));
  std::string first, second;
  std::getline(file, first);
  std::getline(file, second);
  const json::value last = parse_json(second, "the second line");
  EXPECT_EQ(json::value_to<std::vector<float>>(last.at("train_log_probs")),
            (std::vector<float>{-3, -4}));
  EXPECT_THAT(first, HasSubstr("\"token_texts\""));
  EXPECT_EQ(told_, "");
}

TEST_F(RolloutWriters, KeepOfALargeStepWhatFitsAndSaySo) {
  config_.rollout_files_mb_per_step = 0.02;  // about 20 kB; a group has about 1.2
  const auto writes = writer();
  for (int64_t s = 0; s < 3; ++s) writes->write(s, step(100, 10), nullptr);
  writes->drain();
  const std::size_t kept = read_samples(run_->rollouts(2)).size();
  EXPECT_GT(kept, 5U);
  EXPECT_LT(kept, 30U);
  EXPECT_THAT(told_, HasSubstr("of 100 groups, from now on as many as fit"));
  EXPECT_EQ(told_.find("from now on"), told_.rfind("from now on")) << "said once";
}

TEST_F(RolloutWriters, RemoveTheOldestStepsBeyondTheTotal) {
  config_.rollout_files_gb = 1e-5;  // about 10 kB; a step has about 3
  const auto writes = writer();
  for (int64_t s = 0; s < 20; ++s) writes->write(s, step(10, 10), nullptr);
  writes->drain();
  EXPECT_FALSE(fs::exists(run_->rollouts(0)));
  EXPECT_TRUE(fs::exists(run_->rollouts(19)));
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder_ / "rollouts")) bytes += entry.file_size();
  EXPECT_LT(bytes, 12'000U);
  EXPECT_THAT(told_, HasSubstr("the oldest steps' files are removed"));
}

TEST_F(RolloutWriters, ADumpThatCannotBeWrittenEndsTheRunAndAReportsFileDoesNot) {
  std::ofstream(folder_ / "a_file") << "x";
  config_.save_debug_rollout_data = (folder_ / "a_file" / "{rollout_id}.jsonl").string();
  {
    const auto writes = writer();
    writes->write(0, step(1, 1), nullptr);
    EXPECT_THROW(writes->drain(), ConfigError);
    EXPECT_TRUE(fs::exists(run_->rollouts(0)));
  }
  config_.save_debug_rollout_data.clear();
  fs::remove_all(folder_ / "rollouts");
  std::ofstream(folder_ / "rollouts") << "no folder";
  const auto writes = writer();
  writes->write(1, step(1, 1), nullptr);
  EXPECT_NO_THROW(writes->drain());
  EXPECT_THAT(told_, HasSubstr("the report will lack rollouts"));
}

TEST_F(RolloutWriters, WriteWhatTheyWereGivenBeforeTheyEnd) {
  writer()->write_skipped(7, step(3, 2));
  EXPECT_EQ(read_samples(run_->skipped(7)).size(), 3U);
}

}  // namespace
}  // namespace slime::report
