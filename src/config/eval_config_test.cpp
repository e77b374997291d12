#include "config/eval_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/golden_test.h"

namespace slime::config {
namespace {

/// The arguments that all golden cases share.
json::object shared_arguments() {
  const json::value cases = read_json_file(SLIME_SOURCE_DIR "/tests/golden/eval_config.json");
  for (const json::value& value : cases.as_array()) {
    if (value.at("name") == "_argument_defaults") return value.at("inputs").at("args").as_object();
  }
  throw BugError("the golden file has the case _argument_defaults");
}

/// The files leave out what says nothing.
json::object without_empty(json::object set) {
  for (auto it = set.begin(); it != set.end();) {
    const json::value& value = it->value();
    const bool says_nothing = value.is_null() || (value.is_array() && value.get_array().empty()) ||
                              (value.is_object() && value.get_object().empty());
    it = says_nothing ? set.erase(it) : it + 1;
  }
  return set;
}

GOLDEN_TEST(EvalConfig, "eval_config.json") {
  const json::object& params = c.at("params").as_object();
  const json::object& inputs = c.at("inputs").as_object();
  const json::object& expected = c.at("expected").as_object();
  if (inputs.contains("sample_metadata")) {
    EXPECT_EQ(
        eval_metadata(inputs.at("sample_metadata"), std::string(params.at("rm_type").as_string()),
                      params.at("metadata_overrides").as_object()),
        expected.at("metadata").as_object());
    return;
  }
  json::object arguments = shared_arguments();
  if (!params.contains("args")) {  // the shared arguments themselves
    EXPECT_EQ(arguments, inputs.at("args").as_object());
    return;
  }
  for (const auto& member : params.at("args").as_object()) arguments[member.key()] = member.value();
  const auto resolve = [&] {
    return resolve_eval_sets(inputs.at("datasets"), inputs.at("defaults").as_object(), arguments,
                             "eval");
  };
  if (expected.contains("error")) {
    EXPECT_THROW(resolve(), ConfigError);
    return;
  }
  json::array sets;
  for (json::object& set : resolve()) sets.push_back(without_empty(std::move(set)));
  EXPECT_EQ(sets, expected.at("datasets").as_array());
}

RunConfig config_with(const std::string& yaml) {
  const auto path = std::filesystem::path(testing::TempDir()) / "eval_config_test.yaml";
  std::ofstream(path) << yaml;
  RunConfig config;
  config.eval_config = path.string();
  config.rollout_max_response_len = 64;
  config.label_key = "answer";
  return config;
}

TEST(EvalConfig, EntriesWinOverDefaultsAndThoseOverFlags) {
  const auto sets = eval_sets_of(config_with(
      "eval:\n  defaults: {temperature: 0.6, stop: [END]}\n  datasets:\n"
      "    - {name: a, path: a.jsonl, rm_type: gpqa, n_samples_per_eval_prompt: 4}\n"
      "    - {name: b, path: b.jsonl, temperature: 0, max_response_len: 8, label_key: null}\n"));
  ASSERT_EQ(sets.size(), 2U);
  EXPECT_EQ(sets[0].temperature, 0.6);
  EXPECT_EQ(sets[0].stop, std::vector<std::string>{"END"});
  EXPECT_EQ(sets[0].n_samples, 4);
  EXPECT_EQ(sets[0].rm_type, "gpqa");
  EXPECT_EQ(sets[0].label_key, "answer");
  EXPECT_EQ(sets[0].max_response_len, 64);
  EXPECT_EQ(sets[1].temperature, 0);
  EXPECT_EQ(sets[1].max_response_len, 8);
  EXPECT_EQ(sets[1].label_key, "");
}

TEST(EvalConfig, SaysEverythingThatIsWrongWithItsFile) {
  const RunConfig config = config_with(
      "datasets:\n  a: {path: a.jsonl, top_p: 2, temperature: hot}\n  b: {temperature: -1, "
      "stop_token_ids: [x]}\n");
  try {
    eval_sets_of(config);
    FAIL();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    for (const char* says :
         {"data set a: top_p must be in (0, 1], not 2",
          "data set a: temperature must be a number from 0 to 1000000, not \"hot\"",
          "data set b: path is missing; it must be a string",
          "data set b: temperature must be a number from 0 to 1000000, not -1",
          "data set b: stop_token_ids[0] must be a whole number from "}) {
      EXPECT_NE(text.find(says), std::string::npos) << says << "\nin\n" << text;
    }
  }
}

TEST(EvalConfig, WhatTheEngineWouldRefuseIsRefusedBeforeAnythingIsScored) {
  const struct {
    const char* setting;
    const char* says;
  } cases[] = {{"temperature: 1.0e7", "must be a number from 0 to 1000000, not 10000000"},
               {"temperature: 1.0e+300", "must be a number from 0 to 1000000, not 1e+300"},
               {"repetition_penalty: 1.0e-9", "must be a number from 1e-06 to 2, not "},
               {"repetition_penalty: 2.5", "must be a number from 1e-06 to 2, not "},
               {"min_new_tokens: -1", "must be a whole number of at least 0, not -1"}};
  const std::string data = "datasets: [{name: a, path: a.jsonl, ";
  for (const auto& [setting, says] : cases) {
    try {
      eval_sets_of(config_with(data + setting + "}]\n"));
      ADD_FAILURE() << setting;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(
      eval_sets_of(config_with(data + "temperature: 1.0e6, repetition_penalty: 1.0e-6}]\n")).size(),
      1U);
}

TEST(EvalConfig, AMistypedKeyIsNamedWithTheNearestOne) {
  try {
    eval_sets_of(config_with("datasets: [{name: a, path: a.jsonl, temprature: 1}]\n"));
    FAIL();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("data set a: temprature is unknown; did you mean temperature?"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("known are name, path, n_samples_per_eval_prompt"), std::string::npos);
  }
}

TEST(EvalConfig, KeysThatNothingReadsAreReported) {
  const auto sets =
      eval_sets_of(config_with("datasets: [{name: a, path: a.jsonl, eval_task_timeout: 3}]\n"));
  EXPECT_EQ(sets.at(0).without_effect, std::vector<std::string>{"eval_task_timeout"});
}

}  // namespace
}  // namespace slime::config
