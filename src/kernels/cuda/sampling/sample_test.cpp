/// Draws on the GPU beside those of the CPU. Tests of a `Large` vocabulary are not run under
/// compute-sanitizer (./dev sanitize gpu).

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "core/random.h"
#include "kernels/cuda/gpu_test_tensors.h"
#include "kernels/cuda/sampling/draws_for_tests.h"

namespace slime::kernels {
namespace {

struct Sampled {
  Tensor token_R, log_prob_R;  // on the CPU
};

/// All rows at once.
Sampled draw_on_gpu(const std::vector<Draw>& draws) {
  const auto rows = static_cast<int64_t>(draws.size());
  const auto vocab = static_cast<int64_t>(draws.front().logits.size());
  std::vector<double> uniforms;
  std::vector<float> temperatures, top_ps, min_ps, logits;
  std::vector<int32_t> top_ks;
  for (const Draw& draw : draws) {
    uniforms.push_back(draw.options.uniform);
    temperatures.push_back(static_cast<float>(draw.options.temperature));
    top_ps.push_back(static_cast<float>(draw.options.top_p));
    min_ps.push_back(static_cast<float>(draw.options.min_p));
    top_ks.push_back(draw.options.greedy ? 0 : static_cast<int32_t>(draw.options.top_k));
    logits.insert(logits.end(), draw.logits.begin(), draw.logits.end());
  }
  const SampleRows parameters{to_gpu(uniforms, at::kDouble), to_gpu(temperatures, at::kFloat),
                              to_gpu(top_ps, at::kFloat),    to_gpu(min_ps, at::kFloat),
                              to_gpu(top_ks, at::kInt),      {}};
  Tensor token_R = to_gpu(std::vector<int32_t>(rows, -7), at::kInt);
  Tensor log_prob_R = to_gpu(std::vector<float>(rows, 7), at::kFloat);
  open_gpu().sample(to_gpu(logits, at::kFloat).view({rows, vocab}), parameters,
                    {token_R, log_prob_R, {}});
  return {token_R.to(at::kCPU), log_prob_R.to(at::kCPU)};
}

std::string to_text(const SampleOptions& o) {
  return "temperature " + std::to_string(o.temperature) + ", top_k " + std::to_string(o.top_k) +
         ", top_p " + std::to_string(o.top_p) + ", min_p " + std::to_string(o.min_p) +
         ", uniform " + std::to_string(o.uniform);
}

/// What the CPU draws, row by row.
void expect_same_draws(const std::vector<Draw>& draws) {
  const Sampled sampled = draw_on_gpu(draws);
  for (size_t r = 0; r < draws.size(); ++r) {
    const auto row = static_cast<int64_t>(r);
    const SampledToken expected = sample_row(draws[r].logits, draws[r].options);
    EXPECT_EQ(sampled.token_R[row].item<int32_t>(), expected.id)
        << "row " << r << ", " << to_text(draws[r].options);
    EXPECT_NEAR(sampled.log_prob_R[row].item<float>(), expected.log_prob,
                2e-6 + 2e-7 * std::abs(expected.log_prob));
  }
}

/// For rows of very many tokens that are about equally likely: sums are rounded by 1e-7 or so, a
/// token's share is 1e-5, so one draw in some dozens may be the neighbour in the order of logits.
void expect_same_or_neighbouring_draws(const std::vector<Draw>& draws) {
  const Sampled sampled = draw_on_gpu(draws);
  size_t num_same = 0;
  for (size_t r = 0; r < draws.size(); ++r) {
    const auto row = static_cast<int64_t>(r);
    const SampledToken expected = sample_row(draws[r].logits, draws[r].options);
    num_same += sampled.token_R[row].item<int32_t>() == expected.id ? 1 : 0;
    EXPECT_NEAR(sampled.log_prob_R[row].item<float>(), expected.log_prob, 1e-3)
        << "row " << r << ", " << to_text(draws[r].options);
  }
  EXPECT_GE(num_same * 5, draws.size() * 4);
}

std::vector<Draw> draws_without_truncation(int64_t vocab) {
  std::vector<Draw> draws;
  for (uint64_t i = 0; i < 24; ++i) {
    SampleOptions options;
    options.temperature = i % 3 == 0 ? 0.5 : i % 3 == 1 ? 1.0 : 2.0;
    options.greedy = i % 8 == 7;
    options.uniform = uniform(11, i, 3);
    draws.push_back({options, noisy_logits(vocab, i % 2 == 0 ? 1.0 : 5.0, i)});
  }
  return draws;
}

TEST(GpuSample, DrawsWhatTheCpuDraws) {
  SLIME_NEEDS_GPU();
  for (const int64_t vocab : {int64_t{1}, int64_t{384}, int64_t{4096}, int64_t{4097}, kSmallVocab})
    expect_same_draws(draws_without_truncation(vocab));
}

TEST(GpuSample, DrawsWhatTheCpuDrawsOfALargeVocabulary) {
  SLIME_NEEDS_GPU();
  expect_same_draws(draws_without_truncation(kLargeVocab));
}

TEST(GpuSample, TruncatesAsTheCpuDoes) {
  SLIME_NEEDS_GPU();
  std::vector<Draw> draws;
  uint64_t i = 0;
  for (const int64_t top_k : {int64_t{-1}, int64_t{2}, int64_t{50}}) {
    for (const double top_p : {1.0, 0.95, 0.3}) {
      for (const double min_p : {0.0, 0.05}) {
        for (const double scale : {0.3, 4.0}) {
          SampleOptions options;
          options.top_k = top_k;
          options.top_p = top_p;
          options.min_p = min_p;
          options.temperature = 0.7;
          options.uniform = uniform(12, ++i, 0);
          draws.push_back({options, noisy_logits(20000, scale, i)});
        }
      }
    }
  }
  expect_same_draws(draws);
}

/// One for each kind of truncation, and all of them together.
std::vector<SampleOptions> kinds_of_truncation() {
  return {{.top_p = 0.95},
          {.top_k = 50},
          {.min_p = 0.05},
          {.top_k = 20000, .top_p = 0.9},
          {.top_k = 30000, .top_p = 0.999999, .min_p = 1e-3}};
}

std::vector<Draw> flat_draws(int64_t vocab) {
  std::vector<Draw> draws;
  for (const double scale : {0.02, 0.3, 1.0, 3.0}) {
    for (SampleOptions options : kinds_of_truncation()) {
      options.uniform = uniform(13, draws.size(), 0);
      draws.push_back({options, noisy_logits(vocab, scale, draws.size())});
    }
  }
  return draws;
}

TEST(GpuSample, TruncatesFlatRows) {
  SLIME_NEEDS_GPU();
  expect_same_or_neighbouring_draws(flat_draws(kSmallVocab));
}

TEST(GpuSample, TruncatesFlatRowsOfALargeVocabulary) {
  SLIME_NEEDS_GPU();
  expect_same_or_neighbouring_draws(flat_draws(kLargeVocab));
}

/// A few likely tokens above very many that are nothing beside them, as a trained model has it.
std::vector<Draw> peaked_draws(int64_t vocab) {
  std::vector<Draw> draws;
  for (const double temperature : {0.25, 1.0}) {
    for (SampleOptions options : kinds_of_truncation()) {
      const uint64_t i = draws.size();
      options.temperature = temperature;
      options.uniform = uniform(14, i, 0);
      std::vector<float> logits = noisy_logits(vocab, 2.0, i);
      for (uint64_t j = 0; j < 40; ++j) {
        const auto token = static_cast<size_t>(uniform(14, i, 1 + j) * static_cast<double>(vocab));
        logits[token] = static_cast<float>(17 + 3 * normal(14, i, 100 + j));
      }
      draws.push_back({options, std::move(logits)});
    }
  }
  return draws;
}

TEST(GpuSample, TruncatesPeakedRows) {
  SLIME_NEEDS_GPU();
  expect_same_draws(peaked_draws(kSmallVocab));
}

TEST(GpuSample, TruncatesPeakedRowsOfALargeVocabulary) {
  SLIME_NEEDS_GPU();
  expect_same_draws(peaked_draws(kLargeVocab));
}

TEST(GpuSample, TruncatesAtLowAndHighTemperatures) {
  SLIME_NEEDS_GPU();
  std::vector<Draw> draws;
  for (const double temperature : {0.01, 0.125, 8.0}) {
    for (SampleOptions options : kinds_of_truncation()) {
      options.temperature = temperature;
      options.uniform = uniform(15, draws.size(), 0);
      draws.push_back({options, noisy_logits(9001, 4.0, draws.size())});
    }
  }
  expect_same_draws(draws);
}

void expect_truncation_of_equal_logits(int64_t vocab, int64_t many) {
  const std::vector<float> logits(vocab, 1.5F);
  std::vector<Draw> draws;
  for (const double u : {1e-17, 0.31, 0.77, 1 - 1e-16}) {
    draws.push_back({{.top_k = 5, .uniform = u}, logits});
    draws.push_back({{.top_k = many, .uniform = u}, logits});
    draws.push_back({{.top_p = 0.95, .uniform = u}, logits});
    draws.push_back({{.min_p = 1.0, .uniform = u}, logits});
  }
  expect_same_draws(draws);
}

TEST(GpuSample, TruncatesEqualLogitsById) {
  SLIME_NEEDS_GPU();
  expect_truncation_of_equal_logits(kSmallVocab, 13331);
}

TEST(GpuSample, TruncatesEqualLogitsOfALargeVocabularyById) {
  SLIME_NEEDS_GPU();
  expect_truncation_of_equal_logits(kLargeVocab, 99991);
}

TEST(GpuSample, TruncatesBetweenManyTies) {
  SLIME_NEEDS_GPU();
  std::vector<Draw> draws;
  for (const double step : {0.25, 2.0}) {  // some dozen different logits, and six or so
    for (SampleOptions options : kinds_of_truncation()) {
      for (const int64_t more : {0, 1}) {
        options.uniform = uniform(16, draws.size(), 0);
        if (options.top_k > 0) options.top_k += more;
        std::vector<float> logits = noisy_logits(50001, 2.0, draws.size());
        for (float& x : logits) x = static_cast<float>(step * std::round(x / step));
        draws.push_back({options, std::move(logits)});
      }
    }
  }
  expect_same_or_neighbouring_draws(draws);
}

void expect_truncation_among_few_allowed(int64_t vocab, std::initializer_list<int64_t> distances) {
  std::vector<Draw> draws;
  for (const int64_t every : distances) {
    for (SampleOptions options : kinds_of_truncation()) {
      options.uniform = uniform(17, draws.size(), 0);
      std::vector<float> logits = noisy_logits(vocab, 3.0, draws.size());
      for (int64_t v = 0; v < vocab; ++v) {
        if (v % every != 5) logits[v] = kNever;
      }
      draws.push_back({options, std::move(logits)});
    }
  }
  expect_same_draws(draws);
}

TEST(GpuSample, TruncatesAmongFewAllowedTokens) {
  SLIME_NEEDS_GPU();
  expect_truncation_among_few_allowed(kSmallVocab, {1000, 7777});
}

TEST(GpuSample, TruncatesAmongFewAllowedTokensOfALargeVocabulary) {
  SLIME_NEEDS_GPU();
  expect_truncation_among_few_allowed(kLargeVocab, {1000, 77777});
}

TEST(GpuSample, TiesGoByIdAndImpossibleTokensAreNotSampled) {
  SLIME_NEEDS_GPU();
  std::vector<float> logits(5000, kNever);
  for (const int v : {17, 300, 4100, 4999}) logits[v] = 2;
  std::vector<float> zeros(5000, 0.0F);  // of both signs, which are equal
  for (size_t v = 0; v < zeros.size(); v += 3) zeros[v] = -0.0F;
  std::vector<Draw> draws;
  for (const double u : {1e-17, 0.2, 0.3, 0.6, 0.9, 1 - 1e-16}) {
    draws.push_back({{.uniform = u}, logits});
    draws.push_back({{.top_k = 3, .uniform = u}, logits});
    draws.push_back({{.top_k = 3, .uniform = u}, zeros});
    draws.push_back({{.greedy = true}, logits});
  }
  expect_same_draws(draws);
}

/// Rows of all kinds side by side; scratch memory keeps what the last call left there.
TEST(GpuSample, RepeatsBitForBit) {
  SLIME_NEEDS_GPU();
  std::vector<Draw> draws;
  for (const double scale : {0.1, 3.0}) {
    std::vector<SampleOptions> kinds = kinds_of_truncation();
    kinds.push_back({});
    kinds.push_back({.greedy = true});
    for (SampleOptions options : kinds) {
      options.uniform = uniform(18, draws.size(), 0);
      draws.push_back({options, noisy_logits(30000, scale, draws.size())});
    }
  }
  const Sampled first = draw_on_gpu(draws);
  for (int round = 0; round < 5; ++round) {
    const Sampled again = draw_on_gpu(draws);
    EXPECT_TRUE(at::equal(again.token_R, first.token_R));
    EXPECT_TRUE(at::equal(again.log_prob_R, first.log_prob_R));
  }
}

TEST(GpuSample, RowsThatAreNoNumbersAreReported) {
  SLIME_NEEDS_GPU();
  std::vector<float> bad(9000, 1.0F);
  bad[8000] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> infinite(9000, 1.0F);
  infinite[77] = std::numeric_limits<float>::infinity();
  const std::vector<float> nothing(9000, kNever);
  for (const SampleOptions& options : {SampleOptions{.top_p = 0.9}, SampleOptions{.top_k = 4},
                                       SampleOptions{.min_p = 0.1}, SampleOptions{}}) {
    const Sampled sampled = draw_on_gpu({{options, bad}, {options, infinite}, {options, nothing}});
    for (int64_t row = 0; row < 3; ++row) {
      EXPECT_EQ(sampled.token_R[row].item<int32_t>(), 0);
      EXPECT_TRUE(std::isnan(sampled.log_prob_R[row].item<float>()));
    }
  }
}

}  // namespace
}  // namespace slime::kernels
