#pragma once

/// Engines in processes of their own, as `slime train --rollout-num-gpus` starts them, with made-up
/// weights.

#include <string>
#include <vector>

#include "bench/made_up_directory.h"
#include "bench/made_up_model.h"
#include "roles/engine_workers.h"

namespace slime::bench {

struct EnginesApart {
  ShapeOptions shape;
  std::string device = "cuda";
  int64_t engines = 1;
  int64_t devices_before = 0;  // of the trainer
  int64_t sequences = 256;     // in one engine at once
  int64_t prompt_tokens = 256;
  int64_t context = 2048;  // of a sequence, at most
  int64_t lora_rank = 0;   // of an adapter that updates bring; 0: they bring all weights
};

/// `directory`: of the shape; outlives the engines. Throws ConfigError for flags that no run may have.
roles::EngineWorkersConfig config_of(const EnginesApart& engines, const MadeUpDirectory& directory);

}  // namespace slime::bench
