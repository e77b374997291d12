#include "config/engine_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "config/validate.h"
#include "core/error.h"

namespace slime::config {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class EngineGroups : public ::testing::Test {
 protected:
  ~EngineGroups() override { std::filesystem::remove(file_); }

  /// Validation of a run with the groups of `yaml`; problems are in `error_`.
  ParsedFlags checked(const std::string& yaml, const std::string& more = "") {
    std::ofstream(file_) << yaml;
    std::istringstream words(
        "--hf-checkpoint /nowhere --prompt-data rows.jsonl --rm-type math --num-rollout 3 "
        "--rollout-batch-size 2 --n-samples-per-prompt 2 --rollout-max-response-len 8 "
        "--sglang-config " +
        file_ + " " + more);
    std::vector<std::string> arguments;
    for (std::string word; words >> word;) arguments.push_back(word);
    ParsedFlags flags = parse_flags(arguments);
    std::vector<std::string> absent;
    error_.clear();
    try {
      complete_and_validate(flags, absent);
    } catch (const ConfigError& error) {
      error_ = error.what();
    }
    return flags;
  }

  const std::string file_ =
      ::testing::TempDir() + "engine_groups_" + std::to_string(::getpid()) + ".yaml";
  std::string error_;
};

TEST_F(EngineGroups, SayHowManyEnginesThereAreAndInWhatTheyDiffer) {
  const ParsedFlags flags = checked(R"(
sglang:
  - name: default
    server_groups:
      - {worker_type: regular, num_gpus: 2, overrides: {max_running_requests: 7, page_size: 64}}
      - {worker_type: regular, num_gpus: 1, overrides: {disable_radix_cache: true}}
)");
  EXPECT_EQ(error_, "");
  EXPECT_EQ(flags.config.num_engine_workers, 3);
  EXPECT_EQ(flags.config.sglang_max_running_requests, 256);
  for (const int64_t index : {0, 1, 2}) {
    const RunConfig own = config_of_engine(flags.config, index);
    EXPECT_EQ(own.sglang_max_running_requests, index < 2 ? 7 : 256) << index;
    EXPECT_EQ(own.sglang_disable_radix_cache.get(), index == 2) << index;
  }
  EXPECT_THAT(flags.warnings, Contains(HasSubstr("page_size has no effect: the cache chooses")));
}

TEST_F(EngineGroups, ThatAreAlikeAreTheRunsOwnSettings) {
  const ParsedFlags flags = checked(R"(
sglang:
  - name: default
    num_gpus_per_engine: 2
    engine_groups:
      - {worker_type: regular, num_gpus: 4, overrides: {context_length: 4096}}
)");
  EXPECT_EQ(error_, "");
  EXPECT_EQ(flags.config.num_engine_workers, 2);
  EXPECT_EQ(flags.config.rollout_num_gpus_per_engine, 2);
  EXPECT_EQ(flags.config.sglang_context_length, 4096);
  EXPECT_TRUE(flags.config.engine_groups.empty());
}

TEST_F(EngineGroups, WhatTheEnginesOfARunCannotBeIsRefusedByItsName) {
  checked(R"(
sglang:
  - name: actor
    server_groups:
      - {worker_type: prefill, num_gpus: 1}
      - {worker_type: decode, num_gpus: 1}
      - {worker_type: placeholder, num_gpus: 1}
      - {worker_type: regular, num_gpus: 1, overrides: {max_runing_requests: x, context_length: y}}
  - name: judge
    model_path: /models/judge
    server_groups: [{worker_type: regular, num_gpus: 1}]
)");
  for (const char* part :
       {"actor: server_groups[0]: worker_type prefill: pairs of prefill and decode are not there",
        "server_groups[1]: worker_type decode", "server_groups[2]: worker_type placeholder",
        "server_groups[3]: --sglang-context-length y: should be a whole number",
        "judge: a second model", "slime serve --model /models/judge"})
    EXPECT_THAT(error_, HasSubstr(part));
}

TEST_F(EngineGroups, AgreeWithTheNumberOfGpus) {
  const std::string one = R"(
sglang: [{name: a, server_groups: [{worker_type: regular, num_gpus: 2}]}]
)";
  checked(one, "--rollout-num-gpus 3");
  EXPECT_THAT(error_, HasSubstr("2 GPUs; --rollout-num-gpus says 3"));
  checked(one, "--colocate --actor-num-gpus-per-node 4");
  EXPECT_THAT(error_, HasSubstr("2 GPUs; with --colocate the engines are on the 4"));
  checked("- a\n");
  EXPECT_THAT(error_, HasSubstr("should be a map with a list `sglang`"));
}

}  // namespace
}  // namespace slime::config
