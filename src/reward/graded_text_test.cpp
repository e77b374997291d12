#include "reward/graded_text.h"

#include <gtest/gtest.h>

#include <vector>

#include "reward/reward.h"

namespace slime::reward {
namespace {

TEST(GradedText, EndsBeforeTheTokenThatEndedTheTurn) {
  EXPECT_EQ(graded_text("ok<|im_end|>"), "ok");
  EXPECT_EQ(graded_text("ok<|im_end|>\n<|endoftext|>\n"), "ok");
  EXPECT_EQ(graded_text("ok</s>"), "ok");
  EXPECT_EQ(graded_text("ok<end_of_turn>\n"), "ok");
  EXPECT_EQ(graded_text("ok<\xef\xbd\x9c"
                        "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"),
            "ok");
  EXPECT_EQ(graded_text("<|eot_id|>"), "");
}

TEST(GradedText, StaysAsItIsWithoutAMark) {
  EXPECT_EQ(graded_text("ok \n"), "ok \n");
  EXPECT_EQ(graded_text("<|im_end|> ok"), "<|im_end|> ok");
  EXPECT_EQ(graded_text("a < b | c |>"), "a < b | c |>");
  EXPECT_EQ(graded_text("ok<|not a name|>"), "ok<|not a name|>");
  EXPECT_EQ(graded_text(""), "");
}

TEST(GradedText, KnowsTheMarksOfTheModel) {
  const std::vector<std::string> marks{"STOP", ""};
  EXPECT_EQ(graded_text("okSTOP", marks), "ok");
  EXPECT_EQ(graded_text("okSTOP"), "okSTOP");
}

TEST(GradedText, IsWhatEveryTextRuleSees) {
  Sample sample;
  sample.response = "\"ok\"<|im_end|>";
  sample.label = "ok";
  EXPECT_EQ(make_reward("f1")(sample).value(), json::value(1.0));
  sample.metadata = {{"instruction_id_list", json::array{"startend:quotation"}}};
  EXPECT_EQ(make_reward("ifbench")(sample).value(), json::value(1.0));
  sample.metadata = {};
  sample.response = "Answer: 5<eos_of_mine>";
  sample.label = "5";
  EXPECT_EQ(make_reward("dapo", {.end_marks = {"<eos_of_mine>"}})(sample).value().at("score"),
            json::value(1.0));
}

}  // namespace
}  // namespace slime::reward
