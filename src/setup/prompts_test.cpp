#include "setup/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "buffer/known_schema.h"
#include "config/flag_table.h"
#include "config/users_functions.h"
#include "core/error.h"

namespace slime::setup {
namespace {

using testing::HasSubstr;
using testing::Not;

ModelText tiny_text() {
  return load_model_text(SLIME_SOURCE_DIR "/tests/fixtures/tokenizers/tiny_smollm", false, {});
}

std::string file_of_rows() {
  const auto path = std::filesystem::path(testing::TempDir()) / "prompts_test.jsonl";
  std::ofstream(path) << R"({"input": "2+3?", "metadata": {"rm_type": "boxed_random"}})"
                      << "\n"
                      << R"({"input": "2+4?", "metadata": {"rm_type": "mth"}})"
                      << "\n"
                      << R"({"input": "2+5?", "metadata": {"rm_type": ["math"]}})"
                      << "\n"
                      << R"({"input": "2+6?", "metadata": {"rm_type": "remote_rm"}})"
                      << "\n";
  return path.string();
}

std::string problems_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

config::RunConfig scored_run() {
  config::RunConfig config;
  config.rm_type = "random";  // of the rows that name none
  config.prompt_data = {file_of_rows()};
  return config;
}

TEST(DataFormat, TakesTheNamesOfTheKnownSchemas) {
  EXPECT_EQ(config::find_flag("--data-format")->choices, buffer::known_formats());
}

TEST(Prompts, ARowThatAsksForARewardThatDoesNotExistIsNamedWithFileAndLine) {
  const ModelText text = tiny_text();
  const config::RunConfig config = scored_run();
  const std::string says = problems_of([&] { load_prompts(config, text); });
  EXPECT_THAT(says, HasSubstr("prompts_test.jsonl, line 2: metadata: rm_type mth: unknown; there"));
  EXPECT_THAT(says, HasSubstr("line 3: metadata: rm_type [\"math\"]: should be a string"));
  EXPECT_THAT(says, HasSubstr("line 4: metadata: rm_type remote_rm: needs --rm-url"));
  EXPECT_THAT(says, Not(HasSubstr("line 1:")));
}

TEST(Prompts, AStreamNamesABadRowAmongItsFirstBeforeTheRun) {
  const ModelText text = tiny_text();
  const config::RunConfig config = scored_run();
  EXPECT_THAT(problems_of([&] { stream_prompts(config, text); }),
              HasSubstr("line 2: metadata: rm_type mth: unknown"));
}

config::RunConfig labelled_run() {
  const auto path = std::filesystem::path(testing::TempDir()) / "prompts_test_labels.jsonl";
  std::ofstream(path) << R"({"input": "2+3?", "label": "5"})"
                      << "\n"
                      << R"({"input": "2+4?", "label": null})"
                      << "\n"
                      << R"({"input": "2+5?", "label": "", "metadata": {"rm_type": "random"}})"
                      << "\n"
                      << R"({"input": "2+6?", "label": "eight", "metadata": {"rm_type": "dapo"}})"
                      << "\n";
  config::RunConfig config;
  config.rm_type = "math";
  config.label_key = "label";
  config.prompt_data = {path.string()};
  return config;
}

TEST(Prompts, RowsWhoseLabelTheirRewardCannotUseAreAllNamedBeforeAnythingIsGenerated) {
  const ModelText text = tiny_text();
  config::RunConfig config = labelled_run();
  const std::string says = problems_of([&] { load_prompts(config, text); });
  EXPECT_THAT(says, HasSubstr("labels.jsonl, line 2: math: the label is missing"));
  EXPECT_THAT(says, HasSubstr("line 4: dapo: the label \"eight\" is not a number"));
  EXPECT_THAT(says, Not(HasSubstr("line 1:")));
  EXPECT_THAT(says, Not(HasSubstr("line 3:")));

  config::EvalSetConfig set;
  set.path = config.prompt_data.front();
  set.input_key = "input";
  set.label_key = "label";
  set.metadata_key = "metadata";
  EXPECT_THAT(problems_of([&] { load_eval_prompts(config, text, set); }),
              HasSubstr("line 2: math: the label is missing"));

  config.no_rm_strict = true;
  EXPECT_THAT(problems_of([&] { load_prompts(config, text); }), Not(HasSubstr("line 2:")));
  config.debug_train_only = true;  // nothing is scored
  EXPECT_EQ(load_prompts(config, text).size(), 4);
}

TEST(Prompts, AMessageWithoutARoleIsNoPrompt) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "prompts_test_roles";
  std::filesystem::remove_all(folder);
  std::filesystem::copy(SLIME_SOURCE_DIR "/tests/fixtures/tokenizers/tiny_smollm", folder);
  std::ofstream(folder / "chat_template.jinja")
      << "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
  const ModelText text = load_model_text(folder.string(), true, {});
  const buffer::RenderFn render = render_prompts(config::RunConfig(), text);
  const json::array messages{json::object{{"from", "human"}, {"value", "2+3?"}}};
  EXPECT_THAT(problems_of([&] { render(messages, {}); }),
              HasSubstr("message 0 has no \"role\"; it has from, value"));
  EXPECT_THAT(render({json::object{{"role", "user"}, {"content", "2+3?"}}}, {}), HasSubstr("2+3?"));
  std::filesystem::remove_all(folder);
}

TEST(Prompts, MessagesWithoutATemplateAreRefusedWhereNobodyElseMakesATextOfThem) {
  const ModelText text = tiny_text();
  const auto path = std::filesystem::path(testing::TempDir()) / "prompts_test_messages.jsonl";
  std::ofstream(path) << R"({"input": [{"role": "user", "content": "2+3?"}]})"
                      << "\n";
  config::RunConfig config;
  config.rm_type = "random";
  config.prompt_data = {path.string()};
  EXPECT_THAT(problems_of([&] { load_prompts(config, text); }),
              HasSubstr("line 1: the prompt is a list of messages, add --apply-chat-template"));
  config::EvalSetConfig set;
  set.path = path.string();
  set.input_key = "input";
  config.eval_interval = 1;
  config.eval_function_path = config.rollout_function_path;  // as a run completes it
  EXPECT_THAT(problems_of([&] { load_eval_prompts(config, text, set); }),
              HasSubstr("line 1: the prompt is a list of messages, add --apply-chat-template"));
  config.custom_generate_function_path = "my.generate";
  EXPECT_EQ(load_prompts(config, text).size(), 1);
  EXPECT_EQ(load_eval_prompts(config, text, set).size(), 1);
}

TEST(Prompts, ARewardThatDoesNotExistIsSaidOnceAndNotOfEachRow) {
  const ModelText text = tiny_text();
  config::RunConfig config = labelled_run();
  config.rm_type = "maths";
  const std::string says = problems_of([&] { load_prompts(config, text); });
  EXPECT_THAT(says, HasSubstr("--rm-type maths: unknown; there are"));
  EXPECT_THAT(says, Not(HasSubstr("line 1")));
}

TEST(Prompts, TheReferencePackageNeedsALabelToo) {
  const ModelText text = tiny_text();
  config::RunConfig config = labelled_run();
  config.rm_type = "math_verify";
  config.custom_rm_path = std::string(config::kMathVerifyReward);
  const std::string says = problems_of([&] { load_prompts(config, text); });
  EXPECT_THAT(says, HasSubstr("labels.jsonl, line 2: math_verify: the label is missing"));
  EXPECT_THAT(says, HasSubstr("line 3: math_verify: the label is empty"));
  EXPECT_THAT(says, Not(HasSubstr("line 4:")));
}

TEST(Prompts, WithoutALabelKeyEveryRowLacksItsLabelAndTheFlagIsNamed) {
  const ModelText text = tiny_text();
  config::RunConfig config = labelled_run();
  config.label_key.clear();
  EXPECT_THAT(problems_of([&] { load_prompts(config, text); }),
              HasSubstr("line 1: math: the label is missing (--label-key names its field)"));
}

TEST(Prompts, RowsThatAreTrainedOnNeedNoFieldOfLabels) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "prompts_test_templated";
  std::filesystem::remove_all(folder);
  std::filesystem::copy(SLIME_SOURCE_DIR "/tests/fixtures/tokenizers/tiny_smollm", folder);
  std::ofstream(folder / "chat_template.jinja")
      << "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
  const ModelText text = load_model_text(folder.string(), true, {});
  config::RunConfig config = labelled_run();
  config.rm_type.clear();
  config.loss_type = "sft_loss";
  config.hf_checkpoint = SLIME_SOURCE_DIR "/tests/fixtures/models/qwen3";
  config.label_key = "answer";  // of no row
  EXPECT_THAT(problems_of([&] { load_prompts(config, text); }), Not(HasSubstr("answer")));
  config.custom_rollout_log_function_path = "mine.log";  // which sees samples
  EXPECT_THAT(problems_of([&] { load_prompts(config, text); }), HasSubstr("no field \"answer\""));
  std::filesystem::remove_all(folder);
}

