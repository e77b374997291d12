#pragma once

/// For tests: gradients of a batch, with a loss of the user's or without.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "model/network.h"
#include "model/placement.h"
#include "plugin/trainer_functions.h"
#include "setup/train_config.h"

namespace slime::plugin {

inline const std::string kModel = SLIME_SOURCE_DIR "/tests/fixtures/models/qwen3";
inline const std::string kExamples = SLIME_SOURCE_DIR "/examples/custom_loss";
inline const SystemClock kTestClock;

/// An interpreter with torch; empty where there is none.
inline std::string torch_python() {
  static const std::string found = [] {
    for (const char* python : {"python3", "/usr/bin/python3"}) {
      if (std::system(fmt::format("{} -c 'import torch' > /dev/null 2>&1", python).c_str()) == 0)
        return std::string(python);
    }
    return std::string();
  }();
  return found;
}

/// Prompts of 6 tokens, responses of 3 to 6, some tokens of which a tool wrote.
inline train::TrainBatch batch_of_four() {
  std::vector<Group> groups;
  for (int64_t g = 0; g < 2; ++g) {
    Group group{g, {}};
    for (int64_t k = 0; k < 2; ++k) {
      Sample sample;
      sample.group = g;
      sample.ordinal = 2 * g + k;
      sample.prompt_length = 6;
      sample.status = Status::kCompleted;
      for (int64_t t = 0; t < 6; ++t) sample.tokens.push_back(static_cast<TokenId>(10 + 7 * g + t));
      for (int64_t t = 0; t < 3 + g + 2 * k; ++t) {
        sample.tokens.push_back(static_cast<TokenId>(50 + 9 * k + 3 * t));
        sample.loss_mask.push_back(t != 1);
        sample.log_probs.push_back(static_cast<float>(-1.5 - 0.25 * static_cast<double>(t)));
      }
      sample.reward = k == 0 ? 1.0 : 0.0;
      group.samples.push_back(std::move(sample));
    }
    groups.push_back(std::move(group));
  }
  return train::make_train_batch(groups, {});
}

/// A run of two updates per rollout step, whose second one has ratios other than 1.
inline config::RunConfig run_config() {
  config::RunConfig config;
  config.rollout_batch_size = 2;
  config.n_samples_per_prompt = 2;
  config.global_batch_size = 4;
  config.use_dynamic_batch_size = true;
  config.max_tokens_per_gpu = 64;
  config.eps_clip_high = 0.28;
  config.num_rollout = 1;
  config.lr = 1e-3;
  config.rollout_temperature = 0.7;
  return config;
}

struct Gradients {
  algo::MetricSums sums;
  Tensor flat;
};

class UsersLoss : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  ~UsersLoss() override { std::filesystem::remove_all(folder_); }

  /// On config.device.
  Gradients gradients(const config::RunConfig& config, const train::TrainBatch& batch,
                      const std::string& dtype = "float32") {
    const auto network = model::load_network(kModel, model::precision_on(config.device, dtype));
    TrainerFunctions functions(config, folder_ / "plugin", 0);
    train::TrainConfig trainer_config = setup::make_train_config(config, 1);
    functions.set_in(trainer_config, 0);
    train::Trainer trainer(*network, trainer_config, kTestClock);
    Gradients out;
    out.sums = trainer.accumulate_gradients(batch);
    out.flat = network->weights().grad().to(at::kCPU, at::kDouble);
    return out;
  }

  config::RunConfig with_library(config::RunConfig config, const std::string& source) {
    // A library stays loaded, so each has a name of its own.
    const auto file = folder_ / fmt::format("loss_{}.so", num_libraries_++);
    const std::string command = fmt::format("g++ -O3 -shared -fPIC -I {} {} -o {}",
                                            SLIME_SOURCE_DIR "/include", source, file.string());
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    config.loss_type = "custom_loss";
    config.custom_loss_library = file.string();
    return config;
  }

  config::RunConfig with_function(config::RunConfig config, const std::string& path) {
    config.loss_type = "custom_loss";
    config.custom_loss_function_path = path;
    config.plugin_python = torch_python();
    return config;
  }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }

  static inline int num_libraries_ = 0;
  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / fmt::format("slime_users_loss_{}", ::getpid());
};

/// Each token was sampled from itself and some others; a tool's from nothing.
inline train::TrainBatch with_nuclei(train::TrainBatch batch) {
  for (train::TrainSample& sample : batch.samples) {
    sample.top_p_offsets = {0};
    for (std::size_t t = 0; t < sample.loss_mask.size(); ++t) {
      const TokenId id = sample.tokens[sample.tokens.size() - sample.loss_mask.size() + t];
      for (TokenId k = 0; sample.loss_mask[t] != 0 && k <= static_cast<TokenId>(t % 3); ++k)
        sample.top_p_ids.push_back(k == 0 ? id : id + 5 * k);
      sample.top_p_offsets.push_back(static_cast<int64_t>(sample.top_p_ids.size()));
    }
  }
  return batch;
}

}  // namespace slime::plugin
