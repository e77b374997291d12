#include "acceptance/tiny_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "acceptance/engine_steps.h"
#include "acceptance/tiny_run.h"
#include "core/error.h"
#include "model/network.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::acceptance {
namespace {

namespace fs = std::filesystem;

class TinyFiles : public ::testing::Test {
 protected:
  TinyFiles() : folder_(fs::path(testing::TempDir()) / "slime_acceptance") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~TinyFiles() override { fs::remove_all(folder_); }
  fs::path folder_;
};

constexpr TinyShape kSmall{.hidden = 64, .layers = 1, .heads = 2, .kv_heads = 1, .head_dim = 32};

TEST_F(TinyFiles, AreAModelThatOthersRead) {
  write_tiny_model(folder_ / "model", kSmall);
  const auto network = model::load_network(folder_ / "model", model::Precision::of("float32"));
  EXPECT_EQ(network->config().hidden_size, 64);
  const auto tokenizer = text::Tokenizer::load(folder_ / "model");
  EXPECT_EQ(tokenizer->encode("<|im_start|>user\nhi<|im_end|>"),
            (std::vector<TokenId>{257, 260, 10, 'h', 'i', 258}));
}

TEST_F(TinyFiles, HaveRowsForBothKindsOfTraining) {
  write_tiny_rows(folder_ / "rows.jsonl", 3);
  std::ifstream file(folder_ / "rows.jsonl");
  int count = 0;
  for (std::string line; std::getline(file, line); ++count) {
    const json::value row = parse_json(line, "row");
    EXPECT_EQ(row.at("messages").as_array().size(), 2U);
    EXPECT_EQ(row.at("messages").at(1).at("content"), row.at("label"));
  }
  EXPECT_EQ(count, 3);
}

TEST_F(TinyFiles, MetricsAreReadInTheirOrder) {
  std::ofstream(folder_ / "metrics.jsonl") << R"({"step": 0, "train/loss": 3.5})"
                                           << "\n"
                                           << R"({"step": 0, "rollout/reward": 1})"
                                           << "\n"
                                           << R"({"step": 1, "train/loss": 2})"
                                           << "\n";
  EXPECT_EQ(metric_in(folder_ / "metrics.jsonl", "train/loss"), (std::vector<double>{3.5, 2}));
  EXPECT_THROW(metric_in(folder_ / "absent.jsonl", "train/loss"), ConfigError);
}

TEST(GreedyAnswers, RepeatAndDifferInATokenOrABit) {
  const auto network = model::make_network(model::parse_model_config(tiny_config(kSmall), "config"),
                                           model::Precision::of("float32"), 1);
  const auto first = greedy_answers(*network, true, 3, 4);
  EXPECT_EQ(answers_that_differ(first, greedy_answers(*network, true, 3, 4)), 0);
  auto other = first;
  other[0].tokens[1] += 1;
  other[2].log_probs[3] = std::nextafter(other[2].log_probs[3], 0.0F);
  EXPECT_EQ(answers_that_differ(first, other), 2);
}

}  // namespace
}  // namespace slime::acceptance
