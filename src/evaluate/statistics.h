#pragma once

/// Numbers of an evaluation with their 95 % intervals.
///
/// The unit is the prompt: samples of one prompt are not independent. Where every prompt's value is 0 or 1 the
/// interval is Wilson's (1927), which has a width at 0 % and 100 % too; elsewhere it is the percentile
/// bootstrap over prompts (Efron and Tibshirani, 1993, chapter 13), with draws of a fixed seed.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace slime::evaluate {

struct Interval {
  double low = 0;
  double high = 0;
  std::string_view method;  // "wilson", "bootstrap"
};

struct Estimate {
  double value = 0;
  Interval interval;
};

/// The value of one prompt: a sum over `weight` equal parts, its executions.
struct PromptSum {
  double sum = 0;
  double weight = 1;
};

/// Sum of the sums over sum of the weights. None: 0, from 0 to 0.
Estimate weighted_mean(std::span<const PromptSum> prompts);
/// The same with the bootstrap's interval whatever the values are, as differences are -1, 0 and 1.
Estimate bootstrap_mean(std::span<const PromptSum> prompts);
/// Of prompts that count alike.
Estimate mean(std::span<const double> values);

}  // namespace slime::evaluate
