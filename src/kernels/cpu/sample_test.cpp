#include "kernels/cpu/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/noisy_logits_for_tests.h"
#include "kernels/cpu/sample_statistics.h"

namespace slime::kernels {
namespace {

/// Probabilities in double, the slow way.
std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  const double max = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  for (const float logit : logits)
    p.push_back(std::exp((static_cast<double>(logit) - max) / temperature));
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= total;
  return p;
}

/// SGLang's rule over all ids, by sorting.
std::vector<int32_t> kept_by_sorting(const std::vector<float>& logits,
                                     const SampleOptions& options) {
  const auto p = softmax(logits, options.temperature);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  std::vector<int32_t> kept;
  double before = 0;
  for (const int32_t id : order) {
    const bool is_in_top_k = options.top_k < 0 || static_cast<int64_t>(kept.size()) < options.top_k;
    if (!is_in_top_k || before > options.top_p || p[id] < options.min_p * p[order[0]]) break;
    kept.push_back(id);
    before += p[id];
  }
  return kept;
}

TEST(SampleRow, LogProbsAreExactToOneMillionth) {
  for (const int64_t vocab : {1, 2, 511, 512, 513, 49152}) {
    for (const double temperature : {0.3, 1.0, 2.5}) {
      const auto logits = noisy_logits(vocab, 4);
      const auto p = softmax(logits, temperature);
      for (int64_t id = 0; id < vocab; id += 1 + vocab / 7) {
        EXPECT_NEAR(score_row(logits, static_cast<int32_t>(id), temperature, 0).log_prob,
                    std::log(p[id]), 1e-6 + 1e-7 * std::abs(std::log(p[id])))
            << vocab << " ids, temperature " << temperature;
      }
    }
  }
}

TEST(SampleRow, TrainingHasTheLogProbOfSamplingToTheBit) {
  for (const int64_t vocab : {1, 15, 16, 511, 512, 513, 49152}) {
    for (const double temperature : {0.3, 1.0, 2.5}) {
      const auto logits = noisy_logits(vocab, 4);
      const auto p = softmax(logits, temperature);
      double entropy = 0;
      for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
      for (int64_t id = 0; id < vocab; id += 1 + vocab / 7) {
        const TargetStatistics trained = target_statistics(logits, id, temperature);
        EXPECT_EQ(trained.log_prob,
                  score_row(logits, static_cast<int32_t>(id), temperature, 0).log_prob);
        EXPECT_NEAR(trained.entropy, entropy, 2e-5);
        const double logsumexp = logits[id] / temperature - std::log(p[id]);
        EXPECT_NEAR(trained.logsumexp, logsumexp, 1e-6 * (1 + std::abs(logsumexp)));
      }
      EXPECT_NEAR(target_statistics(logits, -1, temperature).log_prob,
                  -target_statistics(logits, 0, temperature).logsumexp, 1e-5);
    }
  }
}

TEST(SampleRow, GreedyTakesTheFirstOfTheLargest) {
  auto logits = noisy_logits(1000, 1);
  logits[611] = logits[333] = 50;
  EXPECT_EQ(sample_row(logits, {.greedy = true}).id, 333);
}

TEST(SampleRow, DrawsFollowTheSoftmax) {
  // Chi-square with 39 degrees of freedom: 1e-4 of right samplers exceed 82; the draws are fixed by
  // their seed.
  const auto logits = noisy_logits(40, 1.5);
  const auto p = softmax(logits, 0.8);
  constexpr int kDraws = 40000;
  std::vector<int> counts(40);
  for (int i = 0; i < kDraws; ++i) {
    ++counts[sample_row(logits, {.temperature = 0.8, .uniform = uniform(3, 0, i)}).id];
  }
  double chi_square = 0;
  for (int v = 0; v < 40; ++v)
    chi_square += std::pow(counts[v] - kDraws * p[v], 2) / (kDraws * p[v]);
  EXPECT_LT(chi_square, 82);
}

TEST(SampleRow, DrawsInvertTheCumulativeDistributionAcrossBlocks) {
  const auto logits = noisy_logits(1300, 2);
  const auto p = softmax(logits, 1);
  double cumulative = 0;
  for (int32_t id = 0; id < 1300; ++id) {
    if (p[id] > 1e-4) {
      EXPECT_EQ(sample_row(logits, {.uniform = cumulative + p[id] / 2}).id, id);
    }
    cumulative += p[id];
  }
}

TEST(SampleRow, ImpossibleTokensAreNeverSampled) {
  std::vector<float> logits(600, -std::numeric_limits<float>::infinity());
  logits[77] = 1;
  for (const double u : {1e-17, 0.5, 1 - 1e-16})
    EXPECT_EQ(sample_row(logits, {.uniform = u}).id, 77);
  EXPECT_EQ(sample_row(logits, {.top_p = 0.9}).id, 77);
}

TEST(SampleRow, CutsKeepWhatSortingKeeps) {
  std::vector<SampleOptions> truncations;
  for (const int64_t top_k : {int64_t{-1}, int64_t{1}, int64_t{3}, int64_t{700}}) {
    for (const double top_p : {1.0, 0.95, 0.3}) {
      for (const double min_p : {0.0, 0.05}) {
        if (top_k > 0 || top_p < 1 || min_p > 0)
          truncations.push_back({.top_k = top_k, .top_p = top_p, .min_p = min_p});
      }
    }
  }
  for (const double scale : {0.01, 1.0, 5.0}) {
    for (const double temperature : {0.5, 1.0, 3.0}) {
      const auto logits = noisy_logits(2000, scale, static_cast<uint64_t>(scale * 100));
      for (SampleOptions options : truncations) {
        options.temperature = temperature;
        options.keeps_ids = true;
        const auto expected = kept_by_sorting(logits, options);
        const SampledToken token = sample_row(logits, options);
        ASSERT_EQ(token.kept_ids, expected)
            << options.top_k << " " << options.top_p << " " << options.min_p;
        EXPECT_NE(std::find(expected.begin(), expected.end(), token.id), expected.end());
      }
    }
  }
}

TEST(SampleRow, LogProbIsOfTheFullDistributionUnlessKeptIdsAreAskedFor) {
  const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  SampleOptions options{.top_p = 0.6, .uniform = 0.1};  // keeps ids 0 and 1
  EXPECT_NEAR(sample_row(logits, options).log_prob, std::log(0.5), 1e-6);
  options.keeps_ids = true;
  EXPECT_NEAR(sample_row(logits, options).log_prob, std::log(0.5 / 0.8), 1e-6);
}

TEST(SampleRow, LogProbsOfTheKeptIdsAreThoseOfADistribution) {
  for (const double top_p : {0.01, 0.5, 0.95}) {
    const SampleOptions options{
        .temperature = 0.8, .top_p = top_p, .keeps_ids = true, .keeps_log_probs = true};
    const SampledToken token = sample_row(noisy_logits(2000, 3), options);
    ASSERT_EQ(token.kept_log_probs.size(), token.kept_ids.size());
    double mass = 0;
    for (std::size_t i = 0; i < token.kept_ids.size(); ++i) {
      mass += std::exp(static_cast<double>(token.kept_log_probs[i]));
      EXPECT_LE(token.kept_log_probs[i], 0);
      if (token.kept_ids[i] == token.id) {
        EXPECT_EQ(token.kept_log_probs[i], token.log_prob);
      }
    }
    EXPECT_NEAR(mass, 1, 1e-6) << top_p;
  }
  const SampledToken sure = sample_row(std::vector<float>{0.3F, 9.7F, 0.1F},
                                       {.top_p = 0.5, .keeps_ids = true, .keeps_log_probs = true});
  EXPECT_EQ(sure.kept_log_probs, std::vector<float>{0});
  EXPECT_EQ(sure.log_prob, 0);
}

TEST(SampleRow, TopIsSortedWithLogProbs) {
  const auto logits = noisy_logits(3000, 2);
  const auto top = score_row(logits, 0, 1.0, 5).top;
  const auto expected = kept_by_sorting(logits, {.top_k = 5});
  ASSERT_EQ(top.size(), 5U);
  const auto p = softmax(logits, 1);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(top[i].second, expected[i]);
    EXPECT_NEAR(top[i].first, std::log(p[expected[i]]), 1e-5);
  }
  EXPECT_EQ(score_row(std::vector<float>{1, 2}, 0, 1.0, 5).top.size(), 2U);
}

