#include "train/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "kernels/trace.h"

namespace slime::train {
namespace {

/// The named tensors as ranges, neighbours of one kind joined. Padding stays out and stays zero.
std::vector<kernels::AdamRange> ranges_of(const model::Weights& weights,
                                          const std::vector<std::string>& frozen) {
  std::vector<kernels::AdamRange> ranges;
  for (const model::NamedWeight& weight : weights.tensors()) {
    if (std::find(frozen.begin(), frozen.end(), weight.name) != frozen.end()) continue;
    int64_t size = 1;
    for (const int64_t extent : weight.shape) size *= extent;
    ranges.push_back({weight.offset, weight.offset + size, weight.decays});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::vector<kernels::AdamRange> joined;
  for (const kernels::AdamRange& range : ranges) {
    if (!joined.empty() && joined.back().end == range.begin &&
        joined.back().decays == range.decays) {
      joined.back().end = range.end;
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

}  // namespace

Optimizer::Optimizer(model::Weights& weights, const AdamConfig& config,
                     const std::vector<std::string>& frozen)
    : weights_(weights), config_(config), ranges_(ranges_of(weights, frozen)) {
  weights_.enable_grad();
  const at::NoGradGuard no_grad;
  const auto precision = weights_.grad().scalar_type();
  // The same precision: the same memory.
  master_ = weights_.flat().to(precision);
  first_moment_ = at::zeros_like(master_);
  second_moment_ = at::zeros_like(master_);
}

void Optimizer::step(double lr, double weight_decay, double grad_scale) {
  const kernels::TraceRange range("optimizer");
  ++num_steps_;
  kernels::adamw_(weights_.flat(), master_, first_moment_, second_moment_, weights_.grad(), ranges_,
                  {.lr = lr,
                   .beta1 = config_.beta1,
                   .beta2 = config_.beta2,
                   .eps = config_.eps,
                   .weight_decay = weight_decay,
                   .grad_scale = grad_scale,
                   .step = num_steps_});
}

void Optimizer::reset() {
  first_moment_.zero_();
  second_moment_.zero_();
  num_steps_ = 0;
}

}  // namespace slime::train
