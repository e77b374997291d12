#include "evaluate/statistics.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace slime::evaluate {
namespace {

constexpr double kConfidence = 0.95;
constexpr double kNormalQuantile = 1.959963984540054;  // of (1 + 0.95) / 2
constexpr std::size_t kDraws = 10'000;
constexpr std::size_t kFewestDraws = 1'000;
constexpr std::size_t kMostNumbers = 200'000'000;  // drawn for one interval: a second or two
constexpr uint64_t kSeed = 20'150'401;

Interval wilson(double successes, double count) {
  const double z2 = kNormalQuantile * kNormalQuantile;
  const double share = successes / count;
  const double center = (share + z2 / (2 * count)) / (1 + z2 / count);
  const double half = kNormalQuantile / (1 + z2 / count) *
                      std::sqrt(share * (1 - share) / count + z2 / (4 * count * count));
  return {std::max(0.0, center - half), std::min(1.0, center + half), "wilson"};
}

Interval bootstrap(std::span<const PromptSum> prompts) {
  const std::size_t count = prompts.size();
  const std::size_t draws = std::clamp(kMostNumbers / count, kFewestDraws, kDraws);
  std::mt19937_64 random(kSeed);
  std::vector<double> means(draws);
  for (double& mean : means) {
    double sum = 0, weight = 0;
    for (std::size_t i = 0; i < count; ++i) {
      // The upper half of a 128-bit product: any count, without a division.
      const auto place =
          static_cast<std::size_t>((static_cast<unsigned __int128>(random()) * count) >> 64);
      sum += prompts[place].sum;
      weight += prompts[place].weight;
    }
    mean = sum / weight;
  }
  std::ranges::sort(means);
  const double tail = (1 - kConfidence) / 2 * static_cast<double>(draws);
  const auto first = static_cast<std::size_t>(std::floor(tail));
  return {means[first], means[draws - 1 - first], "bootstrap"};
}

}  // namespace

Estimate weighted_mean(std::span<const PromptSum> prompts) {
  double sum = 0, weight = 0;
  bool is_zero_or_one = true;
  for (const PromptSum& prompt : prompts) {
    sum += prompt.sum;
    weight += prompt.weight;
    const bool is_right = prompt.sum == prompt.weight;
    is_zero_or_one &= prompt.weight > 0 && (prompt.sum == 0 || is_right);
  }
  if (weight <= 0) return {};
  Estimate estimate{.value = sum / weight, .interval = {}};
  if (!is_zero_or_one) {
    estimate.interval = bootstrap(prompts);
    return estimate;
  }
  // All executions of a prompt agree: it counts once.
  const auto count = static_cast<double>(prompts.size());
  const auto right = static_cast<double>(
      std::ranges::count_if(prompts, [](const PromptSum& prompt) { return prompt.sum != 0; }));
  estimate.interval = wilson(right, count);
  return estimate;
}

Estimate bootstrap_mean(std::span<const PromptSum> prompts) {
  double sum = 0, weight = 0;
  for (const PromptSum& prompt : prompts) {
    sum += prompt.sum;
    weight += prompt.weight;
  }
  if (weight <= 0) return {};
  return {.value = sum / weight, .interval = bootstrap(prompts)};
}

Estimate mean(std::span<const double> values) {
  std::vector<PromptSum> prompts;
  prompts.reserve(values.size());
  for (const double value : values) prompts.push_back({.sum = value});
  return weighted_mean(prompts);
}

}  // namespace slime::evaluate
