// --rollout-drafts and SGLang's flags for it: which of them say what, and where drafts are left out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "config/parse_flags.h"
#include "config/validate.h"
#include "core/error.h"

namespace slime::config {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

struct CheckedDrafts {
  ParsedFlags flags;
  std::string error;

  std::string drafts() const { return flags.config.rollout_drafts.peek(); }
  std::optional<int64_t> most() const { return flags.config.rollout_draft_tokens.peek(); }
};

CheckedDrafts checked_drafts(const std::string& more) {
  std::istringstream stream(
      "--hf-checkpoint /nowhere/model --prompt-data rows.jsonl --rollout-batch-size 2 "
      "--n-samples-per-prompt 2 --num-rollout 3 --rollout-max-response-len 8 --rm-type math "
      "--device " +
      (more.find("--device ") == 0 ? more.substr(9) : "cpu " + more));
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  CheckedDrafts result{.flags = parse_flags(words), .error = {}};
  std::vector<std::string> absent;
  try {
    complete_and_validate(result.flags, absent);
  } catch (const ConfigError& error) {
    result.error = error.what();
  }
  return result;
}

TEST(RolloutDrafts, AreOffUnlessSomebodyAsks) {
  const CheckedDrafts plain = checked_drafts("");
  EXPECT_EQ(plain.error, "");
  EXPECT_EQ(plain.drafts(), "none");
  EXPECT_FALSE(plain.flags.config.has_drafts());
  EXPECT_THAT(checked_drafts("--rollout-drafts eagle").error, HasSubstr("--rollout-drafts"));
}

TEST(RolloutDrafts, NoiseOfThePromptIsNotThatOfRequestsThatAFunctionWrites) {
  const auto notes = [](const std::string& words) { return checked_drafts(words).flags.warnings; };
  EXPECT_THAT(notes("--rollout-noise prompt"), Not(Contains(HasSubstr("--rollout-noise"))));
  EXPECT_THAT(notes("--rollout-noise prompt --custom-generate-function-path my.generate"),
              Contains(HasSubstr("--rollout-noise prompt has no effect on requests that")));
}

TEST(RolloutDrafts, NgramOfSglangIsSuffix) {
  for (const std::string word : {"NGRAM", "ngram"}) {
    const CheckedDrafts given = checked_drafts("--sglang-speculative-algorithm " + word);
    EXPECT_EQ(given.error, "") << word;
    EXPECT_EQ(given.drafts(), "suffix") << word;
    EXPECT_THAT(given.flags.warnings, Not(Contains(HasSubstr("no effect")))) << word;
  }
  EXPECT_THAT(
      checked_drafts("--rollout-drafts none --sglang-speculative-algorithm NGRAM").error,
      HasSubstr("--rollout-drafts none and --sglang-speculative-algorithm NGRAM: choose one"));
}

TEST(RolloutDrafts, EagleAndNextnOfSglangAreTheModelsDraftLayer) {
  for (const std::string word : {"EAGLE", "NEXTN", "nextn"}) {
    const CheckedDrafts given = checked_drafts("--sglang-speculative-algorithm " + word +
                                               " --sglang-speculative-num-steps 3 "
                                               "--sglang-speculative-eagle-topk 1 "
                                               "--sglang-speculative-num-draft-tokens 4");
    EXPECT_EQ(given.error, "") << word;
    EXPECT_EQ(given.drafts(), "mtp") << word;
    EXPECT_EQ(given.most(), 3) << word;
    EXPECT_THAT(given.flags.warnings, Not(Contains(HasSubstr("no effect")))) << word;
    EXPECT_TRUE(given.flags.config.names_draft_layer());
    EXPECT_FALSE(given.flags.config.names_texts());
  }
  const CheckedDrafts both =
      checked_drafts("--rollout-drafts suffix+mtp --sglang-speculative-algorithm EAGLE");
  EXPECT_EQ(both.error, "");
  EXPECT_EQ(both.drafts(), "suffix+mtp");
  EXPECT_TRUE(both.flags.config.names_draft_layer() && both.flags.config.names_texts());
  EXPECT_THAT(both.flags.warnings, Not(Contains(HasSubstr("no effect"))));
  EXPECT_THAT(checked_drafts("--rollout-drafts mtp --sglang-speculative-algorithm NGRAM").error,
              HasSubstr("--rollout-drafts mtp and --sglang-speculative-algorithm NGRAM: choose"));
}

TEST(RolloutDrafts, ATreeOfTheModelsDraftLayerIsOneChainOfItsSteps) {
  const CheckedDrafts tree = checked_drafts(
      "--sglang-speculative-algorithm EAGLE --sglang-speculative-num-steps 5 "
      "--sglang-speculative-eagle-topk 8 --sglang-speculative-num-draft-tokens 64");
  EXPECT_EQ(tree.error, "");
  EXPECT_EQ(tree.drafts(), "mtp");
  EXPECT_EQ(tree.most(), 5);
  EXPECT_THAT(
      tree.flags.warnings,
      Contains("--sglang-speculative-eagle-topk 8: guesses are one chain, of 5 at most "
               "(--sglang-speculative-num-steps 5; --sglang-speculative-num-draft-tokens 64 "
               "is of a tree); use 1, or leave it out"));
}

TEST(RolloutDrafts, OfATreeWithoutStepsNoStepsAreNamed) {
  const std::string tree =
      "--sglang-speculative-algorithm EAGLE --sglang-speculative-eagle-topk 4 ";
  const CheckedDrafts given = checked_drafts(tree);
  EXPECT_EQ(given.error, "");
  EXPECT_EQ(given.most(), std::nullopt);
  EXPECT_THAT(given.flags.warnings,
              Contains("--sglang-speculative-eagle-topk 4: guesses are one chain, of 7 at most "
                       "(the default); use 1, or leave it out"));
  EXPECT_THAT(checked_drafts(tree + "--rollout-draft-tokens 5").flags.warnings,
              Contains(HasSubstr("of 5 at most (--rollout-draft-tokens 5); use 1")));
}

TEST(RolloutDrafts, TheDraftLayerIsLeftOutWithANoteWhereEnginesDoNotComputeIt) {
  for (const std::string words :
       {"--lora-rank 4", "--rollout-precision fp8", "--actor-num-gpus-per-node 2 --colocate"}) {
    const CheckedDrafts alone = checked_drafts("--rollout-drafts mtp " + words);
    EXPECT_EQ(alone.drafts(), "none") << words;
    EXPECT_THAT(alone.flags.warnings,
                Contains(AllOf(HasSubstr("--rollout-drafts mtp has no effect"),
                               HasSubstr("without its draft layer"))))
        << words;
    const CheckedDrafts with_texts = checked_drafts("--rollout-drafts suffix+mtp " + words);
    EXPECT_EQ(with_texts.drafts(), "suffix") << words;
    EXPECT_THAT(with_texts.flags.warnings, Contains(HasSubstr("guesses come from texts alone")))
        << words;
  }
}

TEST(RolloutDrafts, Eagle3OfSglangIsADraftModelAndSoIsEagleWithOne) {
  const std::string path = "--sglang-speculative-draft-model-path /models/eagle3 ";
  for (const std::string word : {"EAGLE3", "EAGLE", "eagle3"}) {
    const CheckedDrafts given =
        checked_drafts(path + "--sglang-speculative-algorithm " + word +
                       " --sglang-speculative-num-steps 5 --sglang-speculative-eagle-topk 8 "
                       "--sglang-speculative-num-draft-tokens 64");
    EXPECT_EQ(given.error, "") << word;
    EXPECT_EQ(given.drafts(), "eagle3") << word;
    EXPECT_EQ(given.most(), 5) << word << ": a tree is a chain of its steps";
    EXPECT_EQ(given.flags.config.rollout_draft_model.peek(), "/models/eagle3");
    EXPECT_THAT(given.flags.warnings, Not(Contains(HasSubstr("no effect")))) << word;
    EXPECT_TRUE(given.flags.config.names_draft_model());
    EXPECT_FALSE(given.flags.config.names_draft_layer() || given.flags.config.names_texts());
    EXPECT_EQ(flags_for_users(given.flags.config).at("sglang_speculative_algorithm"), "EAGLE3");
  }
  const CheckedDrafts both = checked_drafts(
      "--rollout-drafts suffix+eagle3 --rollout-draft-model /models/eagle3 "
      "--sglang-speculative-algorithm EAGLE3");
  EXPECT_EQ(both.error, "");
  EXPECT_TRUE(both.flags.config.names_draft_model() && both.flags.config.names_texts());
  EXPECT_EQ(checked_drafts(path + "--sglang-speculative-algorithm NEXTN").drafts(), "mtp");
  EXPECT_EQ(checked_drafts("--sglang-speculative-draft-model-path /nowhere/model "
                           "--sglang-speculative-algorithm EAGLE")
                .drafts(),
            "mtp")
      << "the model itself, as in scripts for its own layer";
}

TEST(RolloutDrafts, ADraftModelHasToBeNamed) {
  for (const std::string words : {"--rollout-drafts eagle3", "--rollout-drafts suffix+eagle3",
                                  "--sglang-speculative-algorithm EAGLE3"}) {
    EXPECT_THAT(
        checked_drafts(words).error,
        HasSubstr(words + ": needs --rollout-draft-model DIR, the directory of an EAGLE-3"));
  }
  EXPECT_THAT(checked_drafts("--rollout-drafts eagle3 --rollout-draft-model /nowhere/model").error,
              HasSubstr("--rollout-draft-model /nowhere/model: is the model itself"));
  EXPECT_THAT(checked_drafts("--sglang-speculative-algorithm EAGLE3 "
                             "--sglang-speculative-draft-model-path /nowhere/model")
                  .error,
              HasSubstr("--sglang-speculative-draft-model-path /nowhere/model: is the model"));
}

TEST(RolloutDrafts, TheDraftModelIsLeftOutWithANoteWhereEnginesDoNotComputeIt) {
  for (const std::string words :
       {"--lora-rank 4", "--rollout-precision fp8", "--actor-num-gpus-per-node 2 --colocate",
        "--rollout-num-gpus 2 --rollout-num-gpus-per-engine 2"}) {
    const CheckedDrafts alone =
        checked_drafts("--rollout-drafts eagle3 --rollout-draft-model /models/eagle3 " + words);
    EXPECT_EQ(alone.drafts(), "none") << words;
    EXPECT_THAT(alone.flags.warnings,
                Contains(AllOf(HasSubstr("--rollout-drafts eagle3 has no effect"),
                               HasSubstr("no draft model"))))
        << words;
    const CheckedDrafts with_texts = checked_drafts(
        "--rollout-drafts suffix+eagle3 --rollout-draft-model /models/eagle3 " + words);
    EXPECT_EQ(with_texts.drafts(), "suffix") << words;
    EXPECT_THAT(with_texts.flags.warnings, Contains(HasSubstr("guesses come from texts alone")))
        << words;
  }
  // On a GPU no draft model is computed, so that none is missing.
  const CheckedDrafts gpu = checked_drafts("--device cuda --sglang-speculative-algorithm EAGLE3");
  EXPECT_EQ(gpu.error, "");
  EXPECT_EQ(gpu.drafts(), "none");
  EXPECT_THAT(gpu.flags.warnings, Contains(HasSubstr("no draft model on GPUs yet")));
  const CheckedDrafts gpu_texts = checked_drafts(
      "--device cuda --rollout-drafts suffix+eagle3 --rollout-draft-model /models/eagle3");
  EXPECT_EQ(gpu_texts.error, "");
  EXPECT_EQ(gpu_texts.drafts(), "suffix");
  EXPECT_THAT(gpu_texts.flags.warnings,
              Contains(HasSubstr("guesses come from texts alone: no draft model on GPUs yet")));
}

TEST(DraftTraining, IsOfWholeModelsOnProcessors) {
  const std::string train = "--enable-mtp-training ";
  const CheckedDrafts given =
      checked_drafts(train + "--mtp-loss-scaling-factor 0.2 --mtp-num-layers 1");
  EXPECT_EQ(given.error, "");
  EXPECT_TRUE(given.flags.config.enable_mtp_training.peek());
  EXPECT_EQ(given.flags.config.mtp_loss_scaling_factor.peek(), 0.2);
  EXPECT_EQ(checked_drafts(train + "--actor-num-gpus-per-node 2 --colocate").error, "")
      << "each rank has the whole model";
  EXPECT_EQ(checked_drafts(train + "--rollout-drafts mtp").error, "");
  for (const auto& [words, says] :
       {std::pair{"--mtp-loss-scaling-factor 0", "--mtp-loss-scaling-factor 0: is above 0"},
        std::pair{"--tensor-model-parallel-size 2 --actor-num-gpus-per-node 2",
                  "--enable-mtp-training: not with tensor, pipeline, context or expert"},
        std::pair{"--lora-rank 4", "--enable-mtp-training: not with adapters"}}) {
    EXPECT_THAT(checked_drafts(train + words).error, HasSubstr(says)) << words;
  }
  EXPECT_THAT(checked_drafts("--device cuda " + train).error,
              HasSubstr("--enable-mtp-training: not with --device cuda"));
  EXPECT_EQ(checked_drafts("--debug-rollout-only --tensor-model-parallel-size 2 "
                           "--actor-num-gpus-per-node 2 " +
                           train)
                .error,
            "");
}

TEST(RolloutDrafts, UsersFunctionsSeeTheNameThatTheyAskFor) {
  const auto algorithm = [](const std::string& words) {
    return flags_for_users(checked_drafts(words).flags.config).at("sglang_speculative_algorithm");
  };
  EXPECT_EQ(algorithm("--rollout-drafts suffix"), "NGRAM");
  EXPECT_EQ(algorithm("--sglang-speculative-algorithm EAGLE"), "EAGLE");
  EXPECT_TRUE(algorithm("").is_null());
}

TEST(RolloutDrafts, SglangCountsTheLastKnownTokenToo) {
  EXPECT_EQ(checked_drafts("--rollout-drafts suffix").most(), std::nullopt);
  EXPECT_EQ(checked_drafts("--rollout-drafts suffix --rollout-draft-tokens 5").most(), 5);
  const std::string ngram = "--sglang-speculative-algorithm NGRAM ";
  EXPECT_EQ(checked_drafts(ngram + "--sglang-speculative-num-draft-tokens 4").most(), 3);
  EXPECT_EQ(checked_drafts(ngram + "--sglang-speculative-num-steps 3").most(), 3);
  const CheckedDrafts all =
      checked_drafts(ngram +
                     "--sglang-speculative-num-steps 3 --sglang-speculative-num-draft-tokens 4 "
                     "--sglang-speculative-eagle-topk 1 --rollout-draft-tokens 3");
  EXPECT_EQ(all.error, "");
  EXPECT_EQ(all.most(), 3);
}

TEST(RolloutDrafts, CountsThatDisagreeOrAreOutOfBoundsAreRefused) {
  const std::string suffix = "--rollout-drafts suffix ";
  for (const auto& [words, says] :
       {std::pair{"--rollout-draft-tokens 0", "--rollout-draft-tokens 0: should be between 1 and"},
        std::pair{"--rollout-draft-tokens 16", "should be between 1 and 15"},
        std::pair{"--sglang-speculative-num-draft-tokens 1", "should be between 2 and 16"},
        std::pair{"--rollout-draft-text-mb 0",
                  "--rollout-draft-text-mb 0: should be between 1 and"},
        std::pair{"--sglang-speculative-num-steps 3 --sglang-speculative-num-draft-tokens 6",
                  "--sglang-speculative-num-draft-tokens 6 and --sglang-speculative-num-steps 3: "
                  "choose one"},
        std::pair{"--rollout-draft-tokens 4 --sglang-speculative-num-steps 3",
                  "--rollout-draft-tokens 4 and --sglang-speculative-num-steps 3: choose one"},
        std::pair{"--sglang-speculative-eagle-topk 4",
                  "--sglang-speculative-eagle-topk 4: guesses are one chain; use 1"}}) {
    EXPECT_THAT(checked_drafts(suffix + words).error, HasSubstr(says)) << words;
  }
}

TEST(RolloutDrafts, ADraftModelOfAnotherKindIsLeftOutWithAllThatBelongsToIt) {
  const CheckedDrafts given = checked_drafts(
      "--sglang-speculative-algorithm STANDALONE --sglang-speculative-num-steps 3 "
      "--sglang-speculative-eagle-topk 4 --sglang-speculative-num-draft-tokens 32");
  EXPECT_EQ(given.error, "");
  EXPECT_EQ(given.drafts(), "none");
  for (const std::string flag : {"algorithm", "num-steps", "eagle-topk", "num-draft-tokens"}) {
    EXPECT_THAT(given.flags.warnings,
                Contains(AllOf(HasSubstr("--sglang-speculative-" + flag + " has no effect"),
                               HasSubstr("--rollout-drafts suffix"))))
        << flag;
  }
  const CheckedDrafts both =
      checked_drafts("--rollout-drafts suffix --sglang-speculative-algorithm EAGLE");
  EXPECT_EQ(both.error, "");
  EXPECT_EQ(both.drafts(), "suffix");
  EXPECT_THAT(both.flags.warnings,
              Contains(HasSubstr("--sglang-speculative-algorithm EAGLE has no effect: "
                                 "--rollout-drafts suffix says")));
  EXPECT_THAT(
      checked_drafts("--rollout-drafts suffix --sglang-speculative-algorithm EAGLE3")
          .flags.warnings,
      Contains(HasSubstr("--sglang-speculative-algorithm EAGLE3 has no effect: --rollout-drafts")));
  EXPECT_THAT(
      checked_drafts("--rollout-drafts suffix --sglang-speculative-algorithm STANDALONE")
          .flags.warnings,
      Contains(HasSubstr("STANDALONE has no effect: draft models of this kind are not computed")));
}

TEST(RolloutDrafts, AreTimeAloneSoThatTheyAreLeftOutWithANoteWhereTheyAreNotVerified) {
  const std::string external =
      "--rollout-external-engine-addrs 127.0.0.1:1 --update-weight-disk-dir /w ";
  const CheckedDrafts elsewhere = checked_drafts(external + "--rollout-drafts suffix");
  EXPECT_EQ(elsewhere.error, "");
  EXPECT_EQ(elsewhere.drafts(), "none");
  EXPECT_THAT(elsewhere.flags.warnings,
              Contains(HasSubstr("--rollout-drafts suffix has no effect: the servers of")));
  for (const std::string words :
       {"--rollout-drafts suffix --true-on-policy", "--device cuda --rollout-drafts suffix",
        "--device cuda --sglang-speculative-algorithm NGRAM"}) {
    const CheckedDrafts given = checked_drafts(words);
    EXPECT_EQ(given.error, "") << words;
    EXPECT_EQ(given.drafts(), "suffix") << words;
    EXPECT_THAT(given.flags.warnings,
                Not(Contains(AllOf(HasSubstr("draft"), HasSubstr("has no effect")))))
        << words;
  }
}

TEST(RolloutDrafts, TheDraftLayerIsLeftOutWithANoteOnGpus) {
  for (const auto& [words, says] :
       {std::pair{"--rollout-drafts mtp",
                  "--rollout-drafts mtp has no effect: no draft layer on GPUs yet"},
        std::pair{"--sglang-speculative-algorithm EAGLE --sglang-speculative-num-draft-tokens 64 "
                  "--sglang-speculative-eagle-topk 8",
                  "--sglang-speculative-algorithm EAGLE has no effect: no draft layer on GPUs"}}) {
    const CheckedDrafts alone = checked_drafts(std::string("--device cuda ") + words);
    EXPECT_EQ(alone.error, "") << words;
    EXPECT_EQ(alone.drafts(), "none") << words;
    EXPECT_THAT(alone.flags.warnings, Contains(HasSubstr(says))) << words;
  }
  const CheckedDrafts both = checked_drafts("--device cuda --rollout-drafts suffix+mtp");
  EXPECT_EQ(both.error, "");
  EXPECT_EQ(both.drafts(), "suffix");
  EXPECT_FALSE(both.flags.config.names_draft_layer());
  EXPECT_THAT(both.flags.warnings,
              Contains(HasSubstr("guesses come from texts alone: no draft layer on GPUs yet")));
}

}  // namespace
}  // namespace slime::config
