/// Best tokens and kept ids on the GPU beside those of the CPU. Tests of a `Large` vocabulary are
/// not run under compute-sanitizer (./dev sanitize gpu).

#include <ATen/ATen.h>

#include <bit>
#include <cmath>
#include <limits>

#include "core/random.h"
#include "kernels/cuda/gpu_test_tensors.h"
#include "kernels/cuda/sampling/draws_for_tests.h"

namespace slime::kernels {
namespace {

/// All rows at once, each with a report. What is handed over is read as the engine does.
std::vector<SampledToken> report_on_gpu(const std::vector<Draw>& draws, int64_t& num_handed_over) {
  const auto rows = static_cast<int64_t>(draws.size());
  const auto vocab = static_cast<int64_t>(draws.front().logits.size());
  std::vector<double> uniforms;
  std::vector<float> temperatures, top_ps, min_ps, logits;
  std::vector<int32_t> top_ks;
  std::vector<RowExtras> extras(rows);
  const Tensor reports =
      at::full({rows, vocab + 2 * vocab + kMostReported}, -7, at::TensorOptions(at::kInt))
          .pin_memory();
  for (int64_t row = 0; row < rows; ++row) {
    const SampleOptions& options = draws[row].options;
    uniforms.push_back(options.uniform);
    temperatures.push_back(static_cast<float>(options.temperature));
    top_ps.push_back(static_cast<float>(options.top_p));
    min_ps.push_back(static_cast<float>(options.min_p));
    top_ks.push_back(options.greedy ? 0 : static_cast<int32_t>(options.top_k));
    logits.insert(logits.end(), draws[row].logits.begin(), draws[row].logits.end());
    extras[row].num_top = static_cast<int32_t>(options.num_top);
    extras[row].keeps_ids = options.keeps_ids && is_truncated(options, vocab) ? 1 : 0;
    extras[row].report = reinterpret_cast<uint32_t*>(reports[row].data_ptr<int32_t>());
  }
  const auto kExtrasBytes = static_cast<int64_t>(sizeof(RowExtras));
  SampleRows parameters{to_gpu(uniforms, at::kDouble), to_gpu(temperatures, at::kFloat),
                        to_gpu(top_ps, at::kFloat),    to_gpu(min_ps, at::kFloat),
                        to_gpu(top_ks, at::kInt),      {}};
  parameters.extras_R =
      at::from_blob(extras.data(), {rows, kExtrasBytes}, at::TensorOptions(at::kByte))
          .to(at::kCUDA);
  const SampledRows sampled{to_gpu(std::vector<int32_t>(rows, -7), at::kInt),
                            to_gpu(std::vector<float>(rows, 7), at::kFloat),
                            to_gpu(std::vector<int32_t>(rows, -7), at::kInt)};
  open_gpu().sample(to_gpu(logits, at::kFloat).view({rows, vocab}), parameters, sampled);
  const Tensor ids = sampled.token_R.to(at::kCPU), log_probs = sampled.log_prob_R.to(at::kCPU),
               num_kept = sampled.num_kept_R.to(at::kCPU);
  std::vector<SampledToken> tokens(rows);
  for (int64_t row = 0; row < rows; ++row) {
    SampledToken& token = tokens[row];
    token.id = ids[row].item<int32_t>();
    const uint32_t* words = extras[row].report;
    const auto kept = num_kept[row].item<int32_t>();
    if (kept == kHandedOver) {
      ++num_handed_over;
      token = report_row({reinterpret_cast<const float*>(words), static_cast<size_t>(vocab)},
                         token.id, draws[row].options);
      continue;
    }
    token.log_prob = log_probs[row].item<float>();
    const int64_t num_top = std::min(draws[row].options.num_top, vocab);
    for (int64_t i = 0; i < num_top; ++i) {
      const auto id = static_cast<int32_t>(words[2 * i + 1]);
      if (id < 0) break;
      token.top.emplace_back(std::bit_cast<float>(words[2 * i]), id);
    }
    token.kept_ids.assign(words + 2 * num_top, words + 2 * num_top + kept);
  }
  return tokens;
}

/// How many rows were handed over.
int64_t expect_what_the_cpu_reports(const std::vector<Draw>& draws) {
  int64_t num_handed_over = 0;
  const std::vector<SampledToken> tokens = report_on_gpu(draws, num_handed_over);
  for (size_t row = 0; row < draws.size(); ++row) {
    const SampledToken expected = sample_row(draws[row].logits, draws[row].options);
    const SampledToken& token = tokens[row];
    const std::string where = "row " + std::to_string(row);
    EXPECT_EQ(token.id, expected.id) << where;
    EXPECT_NEAR(token.log_prob, expected.log_prob, 2e-6 + 2e-7 * std::abs(expected.log_prob))
        << where;
    EXPECT_EQ(token.kept_ids, expected.kept_ids) << where;
    EXPECT_EQ(token.top.size(), expected.top.size()) << where;
    for (size_t i = 0; i < std::min(token.top.size(), expected.top.size()); ++i) {
      const auto [log_prob, id] = expected.top[i];
      EXPECT_EQ(token.top[i].second, id) << where << ", best " << i;
      EXPECT_NEAR(token.top[i].first, log_prob, 2e-6 + 2e-7 * std::abs(log_prob));
    }
  }
  return num_handed_over;
}

/// Noise, few different logits, equal ones, few that are possible.
std::vector<std::vector<float>> kinds_of_rows(int64_t vocab, uint64_t stream) {
  std::vector<std::vector<float>> rows{
      noisy_logits(vocab, 3, stream), noisy_logits(vocab, 2, stream + 1),
      std::vector<float>(vocab, -1.5F), noisy_logits(vocab, 3, stream + 2)};
  for (float& x : rows[1]) x = std::round(x);
  for (int64_t v = 0; v < vocab; ++v)
    if (v % 997 != 5 % vocab) rows[3][v] = kNever;
  return rows;
}

std::vector<Draw> draws_with_best(int64_t vocab, std::initializer_list<int64_t> counts) {
  std::vector<Draw> draws;
  for (const int64_t count : counts) {
    for (auto& logits : kinds_of_rows(vocab, draws.size())) {
      SampleOptions options;
      options.num_top = count;
      options.temperature = draws.size() % 2 == 0 ? 1.0 : 0.6;
      options.greedy = draws.size() % 3 == 0;
      options.uniform = uniform(19, draws.size(), 0);
      draws.push_back({options, std::move(logits)});
    }
  }
  return draws;
}

TEST(GpuRowReport, HasTheBestTokensOfTheCpu) {
  SLIME_NEEDS_GPU();
  for (const int64_t vocab : {int64_t{1}, int64_t{384}, int64_t{4097}, kSmallVocab})
    EXPECT_EQ(expect_what_the_cpu_reports(draws_with_best(vocab, {1, 2, 5, 20, 4096})), 0);
}

TEST(GpuRowReport, HasTheBestTokensOfALargeVocabulary) {
  SLIME_NEEDS_GPU();
  EXPECT_EQ(expect_what_the_cpu_reports(draws_with_best(kLargeVocab, {1, 5, 20, 38, 39, 1000})), 0);
}

TEST(GpuRowReport, MoreBestTokensThanAreSortedComeFromTheLogits) {
  SLIME_NEEDS_GPU();
  const auto draws = draws_with_best(kSmallVocab, {4097, 30000});
  EXPECT_EQ(expect_what_the_cpu_reports(draws), static_cast<int64_t>(draws.size()));
}

std::vector<Draw> draws_with_kept_ids(int64_t vocab, double scale) {
  std::vector<Draw> draws;
  for (const SampleOptions& kind :
       std::initializer_list<SampleOptions>{{.top_p = 0.9},
                                            {.top_k = 50},
                                            {.min_p = 0.05},
                                            {.top_k = 300, .top_p = 0.8},
                                            {.top_k = 40, .top_p = 0.999999, .min_p = 1e-3}}) {
    for (const int64_t num_top : {0, 3}) {
      SampleOptions options = kind;
      options.keeps_ids = true;
      options.num_top = num_top;
      options.temperature = 0.7;
      options.uniform = uniform(20, draws.size(), 0);
      draws.push_back({options, noisy_logits(vocab, scale, draws.size())});
    }
  }
  return draws;
}

TEST(GpuRowReport, HasTheKeptIdsOfTheCpu) {
  SLIME_NEEDS_GPU();
  for (const int64_t vocab : {int64_t{2}, int64_t{384}, kSmallVocab})
    EXPECT_EQ(expect_what_the_cpu_reports(draws_with_kept_ids(vocab, 4)), 0);
}

TEST(GpuRowReport, HasTheKeptIdsOfALargeVocabulary) {
  SLIME_NEEDS_GPU();
  EXPECT_EQ(expect_what_the_cpu_reports(draws_with_kept_ids(kLargeVocab, 4)), 0);
}

/// Farther tokens than the device looks at are kept by rank alone.
TEST(GpuRowReport, KeptIdsOfNoProbabilityComeFromTheLogits) {
  SLIME_NEEDS_GPU();
  std::vector<float> logits = noisy_logits(kSmallVocab, 1, 3);
  logits[77] = 90;
  EXPECT_EQ(
      expect_what_the_cpu_reports({{{.top_k = 5, .uniform = 0.4, .keeps_ids = true}, logits}}), 1);
}

/// As a network with random weights has them. The token is the device's, the list is the CPU's.
TEST(GpuRowReport, TooManyKeptIdsComeFromTheLogits) {
  SLIME_NEEDS_GPU();
  int64_t num_handed_over = 0;
  const std::vector<float> logits = noisy_logits(kSmallVocab, 0.3, 1);
  const SampleOptions options{.top_p = 0.9, .uniform = 0.3, .keeps_ids = true, .num_top = 2};
  const auto tokens = report_on_gpu({{options, logits}}, num_handed_over);
  EXPECT_EQ(num_handed_over, 1);
  const SampledToken expected = sample_row(logits, options);
  EXPECT_EQ(tokens[0].kept_ids, expected.kept_ids);
  EXPECT_EQ(tokens[0].top, expected.top);
  EXPECT_NEAR(tokens[0].log_prob, expected.log_prob, 1e-3);  // a neighbour at the most
}

TEST(GpuRowReport, RowsThatAreNoNumbersHaveNone) {
  SLIME_NEEDS_GPU();
  std::vector<float> bad(9000, 1.0F);
  bad[8000] = std::numeric_limits<float>::quiet_NaN();
  int64_t num_handed_over = 0;
  const auto tokens =
      report_on_gpu({{{.top_p = 0.9, .keeps_ids = true, .num_top = 5}, bad}}, num_handed_over);
  EXPECT_EQ(num_handed_over, 0);
  EXPECT_TRUE(std::isnan(tokens[0].log_prob));
  EXPECT_TRUE(tokens[0].kept_ids.empty());
}

}  // namespace
}  // namespace slime::kernels
