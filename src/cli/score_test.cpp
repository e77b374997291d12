#include "cli/score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/score_lines.h"
#include "core/error.h"

namespace slime::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

json::object scored(const char* type, const char* line, const std::string& key = "") {
  const reward::Scoring how{.type = type, .config = {}, .reward_key = key};
  return reward::score_record(parse_json(line, "line").as_object(), 0, how, "in, line 1");
}

TEST(Score, GivesTheNumberOfEachResponse) {
  EXPECT_EQ(scored("math", R"({"response": "\\boxed{4}", "label": "4"})"),
            (json::object{{"score", 1}}));
  EXPECT_EQ(scored("math", R"({"response": null, "label": "4", "metadata": null})"),
            (json::object{{"score", 0}}));
  EXPECT_EQ(scored("", R"({"response": "4", "label": "4", "metadata": {"rm_type": "f1"}})"),
            (json::object{{"score", 1}}));
}

TEST(Score, APromptMayBeAListOfMessages) {
  EXPECT_EQ(scored("math", R"({"prompt": [{"role": "user", "content": "2+2="}],
                               "response": "\\boxed{4}", "label": "4"})"),
            (json::object{{"score", 1}}));
}

TEST(Score, ARecordCountsByItsScoreOrItsKey) {
  const char* line = R"({"response": "Answer: 5", "label": "4"})";
  EXPECT_EQ(scored("dapo", line).at("score"), json::value(-1));
  EXPECT_EQ(scored("dapo", line).at("reward").at("pred"), json::value("5"));
  EXPECT_EQ(scored("dapo", line, "acc").at("score"), json::value(0));
}

TEST(Score, SaysWhyThereIsNone) {
  const json::object unusable = scored("dapo", R"({"response": "Answer: 5", "label": "five"})");
  EXPECT_TRUE(unusable.at("score").is_null());
  EXPECT_THAT(std::string(unusable.at("reason").as_string()), HasSubstr("is not a number"));
  const json::object keyless = scored("dapo", R"({"response": "", "label": "4"})", "points");
  EXPECT_THAT(std::string(keyless.at("reason").as_string()), HasSubstr("has no key \"points\""));
  const json::object unlabelled = scored("math", R"({"response": "\\boxed{4}"})");
  EXPECT_EQ(unlabelled.at("reason"), json::value("math: the label is missing"));
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Score, ATypeThatCannotWorkIsAnErrorThatNamesTheLine) {
  const auto says = [](const char* type, const char* line) {
    return refusal([&] { scored(type, line); });
  };
  EXPECT_THAT(says("", R"({"response": ""})"), HasSubstr("in, line 1: no reward type is given"));
  EXPECT_THAT(says("math", R"({"response": "", "metadata": {"rm_type": 5}})"),
              HasSubstr("in, line 1: rm_type 5: should be a string"));
  EXPECT_THAT(says("math", R"({"response": "", "metadata": {"rm_type": "mth"}})"),
              HasSubstr("in, line 1: rm_type mth: unknown"));
  EXPECT_THAT(says("math", R"({"response": "", "metadata": {"rm_type": "boxed_remote_rm"}})"),
              HasSubstr("in, line 1: rm_type boxed_remote_rm: needs --rm-url"));
}

/// The exit code for a file with this content, and what goes to standard error.
std::pair<int, std::string> run(const std::string& content) {
  const auto path = std::filesystem::path(testing::TempDir()) / "score_test.jsonl";
  std::ofstream(path, std::ios::binary) << content;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  int code = 2;
  const std::string problem = refusal([&] {
    const std::vector<std::string> arguments{"--rm-type", "math", path.string()};
    code = score(arguments);
  });
  testing::internal::GetCapturedStdout();
  return {code, testing::internal::GetCapturedStderr() + problem};
}

TEST(Score, TheExitCodeSaysWhetherEveryLineHasAScore) {
  const std::string good = "\xef\xbb\xbf{\"response\": \"\", \"label\": 4}\n";
  EXPECT_EQ(run(good).first, 0);
  EXPECT_EQ(run(good + "{\"response\": \"\"}\n").first, 1);
  EXPECT_THAT(run(good + "{\"response\": \"\"}\n").second, HasSubstr("1 without a score"));
}

