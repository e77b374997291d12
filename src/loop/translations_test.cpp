#include "loop/translations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "config/flag_table.h"
#include "config/parse_flags.h"
#include "config/unread_flags.h"
#include "config/validate.h"
#include "core/error.h"
#include "loop/translations_for_tests.h"
#include "model/config.h"
#include "setup/scores.h"

namespace slime::loop {
namespace {

using config::FlagRow;
using config::FlagStatus;
using config::ParsedFlags;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kMis = "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp";

Words rows(const std::string& loss) {
  Words words{"--hf-checkpoint",
              "/nowhere",
              "--prompt-data",
              "/nowhere.jsonl",
              "--num-rollout",
              "10",
              "--rollout-batch-size",
              "4",
              "--loss-type",
              loss,
              "--device",
              "cpu"};
  if (loss == "sft_loss")
    words = words + Words{"--rollout-function-path", "slime.rollout.sft_rollout.generate_rollout"};
  return words;
}

TEST(UnreadFlags, AreToldWhereTheirAlgorithmIsAnother) {
  for (const Words& words :
       std::vector<Words>{{"--gamma", "0.9"},
                          {"--lambd", "0.9"},
                          {"--opsm-delta", "0.5"},
                          {"--tis-clip", "5"},
                          {"--opd-kl-coef", "3"},
                          {"--value-clip", "0.5"},
                          {"--kl-loss-type", "k3"},
                          {"--dpo-beta", "0.5"},
                          {"--overlong-penalty-factor", "2"},
                          {"--critic-load", "tiny"},
                          {"--init-method-std", "0.1"},
                          {"--max-tokens-per-gpu", "100"},
                          {"--lr-decay-style", "constant", "--lr-decay-iters", "3"},
                          {"--lr-warmup-init", "1e-7"},
                          {"--loss-mask-type", "qwen3"},
                          {"--chosen-key", "best"},
                          {"--profile-step-start", "1"},
                          {"--wandb-project", "p"},
                          {"--rollout-seed", "7"},
                          {"--num-epoch", "3"},
                          {"--remote-rm-attempts", "2"},
                          {"--rm-url", "http://localhost:1/x"},
                          {"--max-filter-ratio", "3"},
                          {"--nodes-timeout-seconds", "60"},
                          {"--num-gpus-per-node", "8"},
                          {"--finetune"},
                          {"--no-load-optim"},
                          {"--tool-key", "functions"},
                          {"--apply-chat-template-kwargs", "{\"a\": 1}"},
                          {"--no-special-tokens-in-content"},
                          {"--generate-timeout-seconds", "5"},
                          {"--no-save-rollouts", "--rollout-files-gb", "3"},
                          {"--rm-type", "random", "--no-rm-strict"},
                          {"--plugin-hosts", "2"},
                          {"--max-restarts", "2"},
                          {"--sequence-parallel"},
                          {"--optimizer-cpu-offload"},
                          {"--update-weight-buffer-size", "100"},
                          {"--moe-router-bias-update-rate", "0.1"},
                          {"--eval-temperature", "0.5"},
                          {"--deterministic-mode"}}) {
    // The last of them.
    const std::string flag = *std::find_if(words.rbegin(), words.rend(),
                                           [](const auto& word) { return word.starts_with("--"); });
    EXPECT_THAT(notes(policy() + words), HasSubstr(flag + " has")) << flag;
  }
  EXPECT_THAT(notes(policy() + Words{"--advantage-estimator", "cispo", "--eps-clip", "1",
                                     "--eps-clip-c", "3"}),
              HasSubstr("--eps-clip-c has no effect: nothing in this run reads it"));
}

TEST(UnreadFlags, OfResponsesAreToldWhereRowsAreTrained) {
  const std::string filter =
      "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std";
  for (const char* loss : {"sft_loss", "dpo_loss"}) {
    for (const Words& words : std::vector<Words>{{"--advantage-estimator", "gspo"},
                                                 {"--keep-old-actor"},
                                                 {"--rollout-top-p", "0.9"},
                                                 {"--dynamic-sampling-filter-path", filter}})
      EXPECT_THAT(notes(rows(loss) + words), HasSubstr(words[0] + " has no effect")) << loss;
  }
  for (const Words& words :
       std::vector<Words>{{"--completion-key", "c"}, {"--trained-answers", "last"}})
    EXPECT_THAT(notes(rows("dpo_loss") + words), HasSubstr(words[0] + " has no effect"));
  EXPECT_THAT(notes(rows("sft_loss") + Words{"--rollout-buffer-url", "http://a:1"}),
              HasSubstr("--rollout-buffer-url has no effect"));
}

TEST(UnreadFlags, OfAdvantagesAreToldWhereSamplesAreImitated) {
  const Words rejection{"--loss-type", "sft_loss", "--rejection-keep-best", "1"};
  for (const Words& words : std::vector<Words>{{"--advantage-estimator", "gspo"},
                                               {"--keep-old-actor"},
                                               {"--use-kl-loss"},
                                               {"--use-routing-replay"},
                                               {"--rollout-top-p", "0.9"}}) {
    const bool is_read = words[0] == "--rollout-top-p";  // by the engine
    EXPECT_EQ(
        notes(policy() + rejection + words).find(words[0] + " has no effect") == std::string::npos,
        is_read)
        << words[0];
  }
}

TEST(UnreadFlags, OfExpertsAreToldOfAModelWithout) {
  const model::ModelConfig dense;
  model::ModelConfig with_experts;
  with_experts.experts.in_layer = {true};
  for (const Words& words : std::vector<Words>{{"--moe-aux-loss-coeff", "0.1"},
                                               {"--moe-z-loss-coeff", "0.1"},
                                               {"--moe-router-load-balancing-type", "seq_aux_loss"},
                                               {"--moe-router-enable-expert-bias"},
                                               {"--expert-tensor-parallel-size", "1"}}) {
    EXPECT_THAT(notes(policy() + words, &dense), HasSubstr(words[0] + " has no effect"));
    EXPECT_THAT(notes(policy() + words, &dense), HasSubstr("it counts with a model with experts"));
    EXPECT_THAT(notes(policy() + words, &with_experts), Not(HasSubstr(words[0])));
  }
  EXPECT_THAT(notes(policy() + Words{"--freeze-indexer"}, &dense),
              HasSubstr("--freeze-indexer has no effect"));
}

TEST(UnreadFlags, ThatARowAsksForAreNotTold) {
  ParsedFlags flags =
      translated(policy() + Words{"--rm-url", "http://localhost:1/x", "--remote-rm-attempts", "2"});
  EXPECT_THAT(flags.warnings, IsEmpty()) << "the data are not read yet";
  EXPECT_EQ(config::unread_at_start(flags).size(), 2U);
  EXPECT_THAT(config::still_unread(flags), HasSubstr("--rm-url, --remote-rm-attempts had no"));
  setup::read_flags_of_rule(flags.config, {{"rm_type", "math"}});
  EXPECT_EQ(config::unread_at_start(flags).size(), 2U);
  setup::read_flags_of_rule(flags.config, {{"rm_type", "remote_rm"}});
  EXPECT_THAT(config::unread_at_start(flags), IsEmpty());
  EXPECT_THAT(config::still_unread(flags), IsEmpty());
}

TEST(UnreadFlags, ThatRewardsDecideAreToldAtTheEnd) {
  const ParsedFlags flags = translated(policy() + Words{"--log-reward-category", "error"});
  EXPECT_THAT(flags.warnings, IsEmpty());
  EXPECT_THAT(config::unread_at_start(flags), IsEmpty());
  EXPECT_THAT(config::still_unread(flags),
              HasSubstr("--log-reward-category had no effect in this run"));
  flags.config.log_reward_category.get();
  EXPECT_THAT(config::still_unread(flags), IsEmpty());
}

TEST(UnreadFlags, OfTheGroupsMeanUnderACritic) {
  EXPECT_THAT(
      notes(policy() + Words{"--advantage-estimator", "ppo", "--disable-rewards-normalization"}),
      HasSubstr("--disable-rewards-normalization has no effect"));
}

TEST(UnreadFlags, DumpsAreWrittenOfRowsToo) {
  for (const char* loss : {"sft_loss", "dpo_loss"}) {
    const std::string told =
        notes(rows(loss) + Words{"--save-debug-rollout-data", "/nowhere/{rollout_id}.jsonl"}) +
        notes(rows(loss) + Words{"--dump-details", "/nowhere"});
    EXPECT_THAT(told, Not(HasSubstr("--save-debug-rollout-data has"))) << loss;
    EXPECT_THAT(told, Not(HasSubstr("--dump-details has"))) << loss;
  }
}

TEST(UnreadFlags, OfTheWeightedMaskUnderPlainTruncation) {
  const std::string plain = notes(policy() + Words{"--use-tis", "--tis-mode", "mask", "--tis-level",
                                                   "sequence", "--rs-veto-threshold", "1e-3"});
  EXPECT_THAT(plain, HasSubstr("--tis-mode has no effect"));
  EXPECT_THAT(plain, HasSubstr("--tis-level has no effect"));
  EXPECT_THAT(plain, HasSubstr("--rs-veto-threshold has no effect"));
  EXPECT_THAT(plain, HasSubstr("it counts with --custom-tis-function-path"));
  EXPECT_THAT(notes(policy() + Words{"--use-tis", "--custom-tis-function-path", kMis, "--tis-mode",
                                     "mask", "--tis-level", "sequence"}),
              IsEmpty());
}

TEST(UnreadFlags, OfBoundsThatTheModeOfTheCorrectionDoesNotHave) {
  const Words mis{"--custom-tis-function-path", kMis};
  const Words lower{"--tis-lower-bound", "0.3"};
  EXPECT_THAT(notes(policy() + mis + lower + Words{"--use-tis"}),
              HasSubstr("--tis-lower-bound has no effect"));
  EXPECT_THAT(notes(policy() + mis + lower + Words{"--use-tis", "--tis-mode", "clip"}),
              Not(HasSubstr("--tis-lower-bound")));
  EXPECT_THAT(notes(policy() + mis + lower + Words{"--use-tis", "--use-rs"}),
              Not(HasSubstr("--tis-lower-bound")));
  const std::string metrics = notes(
      policy() + mis + Words{"--get-mismatch-metrics", "--use-rs", "--tis-level", "sequence"});
  EXPECT_THAT(metrics, HasSubstr("--tis-level has no effect"));
  EXPECT_THAT(metrics, HasSubstr("--use-rs has no effect"));
}

TEST(UnreadFlags, WordsForTheSameCountThroughWhatTheyStandFor) {
  EXPECT_THAT(notes(policy() + Words{"--train-async", "--max-weight-staleness", "1",
                                     "--async-max-concurrent-samples", "8", "--fully-async"}),
              IsEmpty());
  EXPECT_THAT(
      notes(policy() + Words{"--fp32", "--num-steps-per-rollout", "2", "--recompute-activations"}),
      IsEmpty());
}

TEST(UnreadFlags, OfACriticAreItsOwn) {
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / "critic_flags.yaml";
  std::ofstream(path) << "megatron:\n  - role: critic\n    overrides: {lr: 1e-5, kl_coef: 0.1}\n";
  const std::string told = notes(
      policy() + Words{"--advantage-estimator", "ppo", "--megatron-config-path", path.string()});
  EXPECT_THAT(told, HasSubstr("critic: --kl-coef has no effect"));
  EXPECT_THAT(told, ::testing::Not(HasSubstr("--lr ")));
  // What only the critic has from its own words the actor's flag does not say.
  EXPECT_THAT(notes(policy() + Words{"--advantage-estimator", "ppo", "--value-clip", "0.3"}),
              IsEmpty());
}

TEST(UnreadFlags, MayBeForFunctionsOfTheUsers) {
  EXPECT_THAT(
      notes(policy() + Words{"--gamma", "0.9", "--custom-generate-function-path", "mine.generate"}),
      HasSubstr("functions of yours find it in `args`"));
}

/// The main forms of a run: each flag that works counts in one of them at least.
std::vector<Words> main_forms() {
  const Words gpu{"--device", "cuda"};
  const Words eval{"--eval-interval", "2", "--eval-prompt-data", "a", "/nowhere.jsonl"};
  return {
      policy() + eval,
      policy() + Words{"--advantage-estimator", "ppo", "--kl-coef", "0.1"},
      policy() + Words{"--advantage-estimator", "gspo", "--use-kl-loss", "--use-opsm"},
      policy() + Words{"--advantage-estimator", "reinforce_plus_plus", "--normalize-advantages"},
      policy() + Words{"--use-dynamic-batch-size", "--max-tokens-per-gpu", "100",
                       "--overlong-buffer-len", "4"},
      policy() + Words{"--use-tis", "--lr-decay-style", "WSD", "--lr-wsd-decay-iters", "2",
                       "--lr-warmup-iters", "1"},
      policy() + Words{"--use-tis", "--custom-tis-function-path", kMis, "--use-rs"},
      policy() + Words{"--use-score-centering"},
      policy() + Words{"--sglang-speculative-algorithm", "NGRAM"},
      policy() + Words{"--sglang-speculative-algorithm", "EAGLE", "--enable-mtp-training"},
      policy() + Words{"--rollout-drafts", "eagle3", "--rollout-draft-model", "/nowhere/eagle3"},
      policy() + Words{"--true-on-policy", "--rollout-verify-tokens", "8"},
      policy() + Words{"--environment", "gym:mine:make"},
      policy() + Words{"--lora-rank", "8"},
      policy() + Words{"--use-opd", "--opd-type", "megatron", "--opd-teacher-load", "/nowhere"},
      policy() + Words{"--rm-url", "http://localhost:1/x", "--partial-rollout",
                       "--moe-router-enable-expert-bias", "--profile", "--use-wandb", "--view"},
      policy() + Words{"--train-async", "--deterministic-schedule", "--update-mode", "suspend"},
      policy() + Words{"--rollout-num-gpus", "2", "--use-fault-tolerance", "--update-weight-mode",
                       "delta", "--update-weight-transport", "disk", "--update-weight-disk-dir",
                       "/nowhere"},
      policy() + Words{"--rollout-data-transport", "straw"},
      policy() + Words{"--rollout-num-gpus", "1", "--rollout-session-id", "nightly"},
      policy() + gpu,
      policy() + gpu + Words{"--deterministic-mode"},
      policy() + Words{"--actor-num-nodes", "2", "--dynamic-sampling-filter-path",
                       "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std",
                       "--apply-chat-template"},
      policy() + Words{"--custom-rm-path", "mine.reward", "--rollout-function-path", "mine.draw"},
      policy() + Words{"--actor-num-gpus-per-node", "4", "--tensor-model-parallel-size", "2",
                       "--context-parallel-size", "2", "--global-batch-size", "16"},
      policy() + Words{"--loss-type", "sft_loss", "--rejection-keep-best", "1",
                       "--rejection-min-reward", "0.5"},
      rows("sft_loss") + Words{"--rollout-shuffle"},
      rows("dpo_loss"),
      Words{"--hf-checkpoint", "/nowhere", "--prompt-data", "/nowhere.jsonl", "--num-rollout", "10",
            "--rollout-batch-size", "4", "--n-samples-per-prompt", "4", "--device", "cpu",
            "--load-debug-rollout-data", "/nowhere/{rollout_id}"},
      Words{"--hf-checkpoint", "/nowhere", "--prompt-data", "/nowhere.jsonl", "--rm-type", "math",
            "--num-epoch", "1", "--rollout-batch-size", "4", "--rollout-max-response-len", "8",
            "--n-samples-per-prompt", "2", "--device", "cpu"},
  };
}

TEST(UnreadFlags, EveryFlagThatWorksCountsInAMainForm) {
  std::set<std::string> rest;
  for (const FlagRow& row : config::flag_table())
    if (row.status == FlagStatus::kWorks) rest.emplace(row.name);
  for (const Words& form : main_forms()) {
    ParsedFlags flags = config::parse_flags(form);
    std::vector<std::string> absent;
    config::complete_and_validate(flags, absent);
    make_translations(flags.config);
    // As if the user had set all of them.
    flags.given.assign(rest.begin(), rest.end());
    flags.warnings.clear();
    const std::vector<std::string> unread = config::unread_flags(flags);
    rest = std::set(unread.begin(), unread.end());
  }
  EXPECT_THAT(rest, IsEmpty()) << "a new flag is read by a translation (loop/translations.cpp), or "
                                  "its row says where stations read it: .when(...)";
}

TEST(UnreadFlags, NoMainFormIsToldOfItsOwnFlags) {
  for (const Words& form : main_forms()) {
    const ParsedFlags flags = translated(form);
    EXPECT_THAT(flags.unread, IsEmpty()) << fmt::format("{}", fmt::join(form, " "));
  }
}

TEST(UnreadFlags, AFlagThatIsNotReadSaysWhereItCounts) {
  // The plain form: what does not count in it says in its row where it does.
  ParsedFlags flags = translated(policy());
  flags.given.clear();
  flags.warnings.clear();
  for (const FlagRow& row : config::flag_table())
    if (row.status == FlagStatus::kWorks) flags.given.emplace_back(row.name);
  for (const std::string& name : config::unread_flags(flags)) {
    const FlagRow* row = config::find_flag(name);
    EXPECT_TRUE(row->counts && !row->counts->words.empty()) << name << ": " << row->meaning;
  }
}

TEST(Translations, OfARunInEpochsDoNotGuessItsLength) {
  Words words = policy() +
                Words{"--lr-decay-style", "WSD", "--lr-wsd-decay-iters", "100", "--num-epoch", "1"};
  const auto at = std::ranges::find(words, "--num-rollout");
  words.erase(at, at + 2);
  EXPECT_THAT(fmt::format("{}", fmt::join(translated(words).warnings, "")), IsEmpty());
}

TEST(Translations, FindASchedulesOfRatesThatCannotBe) {
  const auto refused = [](const Words& words) {
    try {
      translated(policy() + words);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused({"--lr-decay-style", "WSD", "--lr-wsd-decay-iters", "100"}),
              HasSubstr("lr-wsd-decay-iters"));
}

}  // namespace
}  // namespace slime::loop