TEST(Prompts, AStreamGoesOnPastALabelThatCannotBeUsed) {
  const ModelText text = tiny_text();
  config::RunConfig config = labelled_run();
  config.streaming_data = true;
  const auto stream = stream_prompts(config, text);
  for (int i = 0; i < 4; ++i) stream->next();
}

TEST(Prompts, RowsThatAreNotScoredMayAskForAnything) {
  const ModelText text = tiny_text();
  config::RunConfig config = scored_run();
  config.rm_type.clear();
  EXPECT_EQ(load_prompts(config, text).size(), 4);
}

TEST(Prompts, TheTypeOfAnEvaluationDataSetWinsOverItsRows) {
  const ModelText text = tiny_text();
  const config::RunConfig config = scored_run();
  config::EvalSetConfig set;
  set.path = config.prompt_data.front();
  set.input_key = "input";
  set.metadata_key = "metadata";
  EXPECT_THAT(problems_of([&] { load_eval_prompts(config, text, set); }), HasSubstr("line 2"));
  set.name = "math";
  set.rm_type = "mth";
  EXPECT_THAT(problems_of([&] { load_eval_prompts(config, text, set); }),
              HasSubstr("evaluation data set math: rm_type mth: unknown"));
  set.rm_type = "";
  set.metadata_overrides = {{"rm_type", "remote_rm"}};
  EXPECT_THAT(problems_of([&] { load_eval_prompts(config, text, set); }),
              HasSubstr("needs --rm-url"));
  set.metadata_overrides.clear();
  set.rm_type = "random";
  EXPECT_EQ(load_eval_prompts(config, text, set).size(), 4);
}

