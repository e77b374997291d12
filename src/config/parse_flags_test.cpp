// One file because each of its lines is a command and what is said to it.

#include "config/parse_flags.h"
#include "config/validate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "config/flag_table.h"
#include "core/error.h"

namespace slime::config {
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
    complete_and_validate(parsed);
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

std::vector<std::string> warnings_of(const std::string& line) {
  ParsedFlags parsed = parse_flags(words(line));
  complete_and_validate(parsed);
  return parsed.warnings;
}

TEST(Flags, AMisspeltFlagIsNamedBesideWhatIsMissingForIt) {
  const std::string text =
      refusal("--hf-checkpoint /tmp --rollout-batchsize 4 --promt-data x.jsonl");
  EXPECT_NE(text.find("--prompt-data: missing; a file of rows"), std::string::npos) << text;
  EXPECT_NE(text.find("--promt-data; did you mean --prompt-data?"), std::string::npos) << text;
  EXPECT_NE(text.find("did you mean --rollout-batch-size?"), std::string::npos) << text;
}

TEST(Flags, EvaluationThatNeverRunsIsAWarningThatNamesBothFlags) {
  const std::string eval = "--eval-prompt-data a a.jsonl --eval-interval 5 ";
  EXPECT_EQ(warnings_of(kGood + eval), (std::vector<std::string>{}));
  EXPECT_EQ(
      warnings_of(kGood + eval + "--debug-train-only --load-debug-rollout-data d/{rollout_id}"),
      (std::vector<std::string>{
          "--eval-prompt-data, --eval-interval have no effect: "
          "--load-debug-rollout-data generates nothing, so nothing is evaluated"}));
  EXPECT_EQ(warnings_of(kGood + eval + "--loss-type dpo_loss --n-samples-per-prompt 2"),
            (std::vector<std::string>{
                "--eval-prompt-data, --eval-interval have no effect: --loss-type dpo_loss "
                "generates nothing, so nothing is evaluated"}));
  // Supervised training evaluates the loss on rows.
  const std::string supervised =
      kGood + eval +
      "--loss-type sft_loss --rollout-function-path slime.rollout.sft_rollout.generate_rollout ";
  EXPECT_EQ(warnings_of(supervised), (std::vector<std::string>{}));
  EXPECT_EQ(warnings_of(supervised + "--eval-temperature 0.5 --n-samples-per-eval-prompt 2"),
            (std::vector<std::string>{
                "--eval-temperature, --n-samples-per-eval-prompt have no effect: --loss-type "
                "sft_loss evaluates the loss on rows, and draws nothing"}));
  EXPECT_EQ(warnings_of(kGood + "--eval-prompt-data a a.jsonl"),
            (std::vector<std::string>{"--eval-prompt-data has no effect: without --eval-interval "
                                      "nothing is evaluated"}));
}

TEST(Flags, AFlagWithoutEffectSaysWhy) {
  const auto parsed = parse_flags(words("--use-distributed-post --sglang-page-size 16"));
  ASSERT_EQ(parsed.warnings.size(), 2u);
  EXPECT_EQ(parsed.warnings[0],
            "--use-distributed-post has no effect: ranks hand their results over by themselves");
}

TEST(Flags, AllMistakesAreReportedAtOnce) {
  const std::string text =
      refusal("--lr fast --advantage-estimator magic --use-kl-loss yes --custom-rm-path ab");
  EXPECT_NE(text.find("--lr fast: should be a number"), std::string::npos);
  EXPECT_NE(text.find("--advantage-estimator magic: should be one of grpo"), std::string::npos);
  EXPECT_NE(text.find("--use-kl-loss is a switch"), std::string::npos);
  EXPECT_NE(text.find("--custom-rm-path ab: should be module.name"), std::string::npos);
}

TEST(Flags, RangesAreReportedTogether) {
  const std::string text = refusal(kGood +
                                   "--ref-update-interval -1 --rollout-stop-token-ids -5 "
                                   "--num-data-workers 99999999 --reward-threads 100000");
  for (const char* flag : {"--ref-update-interval -1: ", "--rollout-stop-token-ids -5: ",
                           "--num-data-workers 99999999: ", "--reward-threads 100000: "})
    EXPECT_NE(text.find(flag), std::string::npos) << text;
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

TEST(Flags, UsersFunctionsReadWhatThisProgramHasNoUseFor) {
  const RunConfig config =
      parse_flags(words("--sglang-tool-call-parser qwen3_coder --disable-bias-linear")).config;
  EXPECT_EQ(flags_for_users(config).at("sglang_tool_call_parser"), "qwen3_coder");
  EXPECT_EQ(flags_for_users(config).at("disable_bias_linear"), true);
  EXPECT_TRUE(flags_for_users(RunConfig()).at("sglang_tool_call_parser").is_null());
}

TEST(Flags, WordsBehindAScriptsWinOverItsData) {
  using Words = std::vector<std::string>;
  const std::string sets = "--eval-prompt-data aime a.jsonl --eval-prompt-data gsm g.jsonl ";
  const auto renewed = parse_flags(words(sets + "--eval-prompt-data aime mine.jsonl"));
  EXPECT_EQ(renewed.config.eval_prompt_data, (Words{"gsm", "g.jsonl", "aime", "mine.jsonl"}));
  EXPECT_EQ(renewed.warnings,
            Words{"--eval-prompt-data aime a.jsonl: mine.jsonl behind it is taken"});
  // Files of prompts add up, but not through train.py, as in the original.
  const std::string twice = "--prompt-data a.jsonl --prompt-data b.jsonl";
  EXPECT_EQ(parse_flags(words(twice)).config.prompt_data, (Words{"a.jsonl", "b.jsonl"}));
  const auto script = parse_flags(words("--from-launch-script " + twice));
  EXPECT_EQ(script.config.prompt_data, Words{"b.jsonl"});
  EXPECT_EQ(script.warnings, Words{"--prompt-data a.jsonl: b.jsonl behind it is taken"});
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
        BadConfig{"--rollout-temperature 1e7", "should be at most 1e+06"},
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
                  "--actor-num-gpus-per-node 1: should be a multiple of "
                  "--tensor-model-parallel-size 2"},
        BadConfig{"--context-parallel-size 0", "--context-parallel-size 0: should be between 1"},
        BadConfig{"--expert-model-parallel-size 2 --actor-num-gpus-per-node 3",
                  "--expert-model-parallel-size 2 x --expert-tensor-parallel-size 1 = 2: should "
                  "divide the 3 ranks"},
        BadConfig{"--decoder-last-pipeline-num-layers 3",
                  "--decoder-last-pipeline-num-layers 3: needs --pipeline-model-parallel-size"},
        BadConfig{"--num-virtual-stages-per-pipeline-rank 2",
                  "needs --pipeline-model-parallel-size above 1"},
        BadConfig{"--actor-num-gpus-per-node 2 --tensor-model-parallel-size 2 "
                  "--recompute-granularity selective",
                  "use full, or 1"},
        BadConfig{"--actor-num-gpus-per-node 0", "--actor-num-gpus-per-node 0: should be between"},
        BadConfig{"--actor-num-gpus-per-node 3", "should be a multiple of --micro-batch-size"},
        BadConfig{"--rollout-max-context-len 64 --rollout-max-prompt-len 64",
                  "should be below --rollout-max-context-len 64"},
        BadConfig{"--rollout-function-path slime.rollout.sft_rollout.generate_rollout",
                  "needs --loss-type sft_loss"},
        BadConfig{"--bf16 --fp16", "choose one"},
        BadConfig{"--dtype bfloat16 --fp32", "--dtype bfloat16 and --fp32: choose one"},
        BadConfig{"--lr-decay-style WSD", "--lr-decay-style WSD: needs --lr-wsd-decay-iters"},
        BadConfig{"--lr-wsd-decay-iters 3", "--lr-wsd-decay-iters: needs --lr-decay-style WSD"},
        BadConfig{"--lr-wsd-decay-style steep", "--lr-wsd-decay-style steep: should be one of"},
        BadConfig{"--min-lr 1", "is above --lr"},
        BadConfig{"--save-debug-rollout-data {step}.jsonl", "should contain {rollout_id}"},
        BadConfig{"--save-debug-rollout-data /tmp", "/tmp: is a folder; give the name of a file"},
        BadConfig{"--rollout-precision fp8 --use-tis --force-fp8-ue8m0-scale",
                  "leave the second out"},
        BadConfig{"--use-critic", "--use-critic: needs --advantage-estimator ppo"},
        BadConfig{"--debug-rollout-only --debug-train-only", "choose one"},
        BadConfig{"--debug-train-only", "nothing is generated, so there is nothing to train on"},
        BadConfig{"--num-rollout 0", "a run has at least one rollout step"},
        BadConfig{"--ckpt-step -1", "should not be negative"},
        BadConfig{"--ckpt-step 3 --debug-rollout-only", "saves no checkpoint"},
        BadConfig{"--rollout-data-transport straw --buffer-filter-path f.py:g",
                  "by the age of their weights"},
        BadConfig{"--rollout-data-transport straw --no-load-rng --load x", "goes on exactly"},
        BadConfig{"--rollout-queue-segment-mib 0", "should be at least 1"},
        BadConfig{"--rollout-queue-run-id a/b", "should be up to 128 letters"},
        BadConfig{"--rollout-data-transport straw --rollout-storage-declaration /nowhere",
                  "is of --rollout-storage-profile juicefs"},
        BadConfig{"--rollout-data-transport straw --rollout-storage-profile juicefs "
                  "--rollout-storage-declaration /nowhere",
                  "no such file"},
        BadConfig{"--rollout-data-transport file", "should be one of"},
        BadConfig{"--rm-type dapo", "gives records; which field trains is missing"},
        BadConfig{"--reward-key score", "--rm-type math gives a number, not a record"},
        BadConfig{"--max-failed-group-share 2", "should be between 0 and 1"},
        BadConfig{"--max-filter-ratio -1", "should not be negative"},
        BadConfig{"--apply-chat-template-kwargs [1]", "should be a JSON object"},
        BadConfig{"--mask-offpolicy-in-partial-rollout", "needs --partial-rollout"},
        BadConfig{"--lr fast", "--lr fast: should be a number"},
        BadConfig{"--num-rollout 2.5", "--num-rollout 2.5: should be a whole number"},
        BadConfig{"--seed 1 2", "--seed takes one value, got 1 2"},
        BadConfig{"--rollout-stop", "--rollout-stop needs at least one value"},
        BadConfig{"--rollout-stop-token-ids 1 x",
                  "--rollout-stop-token-ids x: should be whole numbers"},
        BadConfig{"--use-kl-loss yes", "--use-kl-loss is a switch and takes no value"},
        BadConfig{"--advantage-estimator magic", "should be one of grpo"},
        BadConfig{"--advantage-estimator grop", "; did you mean grpo?"},
        BadConfig{"--dynamic-sampling-filter-path mine",
                  "--dynamic-sampling-filter-path mine: should be module.name"},
        BadConfig{"--rollout-sample-hook-path my.hook other",
                  "--rollout-sample-hook-path other: should be module.name"},
        BadConfig{"--custom-reward-post-process-path a.b --overlong-buffer-len 4",
                  "with --overlong-buffer-len two would say what a response is worth"},
        BadConfig{
            "--custom-reward-post-process-path a.b --custom-convert-samples-to-train-data-path a.c",
            "--custom-reward-post-process-path would not be called"},
        BadConfig{"--custom-rollout-log-function-path log",
                  "--custom-rollout-log-function-path log: should be module.name"},
        BadConfig{"--custom-rm-path my_rm", "--custom-rm-path my_rm: should be module.name"},
        BadConfig{"--rm-type remote_rm --use-opd --opd-type sglang --rm-url http://a:1/b",
                  "--rm-url is the teacher's"},
        BadConfig{"--plugin-hosts 0", "--plugin-hosts 0: should be between 1 and"},
        BadConfig{"--plugin-timeout-seconds 0", "--plugin-timeout-seconds 0: should be between"},
        BadConfig{"--custom-tis-function-path tis --use-tis", "should be module.name"},
        BadConfig{"--custom-tis-function-path my.tis --use-tis --loss-type custom_loss",
                  "is a part of --loss-type policy_loss"},
        BadConfig{"--custom-tis-function-path x.icepop_function",
                  "needs --use-tis or --get-mismatch-metrics"},
        BadConfig{"--use-rs", "--use-rs: needs --custom-tis-function-path"},
        BadConfig{"--tis-clip-low 3", "--tis-clip-low 3: is above --tis-clip 2"},
        BadConfig{"--rm-type remote_rm", "needs --rm-url"},
        BadConfig{"--rm-url https://x", "should begin with http://"},
        BadConfig{"--rm-url http://me:pw@x", "--rm-url http://***@x: user names and passwords"},
        BadConfig{"--data-source-path source", "--data-source-path source: should be module.name"},
        BadConfig{"--rollout-function-path draw", "--rollout-function-path draw: should be module"},
        BadConfig{"--rollout-function-path my.draw --deterministic-schedule",
                  "--rollout-function-path my.draw and --deterministic-schedule"},
        BadConfig{"--rollout-function-path my.draw --buffer-filter-path my.order",
                  "--rollout-function-path my.draw and --buffer-filter-path"},
        BadConfig{"--disable-rollout-global-dataset", "prompts come from elsewhere then; name a"},
        BadConfig{"--data-source-path my.Source --streaming-data --num-rollout 1",
                  "rows are the class's business"},
        BadConfig{"--plugin-memory-gb -1", "--plugin-memory-gb -1: should be from 0"},
        BadConfig{"--remote-rm-attempts 0", "--remote-rm-attempts: should be at least 1"},
        BadConfig{"--reward-threads 0", "--reward-threads 0: should be between 1 and 1024"},
        BadConfig{"--reward-threads 100000", "--reward-threads 100000: should be between 1 and"},
        BadConfig{"--reward-timeout-seconds 0",
                  "--reward-timeout-seconds 0: should be between 0.001 and 86400"},
        BadConfig{"--reward-timeout-seconds 1e9", "should be between 0.001 and 86400"},
        BadConfig{"--use-kl-loss --ref-update-interval -1",
                  "--ref-update-interval -1: should be at least 1"},
        BadConfig{"--ref-update-interval 0", "--ref-update-interval 0: should be at least 1"},
        BadConfig{"--rollout-stop-token-ids 7 -5",
                  "--rollout-stop-token-ids -5: should be between 0 and 2147483647"},
        BadConfig{"--rollout-stop-token-ids 2147483648",
                  "--rollout-stop-token-ids 2147483648: should be between 0 and 2147483647"},
        BadConfig{
            "--num-rollout 3 --start-rollout-id 5",
            "--start-rollout-id 5: nothing is left to do, it should be below --num-rollout 3"},
        BadConfig{"--num-rollout 3 --start-rollout-id 3", "below --num-rollout 3"},
        BadConfig{"--num-threads 5000", "--num-threads 5000: should be between 0 and 1024"},
        BadConfig{"--overlong-buffer-len 17",
                  "should be between 0 and --rollout-max-response-len 16"},
        BadConfig{"--use-opd", "needs --opd-type megatron or sglang"},
        BadConfig{"--use-opd --opd-type megatron", "needs --opd-teacher-load"},
        BadConfig{"--use-opd --opd-type megatron --opd-teacher-load /nowhere",
                  "/nowhere: no such directory"},
        BadConfig{"--use-opd --opd-type sglang --rm-url http://x --opd-teacher-load /tmp",
                  "leave --opd-teacher-load out"},
        BadConfig{"--use-opd --opd-type sglang", "needs --rm-url"},
        BadConfig{"--opd-teacher-load /tmp", "--opd-teacher-load: needs --use-opd"},
        BadConfig{"--num-critic-only-steps 2", "needs --advantage-estimator ppo"},
        BadConfig{"--value-clip 0", "--value-clip: should be above 0"},
        BadConfig{"--lambd 2", "--lambd: should be in [0, 1]"},
        BadConfig{"--gamma -1", "--gamma: should be in [0, 1]"},
        BadConfig{"--dpo-beta 0", "--dpo-beta 0: should be above 0"},
        BadConfig{"--dpo-label-smoothing 0.5", "should be in [0, 0.5)"},
        BadConfig{"--loss-type dpo_loss --calculate-per-token-loss", "a mean over pairs"},
        BadConfig{"--loss-type dpo_loss --rejected-key chosen",
                  "is the same field as --chosen-key"},
        BadConfig{"--policy-loss-divisor 0", "--policy-loss-divisor: should be above 0"},
        BadConfig{"--advantage-estimator dr_grpo --calculate-per-token-loss",
                  "contradicts a constant divisor"},
        BadConfig{"--advantage-estimator rloo --n-samples-per-prompt 1",
                  "--n-samples-per-prompt 1 and --advantage-estimator rloo: the baseline"},
        BadConfig{"--n-samples-per-prompt 1", "so every advantage would be 0"},
        BadConfig{"--n-samples-per-prompt 1 --advantage-estimator cispo --eps-clip 1",
                  "so every advantage would be 0"},
        BadConfig{"--rm-type dapo", "which field trains is missing, use --reward-key score"},
        BadConfig{"--rm-type boxed_dapo --reward-key pred", "they have no number \"pred\""},
        BadConfig{"--rm-type math --reward-key score", "gives a number, not a record"},
        BadConfig{"--lr-warmup-fraction 2", "should be at least 0 and below 1"},
        BadConfig{"--only-train-params-name-list a --freeze-params-name-list b", "choose one"},
        BadConfig{"--use-stateless-adam", "needs --no-save-optim"},
        BadConfig{"--use-kl-loss --ref-load /nowhere", "--ref-load /nowhere: no such directory"},
        BadConfig{"--hf-checkpoint /nowhere", "--hf-checkpoint /nowhere: no such directory"},
        BadConfig{"--streaming-data --rollout-shuffle", "a shuffle needs all rows"},
        BadConfig{"--num-data-workers -1", "--num-data-workers -1: should be between 0 and 1024"},
        BadConfig{"--num-data-workers 99999999", "--num-data-workers 99999999: should be between"},
        BadConfig{"--eval-config /nowhere.yaml", "--eval-config /nowhere.yaml"},
        BadConfig{"--eval-prompt-data a a.jsonl --eval-top-p 2",
                  "data set a: top_p must be in (0, 1], not 2"},
        BadConfig{"--eval-interval 0", "--eval-interval: should be at least 1"},
        BadConfig{"--save-interval 0", "--save-interval: should be at least 1"},
        BadConfig{"--n-samples-per-eval-prompt 0",
                  "--n-samples-per-eval-prompt: should be at least 1"},
        BadConfig{"--load-debug-rollout-data-subsample 0", "should be in (0, 1]"},
        BadConfig{"--wandb-always-use-train-step", "needs --use-wandb"},
        BadConfig{"--spec a b", "--spec a b: a layer specification is Python"},
        BadConfig{"--fp8-format e4m3", "--fp8-format: use --bf16"},
        BadConfig{"--sglang-kv-cache-dtype fp8_e4m3", "fp8_e4m3: needs --device cuda"},
        BadConfig{"--sglang-kv-cache-dtype fp8_e5m2", "--sglang-kv-cache-dtype fp8_e5m2"},
        BadConfig{"--label-key input", "--label-key input: is the same field as --input-key"},
        BadConfig{"--dump-details x --save-debug-rollout-data y/{rollout_id}", "choose one"},
        BadConfig{"--clip-grad -1", "--clip-grad: should not be negative"},
        BadConfig{"--adam-beta2 1", "--adam-beta2: should be in [0, 1)"}));

