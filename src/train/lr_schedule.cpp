#include "train/lr_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/error.h"

namespace slime::train {
namespace {

/// What remains of the rate's range after the share `ratio` of a falling stretch.
double falling(WsdStyle style, double ratio) {
  switch (style) {
    case WsdStyle::kLinear:
      return 1 - ratio;
    case WsdStyle::kCosine:
      return 0.5 * (std::cos(std::numbers::pi * ratio) + 1);
    case WsdStyle::kExponential:
      return 2 * std::pow(0.5, ratio) - 1;
    case WsdStyle::kMinusSqrt:
      return 1 - std::sqrt(ratio);
  }
  throw BugError("a WsdStyle outside its enumeration");
}

double wsd_coefficient(const LrSchedule& s, int64_t samples) {
  const int64_t anneal_start = s.decay_samples - s.wsd_decay_samples;
  if (samples <= anneal_start) return 1;
  return falling(s.wsd_style, static_cast<double>(samples - anneal_start) / s.wsd_decay_samples);
}

}  // namespace

DecayStyle decay_style_from_string(const std::string& word) {
  if (word == "constant") return DecayStyle::kConstant;
  if (word == "linear") return DecayStyle::kLinear;
  if (word == "cosine") return DecayStyle::kCosine;
  if (word == "inverse-square-root") return DecayStyle::kInverseSquareRoot;
  if (word == "WSD") return DecayStyle::kWsd;
  throw ConfigError("lr-decay-style: \"" + word +
                    "\" is not one of constant, linear, cosine, inverse-square-root, WSD");
}

WsdStyle wsd_style_from_string(const std::string& word) {
  if (word == "linear") return WsdStyle::kLinear;
  if (word == "cosine") return WsdStyle::kCosine;
  if (word == "exponential") return WsdStyle::kExponential;
  if (word == "minus_sqrt") return WsdStyle::kMinusSqrt;
  throw ConfigError("lr-wsd-decay-style: \"" + word +
                    "\" is not one of linear, cosine, exponential, minus_sqrt");
}

LrSchedule with_iterations(LrSchedule schedule, const LrIterations& iterations,
                           int64_t global_batch_size) {
  const int64_t decay_iters = iterations.lr_decay_iters.value_or(iterations.train_iters);
  schedule.decay_samples = decay_iters * global_batch_size;
  schedule.warmup_samples = iterations.lr_warmup_fraction
                                ? static_cast<int64_t>(*iterations.lr_warmup_fraction *
                                                       static_cast<double>(schedule.decay_samples))
                                : iterations.lr_warmup_iters * global_batch_size;
  schedule.wsd_decay_samples = iterations.lr_wsd_decay_iters * global_batch_size;

  std::vector<std::string> problems;
  if (schedule.decay_samples <= 0) {
    problems.push_back(fmt::format(
        "lr-decay-iters: {} steps leave nothing to decay over; give at least 1", decay_iters));
  } else if (schedule.warmup_samples >= schedule.decay_samples) {
    problems.push_back(
        fmt::format("lr-warmup-iters, lr-warmup-fraction: warm-up of {} samples does not end "
                    "before the decay of {} does",
                    schedule.warmup_samples, schedule.decay_samples));
  }
  if (schedule.warmup_samples < 0)
    problems.push_back("lr-warmup-iters, lr-warmup-fraction: cannot be negative");
  if (!(schedule.lr >= 0))
    problems.push_back(fmt::format("lr: {} cannot be negative", schedule.lr));
  if (!(schedule.min_lr >= 0 && schedule.min_lr <= schedule.lr)) {
    problems.push_back(
        fmt::format("min-lr: {} must lie between 0 and lr = {}", schedule.min_lr, schedule.lr));
  }
  if (!(schedule.init_lr >= 0 && schedule.init_lr <= schedule.lr)) {
    problems.push_back(fmt::format("lr-warmup-init: {} must lie between 0 and lr = {}",
                                   schedule.init_lr, schedule.lr));
  }
  if (schedule.style == DecayStyle::kWsd &&
      !(schedule.wsd_decay_samples > 0 && schedule.wsd_decay_samples <= schedule.decay_samples)) {
    problems.push_back("lr-wsd-decay-iters: WSD needs between 1 and lr-decay-iters steps");
  }
  if (!(schedule.weight_decay >= 0))
    problems.push_back(fmt::format("weight-decay: {} cannot be negative", schedule.weight_decay));
  if (!problems.empty()) throw ConfigError(problems);
  return schedule;
}

double learning_rate(const LrSchedule& s, int64_t samples) {
  if (s.warmup_samples > 0 && samples <= s.warmup_samples) {
    return s.init_lr + (s.lr - s.init_lr) * static_cast<double>(samples) / s.warmup_samples;
  }
  if (s.style == DecayStyle::kConstant) return s.lr;
  if (samples > s.decay_samples) return s.min_lr;
  if (s.style == DecayStyle::kInverseSquareRoot) {
    const double warmup = static_cast<double>(std::max<int64_t>(s.warmup_samples, 1));
    return std::max(s.min_lr, s.lr * std::sqrt(warmup) / std::sqrt(std::max<double>(samples, 1)));
  }
  const double ratio = static_cast<double>(samples - s.warmup_samples) /
                       static_cast<double>(s.decay_samples - s.warmup_samples);
  const double coefficient = s.style == DecayStyle::kWsd      ? wsd_coefficient(s, samples)
                             : s.style == DecayStyle::kLinear ? falling(WsdStyle::kLinear, ratio)
                                                              : falling(WsdStyle::kCosine, ratio);
  return s.min_lr + coefficient * (s.lr - s.min_lr);
}

}  // namespace slime::train
