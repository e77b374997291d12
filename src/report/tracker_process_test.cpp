#include "report/tracker_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "core/error.h"

namespace slime::report {
namespace {

using testing::HasSubstr;

/// A folder with a module `name` of this text, whose `told` is a file that the test reads.
std::filesystem::path folder_with(const std::string& name, const std::string& text) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "tracker_process_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / (name + ".py"))
      << "import json, os, time\n"
         "told = open(os.path.join(os.path.dirname(__file__), 'told'), 'a', buffering=1)\n"
         "def tell(*words): print(*(json.dumps(w, sort_keys=True) for w in words), file=told)\n"
      << text;
  ::setenv("PYTHONPATH", folder.c_str(), 1);
  return folder;
}

/// `init`: lines of its function of this name.
std::filesystem::path folder_with_wandb(const std::string& init, const std::string& log = "pass") {
  return folder_with("wandb", "def init(**options):\n    " + init +
                                  "\n    tell('init', options)\n"
                                  "def define_metric(*a, **k): pass\n"
                                  "def Histogram(np_histogram): return np_histogram\n"
                                  "def Table(columns, data): return [columns, data]\n"
                                  "def log(record):\n    tell('log', record)\n    " +
                                  log + "\ndef finish(): tell('finish')\n");
}

std::string told(const std::filesystem::path& folder) {
  std::stringstream text;
  text << std::ifstream(folder / "told").rdbuf();
  return text.str();
}

StepDetails some_details() {
  return {.samples = {{.ordinal = 17,
                       .reward = 1.0,
                       .advantage = 0.5,
                       .response_length = 3,
                       .status = "completed",
                       .prompt = "1+1=",
                       .response = "2"}},
          .distributions = {{.name = "rollout/distribution/reward",
                             .min = 0,
                             .max = 1,
                             .limits = {0.5, 1},
                             .counts = {3, 5}}}};
}

class Trackers : public testing::Test {
 protected:
  void TearDown() override {
    if (python_path_) {
      ::setenv("PYTHONPATH", python_path_->c_str(), 1);
    } else {
      ::unsetenv("PYTHONPATH");
    }
  }

