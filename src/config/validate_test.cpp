// Validation on a machine without the run's files, and flags of scripts that ask for what follows
// from other flags here. One file because they all look at a whole command line.

#include "config/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "config/users_functions.h"
#include "core/error.h"

namespace slime::config {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> split(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> all;
  for (std::string word; stream >> word;) all.push_back(word);
  return all;
}

struct Checked {
  ParsedFlags flags;
  std::vector<std::string> absent;
  std::string error;
};

/// As `slime train --dry-run` does.
Checked checked(const std::string& more) {
  Checked result{.flags = parse_flags(split(
                     "--hf-checkpoint /nowhere/model --prompt-data rows.jsonl --rollout-batch-size "
                     "2 --n-samples-per-prompt 2 --num-rollout 3 --rollout-max-response-len 8 " +
                     more)),
                 .absent = {},
                 .error = {}};
  try {
    complete_and_validate(result.flags, result.absent);
  } catch (const ConfigError& error) {
    result.error = error.what();
  }
  return result;
}

TEST(Validate, ARateForAllWeightsIsToldOfAdapters) {
  const auto is_told = [](const std::string& flags) {
    const Checked result = checked("--device cpu --lora-rank 4 " + flags);
    EXPECT_EQ(result.error, "");
    return ::testing::Value(result.flags.warnings, Contains(HasSubstr("about ten times that")));
  };
  const std::string rows =
      "--loss-type sft_loss --rollout-function-path slime.rollout.sft_rollout.generate_rollout ";
  EXPECT_TRUE(is_told("--rm-type math --lr 1e-6"));
  EXPECT_FALSE(is_told("--rm-type math --lr 1e-5"));
  EXPECT_TRUE(is_told(rows + "--lr 1e-5")) << "of given answers rates are greater";
  EXPECT_FALSE(is_told(rows + "--lr 2e-4"));
}

TEST(Validate, PathsThatAreNotHereAreNotedAndTheRestIsChecked) {
  const Checked result = checked(
      "--rm-type math --use-kl-loss --ref-load /nowhere/reference --eval-interval 2 "
      "--eval-config /nowhere/eval.yaml --adam-beta1 2");
  EXPECT_EQ(result.error, "--adam-beta1: should be in [0, 1)");
  EXPECT_THAT(result.absent, Contains("--hf-checkpoint /nowhere/model: no such directory"));
  EXPECT_THAT(result.absent,
              Contains(HasSubstr("--ref-load /nowhere/reference: no such directory")));
  EXPECT_THAT(result.absent, Contains(HasSubstr("--eval-config /nowhere/eval.yaml")));
}

TEST(Validate, ARunRefusesPathsThatAreNotThere) {
  ParsedFlags flags = checked("--rm-type math").flags;
  EXPECT_THROW(complete_and_validate(flags), ConfigError);
}

TEST(Validate, TrainAsyncWithoutGenerationIsTrain) {
  for (const std::string flags :
       {"--loss-type sft_loss --rollout-function-path slime.rollout.sft_rollout.generate_rollout",
        "--debug-train-only --load-debug-rollout-data d/{rollout_id}.jsonl"}) {
    const Checked result = checked("--train-async " + flags);
    EXPECT_THAT(result.error, IsEmpty());
    EXPECT_FALSE(result.flags.config.train_async) << flags;
    EXPECT_THAT(result.flags.warnings, Contains(HasSubstr("the run is that of slime train")));
  }
}

TEST(Validate, SupervisedTrainingWithoutRowsAndRewardSaysBothWays) {
  EXPECT_THAT(checked("--loss-type sft_loss").error,
              testing::AllOf(HasSubstr("slime.rollout.sft_rollout.generate_rollout"),
                             HasSubstr("need a reward, --rm-type or --custom-rm-path")));
}

TEST(Validate, RejectionSamplingGeneratesAndHasNoAdvantages) {
  const RunConfig config =
      checked("--loss-type sft_loss --rm-type math --rejection-keep-best 1").flags.config;
  EXPECT_TRUE(config.imitates_samples);
  EXPECT_TRUE(config.generates());
  EXPECT_FALSE(config.has_advantages());
  EXPECT_FALSE(config.trains_on_rows());
}

TEST(Validate, RejectionSamplingChoosesAmongGeneratedSamples) {
  const std::string rejection = "--rm-type math --loss-type sft_loss ";
  EXPECT_THAT(
      checked("--rm-type math --rejection-keep-best 1").error,
      HasSubstr("--rejection-keep-best: needs --loss-type sft_loss; --loss-type policy_loss "
                "learns from bad samples too"));
  EXPECT_THAT(checked(rejection + "--rejection-keep-best 0").error,
              HasSubstr("should be at least 1"));
  EXPECT_THAT(checked(rejection + "--use-opd").error, HasSubstr("--use-opd: needs responses"));
  EXPECT_THAT(checked(rejection + "--rejection-min-reward 1 --rollout-function-path "
                                  "slime.rollout.sft_rollout.generate_rollout")
                  .error,
              HasSubstr("--rejection-min-reward: chooses among generated samples"));
}

TEST(Validate, RejectionSamplingThatRejectsNothingSaysSo) {
  EXPECT_THAT(checked("--loss-type sft_loss --rm-type math").flags.warnings,
              Contains(HasSubstr("every sample is trained, whatever its reward")));
  EXPECT_THAT(checked("--loss-type sft_loss --rm-type math --n-samples-per-prompt 4 "
                      "--rejection-keep-best 4")
                  .flags.warnings,
              Contains(HasSubstr("--rejection-keep-best 4: a prompt has no more samples")));
}

TEST(Validate, TheKeyOfEvaluationFitsItsRule) {
  const std::string eval = " --eval-interval 1 --eval-prompt-data t t.jsonl --eval-reward-key ";
  EXPECT_THAT(checked("--rm-type math" + eval + "score").error,
              HasSubstr("--eval-reward-key score: --rm-type math gives a number, not a record"));
  EXPECT_THAT(checked("--rm-type dapo --reward-key score" + eval + "pred").error,
              HasSubstr("they have no number \"pred\", use --eval-reward-key score"));
  EXPECT_EQ(checked("--rm-type dapo --reward-key score" + eval + "acc").error, "");
  EXPECT_EQ(checked("--rm-type remote_rm --rm-url http://h/" + eval + "any").error, "");
}

TEST(Validate, FlagsWithoutEffectSaySo) {
  for (const auto& [flags, note] :
       {std::pair{"--train-async --partial-rollout",
                  "--partial-rollout has no effect: slime train-async keeps"},
        std::pair{"--train-async --keep-old-actor --use-rollout-logprobs",
                  "--keep-old-actor has no effect with --use-rollout-logprobs"},
        std::pair{"--group-rm", "--group-rm has no effect without --custom-rm-path"},
        std::pair{"--colocate --rollout-num-gpus 4",
                  "--rollout-num-gpus 4 has no effect with --colocate"}}) {
    const Checked result = checked(std::string("--rm-type math ") + flags);
    EXPECT_EQ(result.error, "") << flags;
    EXPECT_THAT(result.flags.warnings, Contains(HasSubstr(note))) << flags;
  }
  EXPECT_FALSE(checked("--rm-type math --keep-old-actor --use-rollout-logprobs")
                   .flags.config.keep_old_actor);  // no memory for networks that nobody asks
  for (const char* flags :
       {"--group-rm --custom-rm-path a.b",
        "--train-async --partial-rollout --custom-generate-function-path a.b",
        "--keep-old-actor --use-rollout-logprobs --get-mismatch-metrics",
        "--colocate --rollout-num-gpus 1", "--partial-rollout --over-sampling-batch-size 4"}) {
    EXPECT_THAT(checked(std::string("--rm-type math ") + flags).flags.warnings,
                testing::Not(Contains(HasSubstr("has no effect"))))
        << flags;
  }
}

TEST(Validate, PromisesThatAGpuDoesNotKeepAreRefusedThere) {
  const std::string flag = "--sglang-enable-deterministic-inference";
  EXPECT_EQ(checked("--rm-type math --device cpu " + flag).error, "");
  EXPECT_THAT(checked("--rm-type math --device cuda " + flag).error, HasSubstr(flag + ": "));
}

TEST(Validate, SpeculationIsTimeAloneAndANoteOnAnyDevice) {
  for (const std::string device : {"cpu", "cuda"}) {
    const Checked result =
        checked("--rm-type math --sglang-speculative-algorithm STANDALONE --device " + device);
    EXPECT_EQ(result.error, "");
    EXPECT_THAT(result.flags.warnings,
                Contains(HasSubstr("--sglang-speculative-algorithm has no effect: draft models of "
                                   "this kind are not computed, and responses are the same without "
                                   "one; --rollout-drafts suffix saves time")));
  }
}

TEST(Validate, NamesEveryContradictionAtOnce) {
  const std::string text =
      checked(
          "--rm-type math --rollout-temperature 0 --use-dynamic-batch-size --eps-clip-c 0.5 "
          "--advantage-estimator reinforce_plus_plus_baseline")
          .error;
  for (const char* word : {"--rollout-temperature", "--max-tokens-per-gpu",
                           "--normalize-advantages", "--eps-clip-c"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " in " << text;
  }
}

TEST(Validate, BoundsOfRatiosAreLookedAtTogether) {
  const std::string text =
      checked(
          "--rm-type math --use-tis --custom-tis-function-path "
          "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp --tis-mode clip "
          "--tis-lower-bound 3 --tis-upper-bound 2 --use-rs --rs-lower-bound 2 "
          "--rs-veto-threshold 0 --tis-level geometric --tis-batch-normalize")
          .error;
  for (const char* words :
       {"--tis-lower-bound 3: should be below --tis-upper-bound 2",
        "--rs-lower-bound 2: should be below --rs-upper-bound 2",
        "--rs-veto-threshold 0: should be above 0", "--tis-batch-normalize: has no meaning"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << " in " << text;
  }
}

TEST(Validate, WordsOfOtherFamiliesHaveOneMeaning) {
  const RunConfig config =
      checked(
          "--train-async --rm-type math --n-samples-per-prompt 4 --staleness-threshold 2.5 "
          "--fully-async-version-window 2 --fully-async-buffer-policy window_evict "
          "--fully-async-max-completed-samples 31 --rs-batch-refill --keep-cache-on-weight-update")
          .flags.config;
  EXPECT_EQ(config.max_staleness, 2);
  EXPECT_EQ(config.async_order, "finish");
  EXPECT_EQ(config.staleness_policy, "drop");
  EXPECT_EQ(config.async_buffer_size, 3);  // 31 of 2 x 4 samples
  EXPECT_EQ(config.update_mode, "suspend");
  EXPECT_EQ(config.kv_on_update, "keep");
}

TEST(Validate, ThreeWordsSayHowNewWeightsComeToEnginesElsewhere) {
  const std::string elsewhere = "--rm-type math --rollout-num-gpus 1 ";
  const Checked disk = checked(elsewhere + "--update-weight-mode disk --update-weight-disk-dir /d");
  EXPECT_EQ(disk.error, "");
  EXPECT_EQ(disk.flags.config.update_weight_mode, "full");
  EXPECT_EQ(disk.flags.config.update_weight_transport, "disk");
  const Checked delta =
      checked(elsewhere +
              "--update-weight-mode delta --update-weight-transport disk "
              "--update-weight-disk-dir /d --update-weight-local-checkpoint-dir /l "
              "--update-weight-delta-encoding overwrite");
  EXPECT_EQ(delta.error, "");
  EXPECT_EQ(delta.flags.config.update_weight_mode, "delta");
  EXPECT_THAT(checked(elsewhere + "--update-weight-transport disk").error,
              HasSubstr("--update-weight-transport disk: needs --update-weight-disk-dir DIR"));
  EXPECT_THAT(
      checked(elsewhere + "--update-weight-mode disk --update-weight-transport nccl "
                          "--update-weight-disk-dir /d")
          .error,
      HasSubstr("--update-weight-mode disk and --update-weight-transport nccl: contradict"));
  EXPECT_THAT(checked("--rm-type math --update-weight-mode delta").flags.warnings,
              Contains(HasSubstr("no weights travel in this run")));
  EXPECT_THAT(checked(elsewhere + "--update-weight-disk-dir /d").flags.warnings,
              Contains(HasSubstr("--update-weight-disk-dir: counts with")));
}

TEST(Validate, ARolloutFunctionIsCalledOneStepAheadAndWeightsChangeBetweenItsCalls) {
  const std::string function = "--train-async --rollout-function-path my.draw ";
  EXPECT_EQ(checked(function).error, "");
  EXPECT_EQ(checked(function).flags.config.update_mode, "drain");
  EXPECT_EQ(checked(function).flags.config.max_staleness, 1);
  EXPECT_EQ(checked(function + "--update-mode suspend").flags.config.update_mode, "suspend");
  EXPECT_EQ(checked(function + "--kv-on-update recompute").flags.config.update_mode, "suspend");
  // Without such a function, and in slime train, the default is what it was.
  EXPECT_EQ(checked("--train-async --rm-type math").flags.config.update_mode, "suspend");
  EXPECT_EQ(checked("--rollout-function-path my.draw").flags.config.update_mode, "suspend");
}

TEST(Validate, WhatARolloutFunctionOneStepAheadCannotDoIsRefusedByName) {
  const std::string function = "--train-async --rollout-function-path my.draw ";
  for (const auto& [flags, why] :
       {std::pair{"--colocate", "--colocate: one step ahead the function draws while"},
        std::pair{"--max-staleness 2", "--max-staleness 2: slime train-async calls the function"},
        std::pair{"--max-staleness 0", "--max-staleness 0: slime train-async calls the function"},
        std::pair{"--update-mode interrupt", "--update-mode interrupt: requests are the function"},
        std::pair{"--pause-generation-mode abort", "--pause-generation-mode abort: requests are"},
        std::pair{"--async-order finish", "--async-order: there is no queue of groups"},
        std::pair{"--async-buffer-size 3", "--async-buffer-size: there is no queue"},
        std::pair{"--staleness-policy drop", "--staleness-policy: there is no queue"}}) {
    EXPECT_THAT(checked(function + flags).error,
                HasSubstr(std::string("--rollout-function-path my.draw and ") + why));
  }
}

TEST(Validate, TheOriginalsFullyAsynchronousFunctionIsTheProgramsOwnStream) {
  for (const std::string path :
       {"slime.rollout.fully_async_rollout.generate_rollout_fully_async",
        "examples.fully_async.fully_async_rollout.generate_rollout_fully_async",
        "fully_async_rollout.generate_rollout_fully_async"}) {
    const Checked result = checked("--rm-type math --rollout-function-path " + path);
    EXPECT_EQ(result.error, "");
    EXPECT_TRUE(result.flags.config.train_async);
    EXPECT_EQ(result.flags.config.update_mode, "suspend");
    EXPECT_THAT(users_functions(result.flags.config), IsEmpty());
    EXPECT_FALSE(result.flags.config.bounds_age());
    EXPECT_EQ(result.flags.config.async_order, "finish");
    EXPECT_THAT(result.flags.warnings,
                Contains(HasSubstr("responses of any age are trained, in the order in which they "
                                   "finish, as in the original; --max-staleness 1 is safer")));
    const Checked bounded =
        checked("--rm-type math --max-staleness 1 --rollout-function-path " + path);
    EXPECT_EQ(bounded.flags.config.async_order, "dispatch");
    EXPECT_THAT(bounded.flags.warnings, Not(Contains(HasSubstr("of any age"))));
  }
}

TEST(Validate, AFlushIntervalOtherThanOneChoosesTheSchedule) {
  const std::string own = "--rm-type math --flush-cache-interval ";
  for (const std::string interval : {"-100", "-1", "0", "2", "3"}) {
    const Checked result = checked(own + interval);
    EXPECT_EQ(result.error, "") << interval;
    EXPECT_TRUE(result.flags.config.train_async) << interval;
    EXPECT_EQ(result.flags.config.update_mode, "suspend") << interval;
    EXPECT_EQ(result.flags.config.kv_on_update, "keep") << interval;
    EXPECT_FALSE(result.flags.config.bounds_age()) << interval;
  }
  EXPECT_FALSE(checked(own + "1").flags.config.train_async);
  EXPECT_EQ(checked(own + "1 --train-async").flags.config.update_mode, "interrupt");
  EXPECT_THAT(
      checked(own + "1 --train-async --update-mode drain").error,
      HasSubstr("--flush-cache-interval 1 and --update-mode drain: each update interrupts"));
  EXPECT_EQ(checked(own + "2 --max-staleness 3 --use-tis").flags.config.max_staleness, 3);
  EXPECT_THAT(checked(own + "2").flags.warnings,
              Contains(HasSubstr("updates to versions 1, 3, 5, ... interrupt requests")));
  const Checked function = checked(own + "2 --rollout-function-path my.draw");
  EXPECT_EQ(function.error, "");
  EXPECT_FALSE(function.flags.config.train_async);
  EXPECT_THAT(function.flags.warnings, Contains(HasSubstr("--flush-cache-interval 2: has no "
                                                          "effect, requests are those of")));
}

TEST(Validate, WhatAFlushIntervalCannotGoWithIsRefusedByName) {
  for (const std::string other :
       {"--colocate", "--offload-rollout", "--release-train", "--debug-train-only",
        "--debug-rollout-only", "--load-debug-rollout-data /d/{rollout_id}.jsonl",
        "--deterministic-schedule", "--update-mode drain", "--kv-on-update recompute",
        "--pause-generation-mode abort"}) {
    EXPECT_THAT(checked("--rm-type math --flush-cache-interval 2 " + other).error,
                HasSubstr("--flush-cache-interval 2 and " + other.substr(0, other.find(" /"))))
        << other;
  }
}

TEST(Validate, ABufferThatTheBoundOnAgeKeepsSmallIsTold) {
  const auto told = [](const std::string& flags) {
    return checked("--rm-type math --train-async " + flags).flags.warnings;
  };
  EXPECT_THAT(told("--async-buffer-size 4"),
              Contains("--async-buffer-size 4: no more than 1 finished rollout will wait, because "
                       "--max-staleness 1 starts nothing that would be older when it is trained; "
                       "for 4 add --max-staleness 4"));
  EXPECT_THAT(told("--async-buffer-size 4 --max-staleness 4"),
              Not(Contains(HasSubstr("will wait"))));
  EXPECT_THAT(told(""), Not(Contains(HasSubstr("will wait"))));
}

TEST(Validate, TheOldestFirstIsBuiltIn) {
  const auto config = [](const std::string& flags) {
    return checked("--rm-type math " + flags).flags.config;
  };
  EXPECT_FALSE(gives_stalest_first(config("")));
  EXPECT_TRUE(gives_stalest_first(config("--buffer-sort-by-staleness")));
  const RunConfig named = config("--buffer-filter-path slime.data.data_source.pop_oldest");
  EXPECT_TRUE(gives_stalest_first(named));
  EXPECT_THAT(users_functions(named), IsEmpty());
  EXPECT_FALSE(
      gives_stalest_first(config("--buffer-sort-by-staleness --buffer-filter-path my.order")));
}

TEST(Validate, AnUnknownFlagIsForTheUsersFunctions) {
  EXPECT_THAT(
      checked("--custom-generate-function-path a.py --rm-type math --max-turns 4").flags.warnings,
      Contains("unknown flag --max-turns is for functions of the user's, as an attribute "
               "of `args`"));
  EXPECT_THAT(checked("--rm-type math --max-turns 4").error,
              HasSubstr("add --custom-generate-function-path FILE.py"));
}

TEST(Validate, ReasonsOfFlagsWithoutEffectAreThoseOfTheRun) {
  const auto reason = [](const std::string& flags) {
    std::string all;
    for (const std::string& warning : checked("--rm-type math " + flags).flags.warnings)
      all += warning + "\n";
    return all;
  };
  EXPECT_THAT(reason("--router-policy x"),
              HasSubstr("--router-policy has no effect: one engine serves the run\n"));
  EXPECT_THAT(reason("--router-policy x --rollout-num-gpus 2"),
              HasSubstr("--router-policy has no effect: the run's own router gives a request to"));
  EXPECT_THAT(
      reason("--sglang-ep-size 2 --rollout-num-gpus 2 --rollout-num-gpus-per-engine 2"),
      HasSubstr("--sglang-ep-size has no effect: --rollout-num-gpus-per-engine ranks share"));
  EXPECT_THAT(reason("--offload-train"), HasSubstr("weights are shared and the optimizer stays"));
  EXPECT_THAT(reason("--offload-train --rollout-num-gpus 2"),
              HasSubstr("the trainer's weights stay where they are, and engines get what is new"));
}

TEST(Validate, WhatACriticHasOfItsOwnIsValidated) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "critic.yaml";
  std::ofstream(path) << "megatron:\n  - {role: critic, overrides: {lr: -1, adam_beta1: 2, "
                         "value_clip: 0}}\n";
  const std::string text = checked(
                               "--rm-type math --advantage-estimator ppo "
                               "--megatron-config-path " +
                               path.string())
                               .error;
  for (const char* flag : {"--lr: should not be negative", "--adam-beta1: should be in [0, 1)",
                           "--value-clip: should be above 0"})
    EXPECT_THAT(text, HasSubstr(std::string("--megatron-config-path: critic: ") + flag));
}

TEST(Validate, SpecificationsOfPublishedModelsAreTaken) {
  EXPECT_THAT(checked("--rm-type math --spec slime_plugins.models.glm4 get_glm_spec").error,
              IsEmpty());
  EXPECT_THAT(checked("--rm-type math --spec my.layers spec").error,
              HasSubstr("--spec my.layers spec: a layer specification is Python"));
}

TEST(Validate, BytesOfAnUpdateMayBeMoreThanABillion) {
  EXPECT_THAT(checked("--rm-type math --update-weight-buffer-size 4294967296").error, IsEmpty());
}

TEST(Validate, AnAddressOfABufferIsOneAndSomebodyReadsIt) {
  const Checked result = checked("--rm-type math --rollout-buffer-url http://127.0.0.1:8889");
  EXPECT_THAT(result.error, IsEmpty());
  EXPECT_THAT(result.flags.warnings, Contains(HasSubstr("slime.rollout.buffer_rollout")));
  for (const std::string url : {"127.0.0.1:8889", "https://a:1", "http://a:b@c:1"}) {
    EXPECT_THAT(checked("--rm-type math --rollout-buffer-url " + url).error,
                HasSubstr("should be http://HOST:PORT"));
  }
  EXPECT_THAT(checked("--rm-type math --fetch-trajectory-retry-times -2").error,
              HasSubstr("--fetch-trajectory-retry-times -2: should be -1 or more"));
  EXPECT_THAT(checked("--rm-type math --rollout-task-type code").flags.warnings,
              Contains("--rollout-task-type: counts with --rollout-buffer-url"));
}

TEST(Validate, EnginesOfSeveralRanksAreOverRanksThatTrain) {
  const std::string math = "--rm-type math --rollout-num-gpus-per-engine 2 ";
  for (const std::string ranks :
       {"", "--actor-num-gpus-per-node 4 ", "--actor-num-gpus-per-node 4 --colocate "}) {
    const Checked result = checked(math + ranks);
    EXPECT_THAT(result.flags.warnings,
                Contains(HasSubstr("--rollout-num-gpus-per-engine 2: has no effect")))
        << ranks;
    EXPECT_EQ(result.flags.config.ranks_of_own_engine(), 1) << ranks;
  }
  const Checked four =
      checked(math + "--actor-num-gpus-per-node 4 --colocate --rollout-num-gpus 4");
  EXPECT_THAT(four.flags.warnings, IsEmpty());
  EXPECT_EQ(four.flags.config.ranks_of_own_engine(), 2);
  EXPECT_THAT(checked(math + "--actor-num-gpus-per-node 3 --colocate --rollout-num-gpus 3").error,
              HasSubstr("--rollout-num-gpus-per-engine 2: does not divide the 3 ranks that train"));
}

TEST(Validate, VirtualStagesTakeMicroBatchesInGroupsOfTheStages) {
  const std::string two =
      "--actor-num-gpus-per-node 2 --pipeline-model-parallel-size 2 "
      "--num-virtual-stages-per-pipeline-rank 2 --rollout-batch-size 8 --n-samples-per-prompt 1 "
      "--disable-rewards-normalization "
      "--rm-type math ";
  EXPECT_THAT(checked(two + "--micro-batch-size 8").error,
              HasSubstr("--global-batch-size 8: should be a multiple of --micro-batch-size 8 x 1 "
                        "ranks x 2 pipeline stages with virtual stages"));
  EXPECT_EQ(checked(two + "--micro-batch-size 4").error, "");
  const std::string dynamic = "--use-dynamic-batch-size --max-tokens-per-gpu 64 ";
  EXPECT_EQ(checked(two + dynamic).error, "");
  EXPECT_THAT(checked(two + dynamic + "--global-batch-size 1").error,
              HasSubstr("--global-batch-size 1 is less than one sample for each of 1 "
                        "data-parallel ranks x 2 pipeline stages with virtual stages"));
}

TEST(Validate, WhereNothingIsSampledNoRankHasAnEngine) {
  const std::string three =
      "--actor-num-gpus-per-node 3 --colocate --rollout-num-gpus 3 --rollout-num-gpus-per-engine "
      "2 ";
  for (const std::string nothing :
       {"--debug-train-only --rm-type math", "--load-debug-rollout-data /tmp/{rollout_id}.jsonl",
        "--loss-type sft_loss --rollout-function-path "
        "slime.rollout.sft_rollout.generate_rollout"}) {
    const Checked result = checked(three + nothing);
    EXPECT_FALSE(result.flags.config.has_engine_on_each_rank()) << nothing;
    EXPECT_EQ(result.flags.config.ranks_of_own_engine(), 1) << nothing;
  }
  const Checked draws = checked(three + "--debug-rollout-only");
  EXPECT_FALSE(draws.flags.config.has_engine_on_each_rank());
  EXPECT_THAT(draws.error, Not(HasSubstr("--rollout-num-gpus-per-engine")));
  EXPECT_THAT(draws.flags.warnings,
              Contains(HasSubstr("has no effect, because the engine of this run is on one device; "
                                 "no rank trains with --debug-rollout-only")));
}

TEST(Validate, ServersOfOthersNeedAFolderAndNoDevice) {
  const std::string two = "--rm-type math --rollout-external-engine-addrs 10.0.0.2:1 10.0.0.3:1 ";
  const Checked result = checked(two + "--update-weight-disk-dir /shared");
  EXPECT_EQ(result.error, "");
  EXPECT_TRUE(result.flags.config.has_external_engines());
  EXPECT_EQ(result.flags.config.num_engine_workers.get(), 2);
  EXPECT_FALSE(result.flags.config.shares_weights());
  EXPECT_EQ(result.flags.config.update_weight_transport.get(), "disk");
  EXPECT_THAT(checked(two).error, HasSubstr("needs --update-weight-disk-dir"));
  const std::string whole = two + "--update-weight-disk-dir /shared ";
  for (const char* other :
       {"--colocate", "--update-weight-mode delta", "--update-weight-transport nccl",
        "--rollout-num-gpus-per-engine 2", "--use-rollout-routing-replay"}) {
    EXPECT_THAT(checked(whole + other).error,
                HasSubstr("--rollout-external-engine-addrs: not with --"))
        << other;
  }
  EXPECT_THAT(checked(whole + "--rollout-num-gpus 8").flags.warnings,
              Contains(HasSubstr("--rollout-num-gpus 8: has no effect: the engines are the 2")));
}

TEST(Validate, TheShareOfTheWarmUpWinsOverItsSteps) {
  const Checked result = checked("--rm-type math --lr-warmup-fraction 0.1 --lr-warmup-iters 3");
  EXPECT_EQ(result.error.find("warmup"), std::string::npos) << result.error;
  EXPECT_THAT(result.flags.warnings,
              Contains("--lr-warmup-iters 3 has no effect: --lr-warmup-fraction 0.1 says how long "
                       "the warm-up is"));
}

TEST(Validate, ADumpWithoutANumberIsToldWhatThatMeans) {
  EXPECT_THAT(checked("--rm-type math --save-debug-rollout-data x.jsonl").flags.warnings,
              Contains(HasSubstr("each rollout step writes over the file of the one before")));
  EXPECT_THAT(checked("--load-debug-rollout-data x.jsonl").flags.warnings,
              Contains(HasSubstr("every rollout step trains the samples of this one file")));
  EXPECT_THAT(checked("--rm-type math --save-debug-rollout-data x{rollout_id}").flags.warnings,
              Not(Contains(HasSubstr("--save-debug-rollout-data"))));
}

TEST(Validate, FlagsOfSglangThatNobodyKnowsArePassedThroughWithANote) {
  const Checked result = checked("--rm-type math --sglang-hicache-ratio 2");
  EXPECT_EQ(result.error, "");
  EXPECT_THAT(result.flags.warnings, Contains(HasSubstr("--sglang-hicache-ratio")));
  EXPECT_THAT(result.flags.ignored, ::testing::ElementsAre("--sglang-hicache-ratio"));
  // What a typing error, or a change of the numbers, may be is refused.
  EXPECT_THAT(checked("--rm-type math --sglang-mem-fraction-statik 0.5").error,
              HasSubstr("did you mean --sglang-mem-fraction-static?"));
  EXPECT_THAT(checked("--rm-type math --sglang-quant-something 4").error,
              HasSubstr("unknown flag --sglang-quant-something"));
  EXPECT_THAT(checked("--rm-type math --hicache-ratio 2").error, HasSubstr("unknown flag"));
}

}  // namespace
}  // namespace slime::config
