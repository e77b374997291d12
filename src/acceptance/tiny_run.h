#pragma once

/// Tiny training runs by `slime train` itself: supervised beside the CPU in float64, and with rollouts.

#include <filesystem>
#include <string>
#include <vector>

#include "acceptance/figure.h"

namespace slime::acceptance {

struct TinyRuns {
  std::string program;  // path of slime
  std::string device;   // "cpu", "cuda", "hip"
  bool is_quick = false;
  std::filesystem::path folder;  // of models, runs and logs; exists
};

/// Section "training": losses and gradient norms of supervised steps on the device beside those of the same steps on the
/// CPU in float64, in float32 and on a GPU in bfloat16; then the difference between the trainer's and the engine's
/// log-probs in steps with rollouts. The logs of runs that fail stay in `folder`.
void check_training(const TinyRuns& runs, const Tell& tell);

/// Values of `name` in the rows of a metrics.jsonl, in their order. Throws ConfigError for a file that is none.
std::vector<double> metric_in(const std::filesystem::path& metrics, const std::string& name);

}  // namespace slime::acceptance