  // Of the tests behind this one: folder_with() sets it.
  const std::optional<std::string> python_path_ =
      std::getenv("PYTHONPATH") == nullptr ? std::nullopt
                                           : std::optional<std::string>(std::getenv("PYTHONPATH"));
  TrackerProcess start(const std::string& name) {
    return {name,
            config_,
            "/tmp/runs/sums",
            {{"flags", {{"--lr", "1e-6"}}}},
            [this](const std::string& text) { told_ += text + "\n"; }};
  }
  config::RunConfig config_;
  std::string told_;
};

TEST_F(Trackers, WandbGetsTheRecordsOfTheRun) {
  const auto folder = folder_with_wandb("pass");
  config_.wandb_project = "sums";
  config_.wandb_group = "first";
  config_.wandb_mode = "offline";
  config_.disable_wandb_random_suffix = true;
  {
    TrackerProcess wandb = start("wandb");
    wandb.write(7, with_step_axes({{"rollout/raw_reward", 0.25}}, 7), some_details());
    wandb.write(7, {{"train/grad_norm", std::nan("")}});
  }
  const std::string text = told(folder);
  EXPECT_THAT(
      text,
      HasSubstr(R"("config": {"flags": {"--lr": "1e-6"}}, "dir": "/tmp/runs/sums", )"
                R"("group": "first", "mode": "offline", "name": "first", "project": "sums"})"));
  EXPECT_THAT(text, HasSubstr(R"("rollout/distribution/reward": [[3, 5], [0, 0.5, 1]])"));
  EXPECT_THAT(text,
              HasSubstr(R"("rollout/raw_reward": 0.25, "rollout/samples": [["sample", "status", )"
                        R"("reward", "advantage", "tokens", "prompt", "response"], )"
                        R"([[17, "completed", 1)"));
  EXPECT_THAT(text, HasSubstr(R"("rollout/step": 7})"));
  EXPECT_THAT(text, HasSubstr(R"("log" {"train/grad_norm": NaN})"));
  EXPECT_THAT(text, HasSubstr("finish"));
  EXPECT_EQ(told_, "");
}

TEST_F(Trackers, WandbGetsTheKeyInItsEnvironmentAndNowhereElse) {
  const auto folder = folder_with_wandb(
      "tell('key', os.environ['WANDB_API_KEY'] == 'hunter' + '2')\n"
      "    tell('arguments', open('/proc/self/cmdline').read())");
  config_.wandb_key = "hunter2";
  { TrackerProcess wandb = start("wandb"); }
  EXPECT_THAT(told(folder), HasSubstr("\"key\" true"));
  EXPECT_EQ(told(folder).find("hunter2"), std::string::npos);
}

TEST_F(Trackers, AKeyThatWandbRefusesIsNotInItsWords) {
  folder_with_wandb("raise ValueError('bad key ' + os.environ['WANDB_API_KEY'])");
  config_.wandb_key = "hunter2";
  try {
    start("wandb");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--report-to wandb: ValueError: bad key ***"));
    EXPECT_THAT(error.what(), HasSubstr("SLIME_PYTHON"));
  }
}

TEST_F(Trackers, MlflowGetsSettingsNumbersAtTheirStepsAndSamplesAsFiles) {
  const auto folder =
      folder_with("mlflow", "def __getattr__(name): return lambda *a, **k: tell(name, a, k)\n");
  config_.tracker_run_name = "night";
  ::unsetenv("MLFLOW_TRACKING_URI");
  {
    TrackerProcess mlflow = start("mlflow");
    mlflow.write(7,
                 with_step_axes({{"passrate/pass@1", 0.5},
                                 {"train/loss", 2},
                                 {"train/step", 14},
                                 {"train/nan", std::nan("")}},
                                7),
                 some_details());
  }
  const std::string text = told(folder);
  EXPECT_THAT(text, HasSubstr(R"("set_tracking_uri" ["sqlite:////tmp/runs/mlflow.db"])"));
  EXPECT_THAT(text, HasSubstr(R"("set_experiment" ["slime"])"));
  EXPECT_THAT(text, HasSubstr(R"("start_run" [] {"run_name": "night"})"));
  EXPECT_THAT(text, HasSubstr(R"("log_params" [{"lr": "1e-6"}])"));
  EXPECT_THAT(text, HasSubstr(R"("log_metrics" [{"train/loss": 2}] {"step": 14})"));
  EXPECT_THAT(text, HasSubstr(R"("log_metrics" [{"passrate/pass_1": 0.5}] {"step": 7})"));
  EXPECT_THAT(text, HasSubstr(R"("samples/step_000007.json"])"));
  EXPECT_THAT(text, HasSubstr("end_run"));
}

TEST_F(Trackers, TrackioGetsNumbersAndATableOfSamples) {
  const auto folder = folder_with("trackio",
                                  "def Table(columns, data): return [columns, data]\n"
                                  "def init(**k): tell('init', k)\n"
                                  "def log(row, step): tell('log', row, step)\n"
                                  "def finish(): tell('finish')\n");
  {
    TrackerProcess trackio = start("trackio");
    trackio.write(7, {{"rollout/raw_reward", 0.25}}, some_details());
  }
  const std::string text = told(folder);
  EXPECT_THAT(text, HasSubstr(R"("name": "sums", "project": "slime")"));
  EXPECT_THAT(text, HasSubstr(R"("log" {"rollout/raw_reward": 0.25} 7)"));
  EXPECT_THAT(text, HasSubstr(R"([[17, "completed", 1)"));
}

TEST_F(Trackers, OneThatFailsLaterIsToldOnceAndNothingWaitsForIt) {
  folder_with_wandb("pass", "raise RuntimeError('disk of the tracker is full')");
  TrackerProcess wandb = start("wandb");
  for (int step = 0; told_.empty(); ++step) wandb.write(step, {{"x", 1}});
  for (int step = 0; step < 100; ++step) wandb.write(step, {{"x", 1}});
  EXPECT_THAT(told_, HasSubstr("--report-to wandb: RuntimeError: disk of the tracker is full; the "
                               "run goes on without it"));
  EXPECT_EQ(told_.find("--report-to"), told_.rfind("--report-to"));
}

TEST_F(Trackers, OneThatHangsIsGivenUpWhenWhatWaitsIsTooMuch) {
  folder_with_wandb("pass", "time.sleep(600)");
  TrackerProcess wandb = start("wandb");
  StepDetails details = some_details();
  details.samples[0].response = std::string(200'000, 'x');
  int step = 0;
  for (; told_.empty() && step < 1000; ++step) wandb.write(step, {{"x", 1}}, details);
  EXPECT_LT(step, 100);
  EXPECT_THAT(told_, HasSubstr("it has not read 8 MiB of records"));
}

TEST(TrackerProblems, WhatIsAdvisedWouldWork) {
  const std::string absent =
      tracker_problem("wandb", "ModuleNotFoundError: No module named 'wandb'", "py");
  EXPECT_THAT(absent, HasSubstr("`py -m pip install wandb`"));
  EXPECT_EQ(absent.find("offline"), std::string::npos) << "that needs the package as well";
  EXPECT_THAT(tracker_problem("wandb", "UsageError: api_key not configured", "py"),
              HasSubstr("--wandb-mode offline and `wandb sync` later"));
  EXPECT_THAT(tracker_problem("mlflow", "MlflowException: no", "py"),
              HasSubstr("MLFLOW_TRACKING_URI"));
  EXPECT_THAT(tracker_problem("trackio", "", "py"), HasSubstr("py gave no answer"));
}

}  // namespace
}  // namespace slime::report