TEST(Flags, AGoodConfigIsCompleted) {
  ParsedFlags parsed = parse_flags(words(kGood + "--num-steps-per-rollout 2"));
  complete_and_validate(parsed);
  EXPECT_EQ(parsed.config.global_batch_size, 16);
  EXPECT_EQ(parsed.config.eps_clip_high, 0.2);
  EXPECT_EQ(parsed.config.over_sampling_batch_size, 4);
  EXPECT_EQ(parsed.config.ref_load, "/tmp");
}

TEST(Flags, ThePrecisionOfTheCacheIsInTheEnginesWords) {
  const auto dtype = [](const std::string& flags) {
    return parse_flags(words(kGood + flags)).config.kv_cache_dtype();
  };
  EXPECT_EQ(dtype(""), "auto");
  EXPECT_EQ(dtype("--sglang-kv-cache-dtype bf16"), "bfloat16");
  EXPECT_EQ(dtype("--sglang-kv-cache-dtype bfloat16"), "bfloat16");
  EXPECT_EQ(dtype("--sglang-kv-cache-dtype fp8_e4m3"), "fp8_e4m3");
}

TEST(Flags, AFlagThatNobodyKnowsIsKeptForPlugIns) {
  const auto parsed = parse_flags(words("--max-turns 4 --my-tools a b --verbose-tools"));
  EXPECT_EQ(parsed.unknown,
            (json::object{
                {"max_turns", 4}, {"my_tools", json::array{"a", "b"}}, {"verbose_tools", true}}));
  const auto names =
      parse_flags(words("--world 007 --nobody nan --share 0.5 --shift -2e-3 --zero 0"));
  EXPECT_EQ(
      names.unknown,
      (json::object{
          {"world", "007"}, {"nobody", "nan"}, {"share", 0.5}, {"shift", -2e-3}, {"zero", 0}}));
}

