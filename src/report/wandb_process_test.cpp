#include "report/wandb_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"

namespace slime::report {
namespace {

using testing::HasSubstr;

/// A folder with a module `wandb` that writes down what it is told.
std::filesystem::path folder_with_wandb(const std::string& init) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "wandb_process_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "wandb.py") << "import json, os\n"
                                        "told = open(os.path.join(os.path.dirname(__file__), "
                                        "'told'), 'a', buffering=1)\n"
                                        "def init(**options):\n"
                                     << init
                                     << "\n    print('init', json.dumps(options, sort_keys=True), "
                                        "file=told)\n"
                                        "def define_metric(*a, **k): pass\n"
                                        "def log(record): print('log', json.dumps(record, "
                                        "sort_keys=True), file=told)\n"
                                        "def finish(): print('finish', file=told)\n";
  ::setenv("PYTHONPATH", folder.c_str(), 1);
  return folder;
}

std::string told(const std::filesystem::path& folder) {
  std::stringstream text;
  text << std::ifstream(folder / "told").rdbuf();
  return text.str();
}

TEST(Wandb, GetsTheRecordsOfTheRun) {
  const auto folder = folder_with_wandb("    pass");
  config::RunConfig config;
  config.wandb_project = "sums";
  config.wandb_group = "first";
  config.wandb_mode = "offline";
  config.disable_wandb_random_suffix = true;
  {
    WandbProcess wandb(config, "/tmp/run", {{"lr", 0.5}});
    wandb.write(with_step_axes({{"rollout/raw_reward", 0.25}}, 7));
    wandb.write({{"train/grad_norm", std::nan("")}});
  }
  const std::string text = told(folder);
  EXPECT_THAT(text, HasSubstr(R"("config": {"lr": 0.5}, "dir": "/tmp/run", "group": "first", )"
                              R"("mode": "offline", "name": "first", "project": "sums"})"));
  EXPECT_THAT(text, HasSubstr(R"(log {"rollout/raw_reward": 0.25, "rollout/step": 7})"));
  EXPECT_THAT(text, HasSubstr(R"(log {"train/grad_norm": NaN})"));
  EXPECT_THAT(text, HasSubstr("finish"));
}

TEST(Wandb, GetsTheKeyInItsEnvironmentAndNowhereElse) {
  const auto folder = folder_with_wandb(
      "    print('key', os.environ['WANDB_API_KEY'] == 'hunter' + '2', file=told)\n"
      "    print('arguments', open('/proc/self/cmdline').read(), file=told)");
  config::RunConfig config;
  config.wandb_key = "hunter2";
  { WandbProcess wandb(config, "/tmp/run", {}); }
  EXPECT_THAT(told(folder), HasSubstr("key True"));
  EXPECT_EQ(told(folder).find("hunter2"), std::string::npos);
}

TEST(Wandb, AKeyThatItRefusesIsNotInItsWords) {
  folder_with_wandb("    raise ValueError('bad key ' + os.environ['WANDB_API_KEY'])");
  config::RunConfig config;
  config.wandb_key = "hunter2";
  try {
    WandbProcess wandb(config, "/tmp/run", {});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("ValueError: bad key ***"));
  }
}

TEST(Wandb, ThatCannotStartIsRefusedWithItsWords) {
  folder_with_wandb("    raise RuntimeError('no such project')");
  try {
    WandbProcess wandb(config::RunConfig{}, "/tmp/run", {});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("RuntimeError: no such project"));
    EXPECT_THAT(error.what(), HasSubstr("SLIME_PYTHON"));
  }
}

TEST(Wandb, WhatIsAdvisedWouldWork) {
  const std::string absent = wandb_problem("ModuleNotFoundError: No module named 'wandb'", "py");
  EXPECT_THAT(absent, HasSubstr("`py -m pip install wandb`"));
  EXPECT_EQ(absent.find("offline"), std::string::npos) << "that needs the package as well";
  EXPECT_THAT(wandb_problem("UsageError: api_key not configured", "py"),
              HasSubstr("--wandb-mode offline and `wandb sync` later"));
  EXPECT_THAT(wandb_problem("", "py"), HasSubstr("py gave no answer"));
}

}  // namespace
}  // namespace slime::report
