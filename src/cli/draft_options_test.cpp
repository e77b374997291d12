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

DraftsSaid drafts_of(const std::vector<std::string>& words, const std::string& device = "cpu",
                     bool has_states = false) {
  DraftOptions options;
  CLI::App app("Serves.", "slime serve");
  add_draft_options(app, options);
  EXPECT_FALSE(parse_options(app, words));
  testing::internal::CaptureStderr();
  DraftsSaid said;
  try {
    said.settings = draft_settings_of(options, device, has_states, "slime serve");
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
  EXPECT_THAT(
      eagle.says,
      HasSubstr("slime serve: --speculative-algorithm EAGLE has no effect: no draft model"));
  const DraftsSaid gpu = drafts_of({"--speculative-algorithm", "NGRAM"}, "cuda");
  EXPECT_EQ(gpu.settings.most, 0);
  EXPECT_THAT(gpu.says, HasSubstr("NGRAM has no effect: drafts are verified on CPUs so far"));
  const DraftsSaid states = drafts_of({"--speculative-algorithm", "NGRAM"}, "cpu", true);
  EXPECT_EQ(states.settings.most, 0);
  EXPECT_THAT(states.says, HasSubstr("gated delta nets"));
  EXPECT_THAT(drafts_of({"--speculative-num-steps", "3"}).says,
              HasSubstr("--speculative-num-steps has no effect: it counts with"));
}

}  // namespace
}  // namespace slime::cli