TEST(Flags, OfAFileWhatNobodyKnowsKeepsItsType) {
  const auto path = std::filesystem::temp_directory_path() / "slime_own_keys_test.yaml";
  std::ofstream(path) << "world: '007'\ntools: {search: [1, '2']}\nnothing: null\non: false\n"
                         "one: [x]\nlr: null\n";
  const auto parsed = parse_flags(words("--lr 0.5 --custom-config-path " + path.string()));
  EXPECT_EQ(parsed.unknown, (json::object{{"world", "007"},
                                          {"tools", json::object{{"search", json::array{1, "2"}}}},
                                          {"nothing", nullptr},
                                          {"on", false},
                                          {"one", json::array{"x"}}}));
  EXPECT_EQ(parsed.config.lr, 0.5);
  std::filesystem::remove(path);
}

TEST(Flags, OfAListThatIsGivenTwiceTheLastWinsAndDataAndHooksAddUp) {
  const auto parsed = parse_flags(
      words("--prompt-data a b --eval-prompt-data a a.jsonl --rollout-stop-token-ids 1 2 "
            "--prompt-data c --eval-prompt-data b b.jsonl --rollout-stop-token-ids 3 "
            "--rollout-sample-hook-path m.one --rollout-sample-hook-path m.two"));
  using Words = std::vector<std::string>;
  EXPECT_EQ(parsed.config.prompt_data, (Words{"a", "b", "c"}));
  EXPECT_EQ(parsed.config.eval_prompt_data, (Words{"a", "a.jsonl", "b", "b.jsonl"}));
  EXPECT_EQ(parsed.config.rollout_stop_token_ids, std::vector<int64_t>{3});
  EXPECT_EQ(parsed.config.rollout_sample_hook_path, (Words{"m.one", "m.two"}));
}

