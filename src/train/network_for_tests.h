#pragma once

/// The small network that tests of the trainer train, and a configuration that suits it.

#include <memory>
#include <string>

#include "core/clock.h"
#include "model/network.h"
#include "train/trainer.h"

namespace slime::train {

inline const std::string kModel = SLIME_SOURCE_DIR "/tests/fixtures/models/qwen3";
inline const SystemClock kClock;

inline std::unique_ptr<model::Network> load(const std::string& dtype = "float32") {
  return model::load_network(kModel, model::Precision::of(dtype));
}

inline TrainConfig config_for(int64_t global_batch_size, double lr = 1e-3) {
  TrainConfig config;
  config.batching.global_batch_size = global_batch_size;
  config.batching.use_dynamic_batch_size = true;
  config.batching.max_tokens_per_gpu = 64;
  config.lr = {.lr = lr, .style = DecayStyle::kConstant};
  return config;
}

}  // namespace slime::train
