#include "loop/parse_flags.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "core/error.h"
#include "loop/flag_table.h"

namespace slime::loop {
namespace {

std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> result;
  for (std::string word; stream >> word;) result.push_back(word);
  return result;
}

std::string refusal(const std::string& line) {
  try {
    ParsedFlags parsed = parse_flags(words(line));
    complete_and_validate(parsed.config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

const std::string kGood =
    "--hf-checkpoint /tmp --prompt-data x.jsonl --rollout-batch-size 4 --n-samples-per-prompt 8 "
    "--num-rollout 3 "
    "--rollout-max-response-len 16 --rm-type math ";

TEST(Flags, FillTheConfigByTheOriginalsWords) {
  const auto parsed = parse_flags(
      words(kGood + "--lr 3e-5 --eps-clip-high=0.28 --rollout-stop-token-ids 1 2 --use-kl-loss"));
  EXPECT_EQ(parsed.config.lr, 3e-5);
  EXPECT_EQ(parsed.config.eps_clip_high, 0.28);
  EXPECT_EQ(parsed.config.rollout_stop_token_ids, (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(parsed.config.use_kl_loss);
  EXPECT_TRUE(parsed.warnings.empty());
}

TEST(Flags, ANegativeNumberIsAValueNotAFlag) {
  EXPECT_EQ(parse_flags(words("--rollout-top-k -1")).config.rollout_top_k, -1);
}

TEST(Flags, AnUnknownFlagIsAWarningWithTheNearestName) {
  const auto parsed = parse_flags(words("--rollout-temprature 0.7 --frobnicate"));
  ASSERT_EQ(parsed.warnings.size(), 2u);
  EXPECT_EQ(parsed.warnings[0],
            "unknown flag --rollout-temprature is ignored; did you mean --rollout-temperature?");
  EXPECT_EQ(parsed.warnings[1], "unknown flag --frobnicate is ignored");
}

TEST(Flags, AFlagWithoutEffectSaysWhy) {
  const auto parsed = parse_flags(words("--colocate --sglang-mem-fraction-static 0.7"));
  ASSERT_EQ(parsed.warnings.size(), 2u);
  EXPECT_EQ(parsed.warnings[0], "--colocate has no effect: always so here");
}

TEST(Flags, AllMistakesAreReportedAtOnce) {
  const std::string text =
      refusal("--lr fast --advantage-estimator magic --use-kl-loss yes --custom-rm-path a.b");
  EXPECT_NE(text.find("--lr fast: should be a number"), std::string::npos);
  EXPECT_NE(text.find("--advantage-estimator magic: should be one of grpo"), std::string::npos);
  EXPECT_NE(text.find("--use-kl-loss is a switch"), std::string::npos);
  EXPECT_NE(text.find("--custom-rm-path: runs user code"), std::string::npos);
}

TEST(Flags, TheCommandLineWinsOverTheFile) {
  const auto path = std::filesystem::temp_directory_path() / "slime_flags_test.yaml";
  std::ofstream(path) << "lr: 1e-3\nrollout_batch_size: 7\nuse-kl-loss: true\nuse-tis: "
                         "false\nprompt-data: [a.jsonl, b.jsonl]\n";
  const auto parsed = parse_flags(words("--lr 2e-3 --config " + path.string()));
  EXPECT_EQ(parsed.config.lr, 2e-3);
  EXPECT_EQ(parsed.config.rollout_batch_size, 7);
  EXPECT_TRUE(parsed.config.use_kl_loss);
  EXPECT_FALSE(parsed.config.use_tis);
  EXPECT_EQ(parsed.config.prompt_data, (std::vector<std::string>{"a.jsonl", "b.jsonl"}));
  std::filesystem::remove(path);
}

struct BadConfig {
  const char* flags;
  const char* says;
};

class Contradiction : public testing::TestWithParam<BadConfig> {};

TEST_P(Contradiction, NamesKeyValueAndWhatWouldWork) {
  const std::string text = refusal(kGood + GetParam().flags);
  EXPECT_NE(text.find(GetParam().says), std::string::npos) << "said: " << text;
}

INSTANTIATE_TEST_SUITE_P(
    All, Contradiction,
    testing::Values(
        BadConfig{"--rollout-temperature 0", "--rollout-temperature 0: should be above 0"},
        BadConfig{"--rollout-top-p 1.5", "--rollout-top-p 1.5: should be in (0, 1]"},
        BadConfig{"--rollout-top-k 0", "--rollout-top-k 0: should be -1"},
        BadConfig{"--kl-coef 0.1 --use-kl-loss --kl-loss-coef 0.1", "only one may be non-zero"},
        BadConfig{"--kl-loss-coef 0.1", "--kl-loss-coef: needs --use-kl-loss"},
        BadConfig{"--advantage-estimator reinforce_plus_plus", "needs --normalize-advantages"},
        BadConfig{"--use-rollout-logprobs --use-tis", "choose one"},
        BadConfig{"--eps-clip-c 0.5", "--eps-clip-c: should be above 1"},
        BadConfig{"--use-dynamic-batch-size", "needs --max-tokens-per-gpu"},
        BadConfig{"--balance-by-flops", "needs --use-dynamic-batch-size"},
        BadConfig{"--over-sampling-batch-size 2", "should be at least --rollout-batch-size 4"},
        BadConfig{"--global-batch-size 64", "should be between 1 and"},
        BadConfig{"--global-batch-size 5", "do not divide by it"},
        BadConfig{"--global-batch-size 8 --num-steps-per-rollout 2",
                  "contradicts --num-steps-per-rollout 2, which makes it 16"},
        BadConfig{"--eval-interval 5", "needs --eval-prompt-data"},
        BadConfig{"--eval-prompt-data a b c", "pairs of name and path"},
        BadConfig{"--tensor-model-parallel-size 2",
                  "--tensor-model-parallel-size 2: a run is one process"},
        BadConfig{"--rollout-max-context-len 64 --rollout-max-prompt-len 64",
                  "should be below --rollout-max-context-len 64"},
        BadConfig{"--loss-type sft_loss", "belong together"},
        BadConfig{"--bf16 --fp16", "choose one"},
        BadConfig{"--lr-warmup-fraction 0.1 --lr-warmup-iters 3", "choose one"},
        BadConfig{"--min-lr 1", "is above --lr"},
        BadConfig{"--save-debug-rollout-data x.jsonl", "should contain {rollout_id}"},
        BadConfig{"--debug-rollout-only --debug-train-only", "choose one"},
        BadConfig{"--apply-chat-template-kwargs [1]", "should be a JSON object"},
        BadConfig{"--mask-offpolicy-in-partial-rollout", "needs --partial-rollout"}));

TEST(Flags, AGoodConfigIsCompleted) {
  ParsedFlags parsed = parse_flags(words(kGood + "--num-steps-per-rollout 2"));
  complete_and_validate(parsed.config);
  EXPECT_EQ(parsed.config.global_batch_size, 16);
  EXPECT_EQ(parsed.config.eps_clip_high, 0.2);
  EXPECT_EQ(parsed.config.over_sampling_batch_size, 4);
  EXPECT_EQ(parsed.config.ref_load, "/tmp");
}

TEST(FlagTable, HasEachNameOnceAndAMeaningForEach) {
  std::set<std::string_view> names;
  for (const Flag& flag : flag_table()) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    EXPECT_FALSE(flag.meaning.empty()) << flag.name;
    EXPECT_EQ(
        flag.status == FlagStatus::kWorks && std::holds_alternative<std::monostate>(flag.member),
        false)
        << flag.name;
  }
}

}  // namespace
}  // namespace slime::loop