TEST(Flags, RolesOfTheMegatronFileOverrideActorAndCritic) {
  const auto path = std::filesystem::temp_directory_path() / "slime_roles_test.yaml";
  std::ofstream(path) << "megatron:\n  - {name: a, role: actor, overrides: {lr: 2e-6}}\n"
                         "  - {name: c, role: critic, overrides: {lr: 5e-5, load: /tmp}}\n";
  ParsedFlags parsed = parse_flags(
      words(kGood + "--advantage-estimator ppo --megatron-config-path " + path.string()));
  complete_and_validate(parsed);
  EXPECT_EQ(parsed.config.lr, 2e-6);
  ASSERT_NE(parsed.config.critic, nullptr);
  EXPECT_EQ(parsed.config.critic->lr, 5e-5);
  EXPECT_EQ(parsed.config.critic->critic_load, "/tmp");
  std::filesystem::remove(path);
}

TEST(Flags, ACriticsSettingsNeedACritic) {
  const auto path = std::filesystem::temp_directory_path() / "slime_roles_test_2.yaml";
  std::ofstream(path)
      << "megatron: [{name: c, role: critic, overrides: {lr: 5e-5}}, {role: judge}, "
         "{role: actor, num_nodes: 1, default: {lr: 3}}]\n";
  const std::string text = refusal(kGood + "--megatron-config-path " + path.string());
  EXPECT_NE(text.find("only --advantage-estimator ppo has a critic"), std::string::npos);
  EXPECT_NE(text.find("a role should be actor or critic"), std::string::npos);
  EXPECT_NE(text.find("actor: there is no default; flags of a role are in its map `overrides`"),
            std::string::npos);
  EXPECT_EQ(text.find("num_nodes"), std::string::npos);
  std::filesystem::remove(path);
}

