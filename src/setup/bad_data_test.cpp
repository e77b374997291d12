/// What users hear of data files that cannot work: each message names the file, where in it, and
/// what would be right.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "buffer/dataset.h"
#include "config/eval_config.h"
#include "config/run_config.h"
#include "core/error.h"
#include "report/rollout_files.h"

namespace slime::setup {
namespace {

enum class Kind { kPrompts, kPairs, kRollouts, kEvaluation };

struct BadData {
  const char* name;  // of the test
  Kind kind;
  std::string content;
  std::vector<std::string> says;
};

void PrintTo(const BadData& data, std::ostream* out) { *out << data.name; }

const char* file_name_of(Kind kind) {
  return kind == Kind::kEvaluation ? "bad_data.yaml" : "bad_data.jsonl";
}

void load(Kind kind, const std::string& path) {
  if (kind == Kind::kRollouts) {
    report::read_samples(path);
    return;
  }
  if (kind == Kind::kEvaluation) {
    config::RunConfig config;
    config.eval_config = path;
    config::eval_sets_of(config);
    return;
  }
  buffer::DatasetConfig config;
  config.paths = {path};
  config.keys = {.input = "input", .label = "label", .metadata = "metadata", .tools = "tools"};
  if (kind == Kind::kPairs)
    config.keys = {.input = "input", .chosen = "chosen", .rejected = "rejected"};
  buffer::Dataset::load(config, nullptr, [](std::string_view text) {
    return std::vector<TokenId>(text.begin(), text.end());
  });
}

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

class BadDataFile : public testing::TestWithParam<BadData> {};

TEST_P(BadDataFile, IsRefusedWithFilePlaceAndWhatWouldWork) {
  const BadData& data = GetParam();
  const std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / data.name / file_name_of(data.kind);
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << data.content;
  const std::string message = message_of([&] { load(data.kind, path.string()); });
  EXPECT_NE(message.find(path.string()), std::string::npos) << "said: " << message;
  for (const std::string& part : data.says)
    EXPECT_NE(message.find(part), std::string::npos) << "said: " << message;
  std::filesystem::remove_all(path.parent_path());
}

const std::string kGoodRow = R"({"input":"1+1","label":"2"})"
                             "\n";
const std::string kSample = R"("tokens":[1,2,3],"response_length":2,"status":"completed")";

std::string sample_with(const std::string& fields) { return "{" + kSample + "," + fields + "}\n"; }

INSTANTIATE_TEST_SUITE_P(
    Prompts, BadDataFile,
    testing::Values(
        BadData{"Empty", Kind::kPrompts, "", {"no rows"}},
        BadData{"BlankLinesOnly", Kind::kPrompts, "\n \n\r\n", {"no rows"}},
        BadData{"CutShort",
                Kind::kPrompts,
                kGoodRow + R"({"input":"x","lab)",
                {"line 2: not valid JSON"}},
        BadData{"ObjectOverSeveralLines",
                Kind::kPrompts,
                "{\n\"input\": \"1+1\",\n\"label\": \"2\"\n}\n",
                {"its JSON goes on behind line 1; each row stands on one line (jq -c . "}},
        BadData{"ListOverSeveralLines",
                Kind::kPrompts,
                "\n[{\"input\": \"1+1\", \"label\": \"2\"},\n]\n",
                {"its JSON goes on behind line 2", "(jq -c '.[]' "}},
        BadData{"SingleQuotes", Kind::kPrompts, "{'input':'x'}\n", {"line 1: not valid JSON"}},
        BadData{"TrailingComma",
                Kind::kPrompts,
                R"({"input":"x","label":"y",})",
                {"line 1: not valid JSON"}},
        BadData{"NotANumber",
                Kind::kPrompts,
                R"({"input":"x","label":NaN})",
                {"line 1: not valid JSON"}},
        BadData{"PlainText", Kind::kPrompts, "What is 1+1?\n", {"line 1: not valid JSON"}},
        BadData{"TwoObjectsInALine",
                Kind::kPrompts,
                R"({"input":"x","label":1}{"input":"y"})",
                {"line 1: text after the JSON value"}},
        BadData{"Comment", Kind::kPrompts, "// prompts\n" + kGoodRow, {"line 1: not valid JSON"}},
        BadData{"InvalidUtf8",
                Kind::kPrompts,
                kGoodRow + "{\"input\":\"\xff\",\"label\":1}\n",
                {"line 2: not valid JSON"}},
        BadData{"CutUtf8",
                Kind::kPrompts,
                "{\"input\":\"\xe2\x82\",\"label\":1}\n",
                {"line 1: not valid JSON"}},
        BadData{"LoneSurrogate",
                Kind::kPrompts,
                R"({"input":"\ud83d","label":1})",
                {"line 1: not valid JSON"}},
        BadData{
            "Utf16", Kind::kPrompts, std::string("\xff\xfe{\0}\0", 6), {"line 1: not valid JSON"}},
        BadData{"ControlCharacter",
                Kind::kPrompts,
                "{\"input\":\"a\tb\",\"label\":1}\n",
                {"line 1: not valid JSON"}},
        BadData{"DeepNesting",
                Kind::kPrompts,
                R"({"label":1,"input":)" + std::string(100, '[') + std::string(100, ']') + "}",
                {"line 1: not valid JSON"}},
        BadData{"AListOfRows",
                Kind::kPrompts,
                R"([{"input":"x","label":1}])",
                {"line 1: a row should be a JSON object"}},
        BadData{
            "ANumber", Kind::kPrompts, kGoodRow + "7\n", {"line 2: a row should be a JSON object"}},
        BadData{"ANull", Kind::kPrompts, "null\n", {"line 1: a row should be a JSON object"}},
        BadData{"NoInput",
                Kind::kPrompts,
                R"({"prompt":"x","label":1})",
                {"line 1: no field \"input\" (--input-key)", "the row has prompt, label"}},
        BadData{"NoLabel",
                Kind::kPrompts,
                R"({"input":"x","answer":1})",
                {"line 1: no field \"label\" (--label-key)", "the row has input, answer"}},
        BadData{"NoMessages",
                Kind::kPrompts,
                kGoodRow + R"({"input":[],"label":1})",
                {"line 2: field \"input\" (--input-key) is an empty list", "at least one"}},
        BadData{"EmptyObject", Kind::kPrompts, "{}\n", {"line 1", "the row is empty"}},
        BadData{"InputIsAFraction",
                Kind::kPrompts,
                R"({"input":7.5,"label":1})",
                {"\"input\" (--input-key) should be a string or a list of messages"}},
        BadData{"InputIsAListOfStrings",
                Kind::kPrompts,
                R"({"input":["x"],"label":1})",
                {"should be a string or a list of messages"}},
        BadData{"InputIsAnEmptyList",
                Kind::kPrompts,
                R"({"input":[],"label":1})",
                {"should be a string or a list of messages"}},
        BadData{"InputIsEmpty",
                Kind::kPrompts,
                R"({"input":"","label":1})",
                {"line 1: the prompt is empty"}},
        BadData{"MetadataIsAString",
                Kind::kPrompts,
                R"({"input":"x","label":1,"metadata":"m"})",
                {"\"metadata\" (--metadata-key) should be an object"}},
        BadData{"ToolsAreANumber",
                Kind::kPrompts,
                R"({"input":"x","label":1,"tools":7})",
                {"\"tools\" (--tool-key) should be a list of tools"}},
        BadData{"ToolsAreBrokenJson",
                Kind::kPrompts,
                R"({"input":"x","label":1,"tools":"[{"})",
                {"line 1: field \"tools\": not valid JSON"}},
        BadData{"SeveralLines",
                Kind::kPrompts,
                "{]\n" + kGoodRow + "[]\n",
                {"line 1: not valid JSON", "line 3: a row should be a JSON object"}},
        BadData{"HugeLine",
                Kind::kPrompts,
                std::string((std::size_t{64} << 20) + 2, 'x'),
                {"line 1: longer than 64 MiB"}},
        BadData{"NoChosen",
                Kind::kPairs,
                R"({"input":"x","rejected":"n"})",
                {"line 1: no field \"chosen\" (--chosen-key)"}},
        BadData{"NoRejected",
                Kind::kPairs,
                R"({"input":"x","chosen":"y"})",
                {"line 1: no field \"rejected\" (--rejected-key)"}},
        BadData{"ChosenIsANumber",
                Kind::kPairs,
                R"({"input":"x","chosen":1,"rejected":"n"})",
                {"\"chosen\" (--chosen-key) should be a string or a list of messages"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Rollouts, BadDataFile,
    testing::Values(
        BadData{"EmptyRollout", Kind::kRollouts, "", {"holds no samples"}},
        BadData{"BrokenRollout",
                Kind::kRollouts,
                sample_with(R"("index":1)") + "{",
                {"line 2: not valid JSON"}},
        BadData{"RolloutOfAList", Kind::kRollouts, "[1]\n", {"line 1: should be an object"}},
        BadData{"NanReward",
                Kind::kRollouts,
                sample_with(R"("reward":NaN)"),
                {"line 1: not valid JSON"}},
        BadData{"TokensAreText",
                Kind::kRollouts,
                R"({"tokens":"abc","status":"completed"})",
                {"line 1: tokens must be a list of whole numbers, not \"abc\""}},
        BadData{"TokensAreFractions",
                Kind::kRollouts,
                R"({"tokens":[1.5],"status":"completed"})",
                {"tokens[0] must be a whole number from"}},
        BadData{"ResponseTooLong",
                Kind::kRollouts,
                R"({"tokens":[1],"response_length":2,"status":"completed"})",
                {"response_length must be from 0 to the number of tokens (1), not 2"}},
        BadData{"MaskTooShort",
                Kind::kRollouts,
                sample_with(R"("loss_mask":[1])"),
                {"loss_mask must be as long as the response (2), not 1"}},
        BadData{"LogProbsTooLong",
                Kind::kRollouts,
                sample_with(R"("rollout_log_probs":[-1,-1,-1])"),
                {"rollout_log_probs must be as long as the response (2), not 3"}},
        BadData{"NoStatus",
                Kind::kRollouts,
                R"({"tokens":[1,2],"response_length":1})",
                {"status is missing; it must be one of pending, completed"}},
        BadData{"UnknownStatus",
                Kind::kRollouts,
                R"({"tokens":[1],"status":"finished"})",
                {"status must be one of pending, completed"}},
        BadData{"VersionsOfWords",
                Kind::kRollouts,
                sample_with(R"("weight_versions":[["a",2]])"),
                {"weight_versions must be a list of [version, tokens]"}},
        BadData{"OffsetsThatFall",
                Kind::kRollouts,
                sample_with(R"("rollout_top_p_token_ids":[1,2],)"
                            R"("rollout_top_p_token_offsets":[0,3,2])"),
                {"rollout_top_p_token_offsets must be 3 rising numbers"}},
        BadData{"RemovedIsAWord",
                Kind::kRollouts,
                sample_with(R"("remove_sample":"no")"),
                {"remove_sample must be true or false, not \"no\""}},
        BadData{"MetadataIsAList",
                Kind::kRollouts,
                sample_with(R"("metadata":[])"),
                {"metadata must be an object, not []"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Evaluation, BadDataFile,
    testing::Values(
        BadData{"BrokenYaml", Kind::kEvaluation, "eval: [a\nb: c", {"--eval-config"}},
        BadData{"NoDatasets",
                Kind::kEvaluation,
                "eval: {defaults: {top_p: 1}}",
                {"should be a map with datasets"}},
        BadData{"EmptyYaml", Kind::kEvaluation, "", {"--eval-config"}},
        BadData{
            "NoName", Kind::kEvaluation, "eval: {datasets: [{path: x.jsonl}]}", {"needs a name"}},
        BadData{"SameNameTwice",
                Kind::kEvaluation,
                "eval: {datasets: [{name: a, path: x.jsonl}, {name: a, path: y.jsonl}]}",
                {"data set a: this name is taken"}},
        BadData{"DefaultsAreAList",
                Kind::kEvaluation,
                "eval: {datasets: [], defaults: [1]}",
                {"defaults should be a map"}},
        BadData{
            "NoDataSetAtAll", Kind::kEvaluation, "eval: {datasets: []}", {"there is no data set"}}),
    [](const auto& info) { return info.param.name; });

TEST(BadDataFile, ADirectoryIsNoFile) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "folder.jsonl";
  std::filesystem::create_directories(path);
  const std::string message = message_of([&] { load(Kind::kPrompts, path.string()); });
  EXPECT_NE(message.find(path.string() + ": is a directory"), std::string::npos) << message;
  std::filesystem::remove(path);
}

TEST(BadDataFile, AMissingFileIsNamed) {
  const std::string message = message_of([&] { load(Kind::kPrompts, "/nowhere/prompts.jsonl"); });
  EXPECT_NE(message.find("/nowhere/prompts.jsonl: cannot be opened"), std::string::npos);
}

TEST(BadDataFile, ASliceOutOfRangeIsNamed) {
  const std::string message =
      message_of([&] { load(Kind::kPrompts, "prompts.jsonl@[0:99999999999999999999]"); });
  EXPECT_NE(message.find("is out of range"), std::string::npos) << message;
}

}  // namespace
}  // namespace slime::setup
