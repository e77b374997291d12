#pragma once

/// The command `slime train` as users type it, in a process of its own, on a made-up model
/// directory in a shape of bench/gpu/workloads.json.

#include <cstdint>
#include <string>
#include <vector>

#include "bench/made_up_model.h"

namespace slime::bench {

struct TrainCommandOptions {
  std::string name;  // of the printed line
  ShapeOptions shape;
  std::string device = "cuda";
  int64_t prompts = 8;
  int64_t samples = 8;
  int64_t prompt_tokens = 256;
  int64_t new_tokens = 128;
  int64_t micro_batch_tokens = 16384;
  int64_t steps = 1;
  bool shows_log = false;  // of the command, on standard error
  /// Responses end at random after so many tokens on average, by stop token ids that are spread over
  /// the vocabulary: a made-up model draws all tokens alike. 0: all have new_tokens.
  int64_t mean_length = 0;
  int64_t engines_apart = 1;            // of forms that end in -apart
  std::vector<std::string> more_flags;  // of the command
};

/// Seconds from the start of the command to the end of its first optimizer step, files in the page
/// cache. Prints a JSON line.
void measure_first_step(const TrainCommandOptions& options);

/// A GRPO step: tokens per second of generation and of training, seconds of the phases. The best
/// step after the first counts. Prints a JSON line.
void measure_grpo_command(const TrainCommandOptions& options);

/// Each of `forms` as a command of its own: sync, april, one-step-ahead, async-K (at most K weight
/// updates old), colocated; with -apart behind all but the last: engines on other devices. Prints a JSON line for each: steps per hour behind the first two, shares
/// of the time that trainer and engine were idle, lags. ConfigError for other forms.
void measure_train_forms(const TrainCommandOptions& options, const std::vector<std::string>& forms);

}  // namespace slime::bench