TEST(Flags, KlInTheRewardOfAnEstimatorWithoutItIsAWarning) {
  ParsedFlags parsed = parse_flags(words(kGood + "--kl-coef 0.1"));
  complete_and_validate(parsed);
  ASSERT_EQ(parsed.warnings.size(), 1U);
  EXPECT_NE(parsed.warnings[0].find("the advantages of grpo do not contain it"), std::string::npos);
}

TEST(FlagTable, HasEachNameOnceAndAMeaningForEach) {
  std::set<std::string_view> names;
  for (const FlagRow& flag : flag_table()) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    EXPECT_FALSE(flag.meaning.empty()) << flag.name;
    EXPECT_EQ(
        flag.status == FlagStatus::kWorks && std::holds_alternative<std::monostate>(flag.member),
        false)
        << flag.name;
  }
}

TEST(Flags, NumbersThatAreNotFiniteAreNoNumbers) {
  const auto told = [](const char* flag, const char* word) {
    const std::vector<std::string> words{flag, word};
    const ParsedFlags flags = parse_flags(words);
    return flags.problems.size() == 1 ? flags.problems[0] : "";
  };
  for (const char* word : {"nan", "inf", "-inf"}) {
    EXPECT_EQ(told("--kv-cache-gb", word),
              fmt::format("--kv-cache-gb {}: should be a number, and a finite one", word));
  }
  EXPECT_EQ(told("--entropy-coef", "1e999"),
            "--entropy-coef 1e999: should be a number that a 64-bit floating-point number holds");
  EXPECT_EQ(told("--num-rollout", "99999999999999999999"),
            "--num-rollout 99999999999999999999: should be a whole number from "
            "-9223372036854775808 to 9223372036854775807");
  EXPECT_EQ(told("--num-rollout", "1e3"), "--num-rollout 1e3: should be a whole number");
  EXPECT_EQ(told("--num-rollout", "nan"), "--num-rollout nan: should be a whole number");
}

TEST(Flags, CountsThatCannotBeCalculatedWithAreNamedTogether) {
  const std::string text = refusal(
      kGood + "--rollout-batch-size 4000000000000000000 --max-tokens-per-gpu 9223372036854775807");
  EXPECT_NE(text.find("--rollout-batch-size 4000000000000000000: should be at most 1000000000"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("--max-tokens-per-gpu 9223372036854775807: should be"), std::string::npos);
  const std::string product =
      refusal(kGood + "--rollout-batch-size 1000000 --n-samples-per-prompt 1000000");
  EXPECT_NE(product.find("should be at most 1000000000 samples"), std::string::npos) << product;
}

TEST(Flags, MemoryForKeysAndValuesIsWhatAMachineCanHave) {
  for (const char* gigabytes : {"-1", "1e300", "9e9"}) {
    const std::string text = refusal(kGood + "--kv-cache-gb " + gigabytes);
    EXPECT_NE(text.find("--kv-cache-gb"), std::string::npos) << text;
    EXPECT_NE(text.find("should be from 0"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace slime::config
