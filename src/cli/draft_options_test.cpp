#include "cli/draft_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/options.h"
#include "core/error.h"

namespace slime::cli {
namespace {

using ::testing::HasSubstr;

struct DraftsSaid {
  engine::DraftSettings settings;
  std::string says;
};

model::ModelConfig model_with_layer() {
  model::ModelConfig model;
  model.drafts.count = 1;
  return model;
}

DraftsSaid drafts_of(const std::vector<std::string>& words, const std::string& device = "cpu",
                     const model::ModelConfig& model = {}) {
  DraftOptions options;
  CLI::App app("Serves.", "slime serve");
  add_draft_options(app, options);
  EXPECT_FALSE(parse_options(app, words));
  testing::internal::CaptureStderr();
  DraftsSaid said;
  try {
    said.settings = draft_settings_of(options, device, model, "slime serve");
  } catch (const ConfigError& error) {
    said.says = error.what();
  }
  said.says += testing::internal::GetCapturedStderr();
  return said;
}

TEST(DraftOptions, NgramDraftsSevenUnlessItIsSaidHowMany) {
  EXPECT_EQ(drafts_of({}).settings.most, 0);
  EXPECT_EQ(drafts_of({}).says, "");
  const DraftsSaid plain = drafts_of({"--speculative-algorithm", "NGRAM"});
  EXPECT_EQ(plain.settings.most, 7);
  EXPECT_FALSE(plain.settings.always);
  EXPECT_TRUE(plain.settings.texts && !plain.settings.layer);
  EXPECT_EQ(plain.says, "");
  EXPECT_EQ(drafts_of({"--speculative-algorithm", "ngram", "--speculative-num-draft-tokens", "4"})
                .settings.most,
            3)
      << "the last known token is counted";
  const DraftsSaid both = drafts_of({"--speculative-algorithm", "NGRAM", "--speculative-num-steps",
                                     "3", "--speculative-num-draft-tokens", "4",
                                     "--speculative-eagle-topk", "1", "--speculative-always"});
  EXPECT_EQ(both.settings.most, 3);
  EXPECT_TRUE(both.settings.always);
}

TEST(DraftOptions, NgramDraftsOnGpusToo) {
  const DraftsSaid gpu = drafts_of({"--speculative-algorithm", "NGRAM"}, "cuda");
  EXPECT_EQ(gpu.says, "");
  EXPECT_EQ(gpu.settings.most, 7);
  EXPECT_TRUE(gpu.settings.texts && !gpu.settings.layer);
}

TEST(DraftOptions, NextnAndEagleAreTheModelsDraftLayer) {
  for (const std::string word : {"NEXTN", "EAGLE", "nextn"}) {
    const DraftsSaid given =
        drafts_of({"--speculative-algorithm", word, "--speculative-num-steps", "3",
                   "--speculative-num-draft-tokens", "4", "--speculative-eagle-topk", "1"},
                  "cpu", model_with_layer());
    EXPECT_EQ(given.says, "") << word;
    EXPECT_EQ(given.settings.most, 3) << word;
    EXPECT_TRUE(given.settings.layer && !given.settings.texts) << word;
  }
  const DraftsSaid tree =
      drafts_of({"--speculative-algorithm", "EAGLE", "--speculative-num-steps", "5",
                 "--speculative-num-draft-tokens", "64", "--speculative-eagle-topk", "8"},
                "cpu", model_with_layer());
  EXPECT_EQ(tree.settings.most, 5);
  EXPECT_THAT(tree.says,
              HasSubstr("--speculative-eagle-topk 8: guesses are one chain, of 5 at most "
                        "(--speculative-num-draft-tokens 64 is of a tree); use 1"));
}

TEST(DraftOptions, Eagle3IsADraftModelAndSoIsEagleWithOne) {
  for (const std::string word : {"EAGLE3", "EAGLE", "eagle3"}) {
    const DraftsSaid given =
        drafts_of({"--speculative-algorithm", word, "--speculative-draft-model-path", "/models/e",
                   "--speculative-num-steps", "3", "--speculative-eagle-topk", "4",
                   "--speculative-num-draft-tokens", "16"});
    EXPECT_THAT(given.says, HasSubstr("--speculative-eagle-topk 4: guesses are one chain, of 3"));
    EXPECT_EQ(given.settings.most, 3) << word;
    EXPECT_TRUE(given.settings.model && !given.settings.layer && !given.settings.texts) << word;
  }
  EXPECT_TRUE(drafts_of({"--speculative-algorithm", "EAGLE", "--speculative-draft-model", "/e"})
                  .settings.model)
      << "SGLang's other name of the option";
  EXPECT_THAT(drafts_of({"--speculative-algorithm", "EAGLE3"}).says,
              HasSubstr("EAGLE3: needs --speculative-draft-model-path DIR"));
  for (const std::vector<std::string>& words : {std::vector<std::string>{},
                                                {"--speculative-algorithm", "NGRAM"},
                                                {"--speculative-algorithm", "NEXTN"}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--speculative-draft-model-path", "/models/e"});
    EXPECT_THAT(drafts_of(all, "cpu", model_with_layer()).says,
                HasSubstr("--speculative-draft-model-path has no effect: it counts with "
                          "--speculative-algorithm EAGLE3"));
  }
}

TEST(DraftOptions, RanksComputeNoDraftModel) {
  DraftOptions options{.algorithm = "EAGLE3", .model = "/models/e", .num_ranks = 2};
  testing::internal::CaptureStderr();
  EXPECT_EQ(draft_settings_of(options, "cpu", {}, "slime serve").most, 0);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("EAGLE3 has no effect: with --tp-size 2 no draft model is computed"));
}

TEST(DraftOptions, CountsThatCannotBeMeantAreRefused) {
  const auto says = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"--speculative-algorithm", "NGRAM"});
    return drafts_of(words).says;
  };
  EXPECT_THAT(says({"--speculative-num-steps", "3", "--speculative-num-draft-tokens", "6"}),
              HasSubstr("3 guesses are 4 tokens"));
  EXPECT_THAT(says({"--speculative-num-draft-tokens", "1"}), HasSubstr("between 2 and 16"));
  EXPECT_THAT(says({"--speculative-num-steps", "16"}), HasSubstr("between 1 and 15"));
  EXPECT_THAT(says({"--speculative-eagle-topk", "4"}), HasSubstr("one chain"));
}

