#include "kernels/cpu/sample_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/vector_avx2.h"

namespace slime::kernels {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

SLIME_AVX2 float largest_avx2(const float* x, int64_t count) {
  __m256 a = _mm256_set1_ps(kNever);
  __m256 b = a;
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    a = _mm256_max_ps(a, load8(x + i));
    b = _mm256_max_ps(b, load8(x + i + 8));
  }
  float largest = max8(_mm256_max_ps(a, b));
  for (; i < count; ++i) largest = std::max(largest, x[i]);
  return largest;
}

SLIME_AVX2 double exp_sum_avx2(const float* x, int64_t count, float max,
                               float inverse_temperature) {
  const __m256 shift = _mm256_set1_ps(max);
  const __m256 factor = _mm256_set1_ps(inverse_temperature);
  __m256 a = _mm256_setzero_ps();
  __m256 b = a;
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    a = _mm256_add_ps(a, exp8(_mm256_mul_ps(_mm256_sub_ps(load8(x + i), shift), factor)));
    b = _mm256_add_ps(b, exp8(_mm256_mul_ps(_mm256_sub_ps(load8(x + i + 8), shift), factor)));
  }
  double sum = sum8(_mm256_add_ps(a, b));
  for (; i < count; ++i) sum += std::exp((x[i] - max) * inverse_temperature);
  return sum;
}

/// The same sum, and in `weighted` that of the terms times (x - max) / temperature.
SLIME_AVX2 double weighted_exp_sum_avx2(const float* x, int64_t count, float max,
                                        float inverse_temperature, double& weighted) {
  const __m256 shift = _mm256_set1_ps(max);
  const __m256 factor = _mm256_set1_ps(inverse_temperature);
  __m256 a = _mm256_setzero_ps();
  __m256 b = a, weighted_a = a, weighted_b = a;
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256 u = _mm256_mul_ps(_mm256_sub_ps(load8(x + i), shift), factor);
    const __m256 v = _mm256_mul_ps(_mm256_sub_ps(load8(x + i + 8), shift), factor);
    const __m256 of_u = exp8(u), of_v = exp8(v);
    a = _mm256_add_ps(a, of_u);
    b = _mm256_add_ps(b, of_v);
    weighted_a = _mm256_fmadd_ps(of_u, u, weighted_a);
    weighted_b = _mm256_fmadd_ps(of_v, v, weighted_b);
  }
  double sum = sum8(_mm256_add_ps(a, b));
  weighted += sum8(_mm256_add_ps(weighted_a, weighted_b));
  for (; i < count; ++i) {
    const float u = (x[i] - max) * inverse_temperature;
    const float term = std::exp(u);
    sum += term;
    if (term > 0) weighted += term * u;
  }
  return sum;
}

SLIME_AVX2 void collect_avx2(const float* x, int64_t count, int64_t first_id, float threshold,
                             std::vector<std::pair<float, int32_t>>& out) {
  const __m256 limit = _mm256_set1_ps(threshold);
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    int mask = _mm256_movemask_ps(_mm256_cmp_ps(load8(x + i), limit, _CMP_GE_OQ));
    for (; mask != 0; mask &= mask - 1) {
      const int64_t at = i + __builtin_ctz(mask);
      out.emplace_back(x[at], static_cast<int32_t>(first_id + at));
    }
  }
  for (; i < count; ++i) {
    if (x[i] >= threshold) out.emplace_back(x[i], static_cast<int32_t>(first_id + i));
  }
}

float largest_portable(const float* x, int64_t count) { return *std::max_element(x, x + count); }

double exp_sum_portable(const float* x, int64_t count, float max, float inverse_temperature) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp((x[i] - max) * inverse_temperature);
  return sum;
}

double weighted_exp_sum_portable(const float* x, int64_t count, float max,
                                 float inverse_temperature, double& weighted) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float u = (x[i] - max) * inverse_temperature;
    const float term = std::exp(u);
    sum += term;
    if (term > 0) weighted += term * u;
  }
  return sum;
}

}  // namespace

TargetStatistics target_statistics(std::span<const float> logits_V, int64_t target,
                                   double temperature) {
  const bool wide = has_avx2();
  const auto vocab = static_cast<int64_t>(logits_V.size());
  const auto inverse_temperature = static_cast<float>(1.0 / temperature);
  const float max =
      wide ? largest_avx2(logits_V.data(), vocab) : largest_portable(logits_V.data(), vocab);
  double total = 0, weighted = 0;
  for (int64_t begin = 0; begin < vocab; begin += kRowBlock) {
    const float* x = logits_V.data() + begin;
    const int64_t count = std::min(kRowBlock, vocab - begin);
    total += wide ? weighted_exp_sum_avx2(x, count, max, inverse_temperature, weighted)
                  : weighted_exp_sum_portable(x, count, max, inverse_temperature, weighted);
  }
  const double log_sum = std::log(total);
  const double logit = target < 0 ? 0.0 : static_cast<double>(logits_V[target]);
  return {static_cast<float>((logit - static_cast<double>(max)) / temperature - log_sum),
          static_cast<float>(log_sum - weighted / total),
          static_cast<float>(log_sum + static_cast<double>(max) / temperature)};
}

void measure_row(std::span<const float> logits_V, float inverse_temperature, RowStatistics& row) {
  const bool wide = has_avx2();
  const auto vocab = static_cast<int64_t>(logits_V.size());
  const int64_t num_blocks = (vocab + kRowBlock - 1) / kRowBlock;
  row.block_max.resize(num_blocks);
  row.block_sum.resize(num_blocks);
  row.max = kNever;
  int64_t best_block = 0;
  for (int64_t block = 0; block < num_blocks; ++block) {
    const float* x = logits_V.data() + block * kRowBlock;
    const int64_t count = std::min(kRowBlock, vocab - block * kRowBlock);
    row.block_max[block] = wide ? largest_avx2(x, count) : largest_portable(x, count);
    if (row.block_max[block] > row.max) {
      row.max = row.block_max[block];
      best_block = block;
    }
  }
  row.argmax = 0;
  row.total = std::numeric_limits<double>::quiet_NaN();
  if (!std::isfinite(row.max)) return;
  const float* best = logits_V.data() + best_block * kRowBlock;
  row.argmax =
      static_cast<int32_t>(std::find(best, logits_V.data() + vocab, row.max) - logits_V.data());
  row.total = 0;
  for (int64_t block = 0; block < num_blocks; ++block) {
    const float* x = logits_V.data() + block * kRowBlock;
    const int64_t count = std::min(kRowBlock, vocab - block * kRowBlock);
    row.block_sum[block] = wide ? exp_sum_avx2(x, count, row.max, inverse_temperature)
                                : exp_sum_portable(x, count, row.max, inverse_temperature);
    row.total += row.block_sum[block];
  }
}

void collect_at_least(std::span<const float> logits_V, float threshold,
                      std::vector<std::pair<float, int32_t>>& out) {
  threshold = std::max(threshold, std::numeric_limits<float>::lowest());
  const auto vocab = static_cast<int64_t>(logits_V.size());
  if (has_avx2()) return collect_avx2(logits_V.data(), vocab, 0, threshold, out);
  for (int64_t i = 0; i < vocab; ++i) {
    if (logits_V[i] >= threshold) out.emplace_back(logits_V[i], static_cast<int32_t>(i));
  }
}

}  // namespace slime::kernels
