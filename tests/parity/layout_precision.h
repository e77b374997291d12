#pragma once

/// Bounds of a layout's gradient error in bfloat16: that of one device, whatever the layout,
/// because all of them round as many numbers.
///
/// That is a statement about roundings only where the loss does not multiply them, so ratios are 1
/// here: old log-probs are the network's own. With the made-up log-probs of an engine (grpo_config())
/// two of 93 tokens have ratios of 3.6 and 3.1 and carry the gradient, and an error d of their
/// log-probs is a factor e^d of it. Measured in float32 on one device whose weights are moved by at
/// most half a unit of bfloat16's last place, 100 times: the norm of that gradient is off by 3.3 % at
/// the root mean square, 9.1 % at most; with ratios of 1 by 0.2 and 0.7 %. In bfloat16 over 24 such
/// batches one device's norm is off by 1.3 %, at most 3.4, and each layout's by 1.3 to 1.7 %, at most
/// 5.2; with ratios of 1 one device's by 0.2 %, layouts' by 0.2 to 0.3, at most 1.1 %.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "train_cases.h"

namespace slime::parity {

/// Of each batch: the norm, and the gradient of each weight in float64.
struct BatchGradient {
  double norm = 0;
  std::map<std::string, Tensor> grads;
};

inline train::TrainConfig ratios_of_one(train::TrainConfig config) {
  config.policy.use_rollout_logprobs = false;
  return config;
}

/// Batches of 12 samples.
inline std::vector<train::TrainBatch> precision_batches(int64_t vocab_size) {
  std::vector<train::TrainBatch> batches;
  for (const int64_t num_groups : {3, 2, 4})
    batches.push_back(
        train::make_train_batch(made_up_groups(num_groups, 12 / num_groups, vocab_size), {}));
  return batches;
}

/// Root mean square over the batches of a weight's distance from the exact gradient, and of that one's
/// norm.
struct Distance {
  double from_exact = 0;
  double exact = 0;
};
inline Distance distance(const std::vector<BatchGradient>& of,
                         const std::vector<BatchGradient>& exact, const std::string& name) {
  double from_exact = 0, size = 0;
  for (std::size_t b = 0; b < of.size(); ++b) {
    const Tensor& grad = exact[b].grads.at(name);
    from_exact += (of[b].grads.at(name) - grad).square().sum().item<double>();
    size += grad.square().sum().item<double>();
  }
  const auto count = static_cast<double>(of.size());
  return {std::sqrt(from_exact / count), std::sqrt(size / count)};
}

inline void expect_as_far_as_one_device(const std::vector<BatchGradient>& layout,
                                        const std::vector<BatchGradient>& one_device,
                                        const std::vector<BatchGradient>& exact) {
  for (std::size_t b = 0; b < exact.size(); ++b)
    EXPECT_NEAR(layout[b].norm, exact[b].norm, 0.02 * exact[b].norm) << "batch " << b;
  ASSERT_EQ(layout[0].grads.size(), exact[0].grads.size());
  for (const auto& [name, grad] : exact[0].grads) {
    const Distance own = distance(layout, exact, name);
    // Other roundings, of as many numbers: half as much again, and what chance does to small ones.
    EXPECT_LT(own.from_exact, 1.5 * distance(one_device, exact, name).from_exact + 0.01 * own.exact)
        << name;
  }
}

}  // namespace slime::parity