TEST(SampleRow, ReportOfAnotherDevicesTokenIsThatOfItsDraw) {
  const auto logits = noisy_logits(3000, 2);
  for (const SampleOptions& options :
       {SampleOptions{.num_top = 3}, SampleOptions{.top_p = 0.8, .keeps_ids = true, .num_top = 3},
        SampleOptions{.greedy = true, .keeps_ids = true}}) {
    const SampledToken sampled = sample_row(logits, options);
    const SampledToken token = report_row(logits, sampled.id, options);
    EXPECT_EQ(token.id, sampled.id);
    EXPECT_EQ(token.log_prob, sampled.log_prob);
    EXPECT_EQ(token.kept_ids, sampled.kept_ids);
    EXPECT_EQ(token.top, sampled.top);
  }
}

TEST(SampleRow, ATokenThatOnlyTheOtherDeviceKeptIsTheLastOfTheKeptIds) {
  const std::vector<float> logits = {std::log(0.2F), std::log(0.3F), std::log(0.5F)};
  const SampledToken token = report_row(logits, 0, {.top_k = 2, .keeps_ids = true});
  EXPECT_EQ(token.kept_ids, (std::vector<int32_t>{2, 1, 0}));
  EXPECT_NEAR(token.log_prob, std::log(0.2), 1e-6);
}

TEST(SampleRow, NotANumberIsReported) {
  const std::vector<float> logits(100, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(sample_row(logits, {}).log_prob));
  EXPECT_TRUE(std::isnan(sample_row(logits, {.top_p = 0.5}).log_prob));
}

}  // namespace
}  // namespace slime::kernels
