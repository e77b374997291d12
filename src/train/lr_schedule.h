#pragma once

/// Learning rate as a function of the rollout executions trained so far
/// ("samples"), with the semantics of Megatron's OptimizerParamScheduler: the rate is read before
/// an update, so with warm-up the first one has rate 0.

#include <cstdint>
#include <optional>
#include <string>

namespace slime::train {

enum class DecayStyle { kConstant, kLinear, kCosine, kInverseSquareRoot, kWsd };
/// Shape of the decay phase of kWsd (warm-up, stable, decay).
enum class WsdStyle { kLinear, kCosine, kExponential, kMinusSqrt };

/// From Megatron's words: "constant", "linear", "cosine", "inverse-square-root", "WSD"; "linear",
/// "cosine", "exponential", "minus_sqrt". Throw ConfigError for others.
DecayStyle decay_style_from_string(const std::string& word);
WsdStyle wsd_style_from_string(const std::string& word);

struct LrSchedule {
  double lr = 1e-6;
  double min_lr = 0;
  double init_lr = 0;  // at the start of warm-up
  int64_t warmup_samples = 0;
  int64_t decay_samples = 1;  // warm-up included; afterwards min_lr, except for kConstant
  DecayStyle style = DecayStyle::kLinear;
  int64_t wsd_decay_samples = 0;
  WsdStyle wsd_style = WsdStyle::kExponential;
  double weight_decay = 0.01;  // the same all the time
};

/// What users give in training steps (Megatron: iterations), each of `global_batch_size` samples.
struct LrIterations {
  int64_t train_iters = 1;                     // planned length: num_rollout * B * n / G
  std::optional<int64_t> lr_decay_iters = {};  // default: train_iters
  int64_t lr_warmup_iters = 0;
  std::optional<double> lr_warmup_fraction = {};  // of the decay length; wins over lr_warmup_iters
  int64_t lr_wsd_decay_iters = 0;
};

/// Fills the lengths of `schedule`. Throws ConfigError when warm-up is not shorter than decay, a
/// rate is negative, ...
LrSchedule with_iterations(LrSchedule schedule, const LrIterations& iterations,
                           int64_t global_batch_size);

double learning_rate(const LrSchedule& schedule, int64_t samples_done);

}  // namespace slime::train