TEST(DraftOptions, WhereNothingIsDraftedALineSaysWhy) {
  const DraftsSaid eagle = drafts_of({"--speculative-algorithm", "EAGLE", "--speculative-num-steps",
                                      "5", "--speculative-eagle-topk", "8"});
  EXPECT_EQ(eagle.settings.most, 0);
  EXPECT_THAT(eagle.says, HasSubstr("slime serve: --speculative-algorithm EAGLE has no effect: "
                                    "config.json tells of no draft layer"));
  EXPECT_THAT(drafts_of({"--speculative-algorithm", "STANDALONE"}, "cpu", model_with_layer()).says,
              HasSubstr("STANDALONE has no effect: draft models of this kind are not computed"));
  model::ModelConfig own_embedding = model_with_layer();
  own_embedding.drafts.has_own_embedding = true;
  EXPECT_THAT(drafts_of({"--speculative-algorithm", "NEXTN"}, "cpu", own_embedding).says,
              HasSubstr("NEXTN has no effect: draft layers are not computed with an embedding"));
  for (const std::string word : {"NEXTN", "EAGLE", "EAGLE3"}) {
    const DraftsSaid gpu = drafts_of({"--speculative-algorithm", word}, "cuda", model_with_layer());
    EXPECT_EQ(gpu.settings.most, 0);
    EXPECT_FALSE(gpu.settings.layer || gpu.settings.model);
    const std::string source = word == "EAGLE3" ? "model" : "layer";
    EXPECT_THAT(gpu.says, HasSubstr(word + " has no effect: no draft " + source + " on GPUs yet"));
  }
  for (const std::string device : {"cpu", "cuda"}) {
    for (const std::string word : {"NGRAM", "NEXTN", "EAGLE3"}) {
      model::ModelConfig states = model_with_layer();
      states.delta.in_layer = {true, false};
      const DraftsSaid none = drafts_of({"--speculative-algorithm", word}, device, states);
      EXPECT_EQ(none.settings.most, 0);
      EXPECT_THAT(none.says, HasSubstr("gated delta nets"));
    }
  }
  EXPECT_THAT(drafts_of({"--speculative-num-steps", "3"}).says,
              HasSubstr("--speculative-num-steps has no effect: it counts with"));
}

}  // namespace
}  // namespace slime::cli