TEST(Score, AServerThatIsNotThereIsToldBeforeTheFirstLine) {
  const auto says = [](const std::string& type, const std::string& url) {
    const std::vector<std::string> arguments{"--rm-type", type, "--rm-url", url, "no-such-file"};
    return refusal([&] { score(arguments); });
  };
  EXPECT_THAT(says("remote_rm", "http://127.0.0.1:1/judge?token=5ec2e7"),
              HasSubstr("--rm-url: cannot connect to 127.0.0.1:1: Connection refused"));
  EXPECT_THAT(says("boxed_remote_rm", "judge:80"),
              HasSubstr("--rm-url: judge:80: only http:// works"));
  EXPECT_THAT(says("math", "http://127.0.0.1:1/"), HasSubstr("no-such-file"));
}

TEST(Score, ItsOwnFlagsBehindTheSignAreRefusedByName) {
  const auto says = [](std::vector<std::string> behind) {
    std::vector<std::string> arguments{"no-such-file", "--"};
    arguments.insert(arguments.end(), behind.begin(), behind.end());
    return refusal([&] { score(arguments); });
  };
  EXPECT_EQ(says({"--rm-type", "math"}), "--rm-type: is a flag of slime score; write it before --");
  EXPECT_THAT(says({"--rows", "--lr", "1", "--reward_key=acc"}),
              AllOf(HasSubstr("--rows: is a flag"), HasSubstr("--reward-key: is a flag"),
                    Not(HasSubstr("--lr"))));
  EXPECT_THAT(says({"--rollout-temperature", "0.5", "--own-weight", "-1"}),
              HasSubstr("needs --custom-rm-path"));
}

/// Sizes of the batches of lines whose prompts are the letters of `prompts`.
std::vector<std::size_t> batches(const std::string& prompts, std::size_t size, bool whole_groups) {
  std::string text;
  for (const char prompt : prompts)
    text += std::string(R"({"response": "x", "prompt": ")") + prompt + "\"}\n";
  std::istringstream stream(text);
  JsonLines input(stream, "in");
  ScoreLines lines(input, size, whole_groups);
  std::vector<std::size_t> sizes;
  int64_t ordinal = 0;
  for (auto batch = lines.next(); !batch.empty(); batch = lines.next()) {
    for (const ScoreLine& line : batch) {
      EXPECT_EQ(line.where, "in, line " + std::to_string(ordinal + 1));
      EXPECT_EQ(line.ordinal, ordinal++);
    }
    sizes.push_back(batch.size());
  }
  return sizes;
}

TEST(Score, LinesComeInBatchesThatEndWithAGroupWhereGroupsAreScored) {
  using Sizes = std::vector<std::size_t>;
  EXPECT_EQ(batches("aaabb", 2, false), (Sizes{2, 2, 1}));
  EXPECT_EQ(batches("aaabb", 2, true), (Sizes{3, 2}));
  EXPECT_EQ(batches("abc", 2, true), (Sizes{2, 1}));
  EXPECT_EQ(batches("aba", 1, true), (Sizes{1, 1, 1})) << "lines of a prompt follow one another";
}

TEST(Score, AFileWithoutLinesIsAnError) {
  EXPECT_THAT(run("\n").second, HasSubstr("score_test.jsonl: no lines; each should be {\"resp"));
}

TEST(Score, ALineOfAnotherFormIsAConfigurationErrorThatNamesIt) {
  for (const auto& [line, says] :
       {std::pair{R"({"label": "4"})", "in, line 1: response is missing; it must be a string"},
        {R"({"response": 4})", "in, line 1: response must be a string, not 4"},
        {R"({"response": "", "prompt": ["a"]})",
         "in, line 1: prompt must be a string or a list of messages (objects), not a list"},
        {R"({"response": "", "metadata": []})",
         "in, line 1: metadata must be an object, not []"}}) {
    try {
      scored("math", line);
      ADD_FAILURE() << line;
    } catch (const ConfigError& error) {
      EXPECT_STREQ(error.what(), says);
    }
  }
}

}  // namespace
}  // namespace slime::cli