TEST(Prompts, ATokenThatTheModelHasNoRowForIsNamed) {
  ModelText text = tiny_text();
  const std::vector<TokenId> ids{3, 5, 2};
  EXPECT_EQ(missing_row(text, ids), std::nullopt);
  text.num_ids = text.tokenizer->vocab_size();
  EXPECT_EQ(missing_row(text, ids), std::nullopt);
  text.num_ids = 5;
  EXPECT_THAT(*missing_row(text, ids), testing::HasSubstr("(5); the tokenizer has"));
  EXPECT_EQ(missing_row(text, std::vector<TokenId>{4, 0}), std::nullopt);
}

TEST(Prompts, AVariableThatNoTemplateLooksUpIsToldWithTheNearestName) {
  ModelText text = tiny_text();
  text.chat = text::ChatTemplate::from_source(
      "{% for m in messages %}{% if enable_thinking %}+{% endif %}{{ m.content }}{% endfor %}", {},
      "test");
  config::RunConfig config;
  config.apply_chat_template_kwargs = R"({"enable_thinkin": false, "enable_thinking": true,)"
                                      R"( "zzz": 1, "tools": []})";
  EXPECT_TRUE(unread_variables(config, text).empty());  // nothing is rendered
  config.apply_chat_template = true;
  const std::string flag = "--apply-chat-template-kwargs: ";
  const std::string why = " has no effect: the model's chat template looks up no such name";
  EXPECT_EQ(unread_variables(config, text),
            (std::vector<std::string>{
                flag + "\"enable_thinkin\"" + why + "; did you mean \"enable_thinking\"?",
                flag + "\"zzz\"" + why}));
}

TEST(Prompts, AStopTokenBeyondTheModelsRowsIsRefused) {
  ModelText text = tiny_text();
  text.num_ids = 100;  // rows of the embedding; the tokenizer has more
  const std::vector<int64_t> ids{5, 99, 100, 5000};
  const std::string says =
      problems_of([&] { check_stop_tokens("--rollout-stop-token-ids", ids, text); });
  EXPECT_THAT(says, HasSubstr("--rollout-stop-token-ids 100: the model has 100 tokens, 0 to 99"));
  EXPECT_THAT(says, HasSubstr("--rollout-stop-token-ids 5000"));
  EXPECT_THAT(says, Not(HasSubstr(" 99:")));
}

TEST(Prompts, ARowWhoseRuleHasNoFieldOfTheRewardKeyIsRefused) {
  config::RunConfig config;
  config.rm_type = "dapo";
  config.reward_key = "score";
  const auto path = std::filesystem::path(testing::TempDir()) / "reward_key_test.jsonl";
  std::ofstream(path) << R"({"input": "1?", "label": "1"})"
                      << "\n"
                      << R"({"input": "2?", "label": "2", "metadata": {"rm_type": "math"}})"
                      << "\n";
  config.prompt_data = {path.string()};
  config.label_key = "label";
  const ModelText text = tiny_text();
  const std::string says = problems_of([&] { load_prompts(config, text); });
  EXPECT_THAT(says, HasSubstr("line 2: --reward-key score: --rm-type math gives a number"));
  EXPECT_THAT(says, Not(HasSubstr("line 1:")));
}

}  // namespace
}  // namespace slime::setup
