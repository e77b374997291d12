#include "kernels/cpu/adamw.h"

#include <ATen/ATen.h>
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "kernels/cpu/thread_pool.h"

namespace slime::kernels::cpu {
namespace {

/// Elements a thread takes at a time: large enough to amortise scheduling, small enough to balance
/// two threads.
constexpr int64_t kBlock = int64_t{1} << 16;

/// The step's constants, computed once in double and rounded once.
template <typename Real>
struct Constants {
  Real decay, beta1, one_minus_beta1, beta2, one_minus_beta2, eps, grad_scale, step_size,
      inverse_sqrt_correction2;

  Constants(const AdamStep& step, bool decays) {
    const double correction1 = 1 - std::pow(step.beta1, static_cast<double>(step.step));
    const double correction2 = 1 - std::pow(step.beta2, static_cast<double>(step.step));
    decay = static_cast<Real>(decays ? 1 - step.lr * step.weight_decay : 1.0);
    beta1 = static_cast<Real>(step.beta1);
    one_minus_beta1 = static_cast<Real>(1 - step.beta1);
    beta2 = static_cast<Real>(step.beta2);
    one_minus_beta2 = static_cast<Real>(1 - step.beta2);
    eps = static_cast<Real>(step.eps);
    grad_scale = static_cast<Real>(step.grad_scale);
    step_size = static_cast<Real>(step.lr / correction1);
    inverse_sqrt_correction2 = static_cast<Real>(1 / std::sqrt(correction2));
  }
};

/// The update of one element; the vector form below is the same operations in the same order.
template <typename Real>
inline Real update(Real w, Real& m, Real& v, Real grad, const Constants<Real>& c) {
  const Real g = grad * c.grad_scale;
  m = c.beta1 * m + c.one_minus_beta1 * g;
  v = c.beta2 * v + c.one_minus_beta2 * (g * g);
  const Real denominator = std::sqrt(v) * c.inverse_sqrt_correction2 + c.eps;
  return c.decay * w - c.step_size * (m / denominator);
}

template <typename Weight, typename Real>
struct Buffers {
  Weight* weights;
  Real* master;
  Real* m;
  Real* v;
  const Real* grad;
};

template <typename Weight, typename Real>
void update_block(const Buffers<Weight, Real>& b, int64_t begin, int64_t end,
                  const Constants<Real>& c) {
  for (int64_t i = begin; i < end; ++i) {
    b.master[i] = update(b.master[i], b.m[i], b.v[i], b.grad[i], c);
    if constexpr (!std::is_same_v<Weight, Real>) b.weights[i] = static_cast<Weight>(b.master[i]);
  }
}

/// Eight float32 to eight bfloat16, to nearest even; NaN stays NaN.
__attribute__((target("avx2"))) inline __m128i to_bfloat16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i halves = _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc0), is_nan);
  const __m256i packed = _mm256_packus_epi32(halves, halves);
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0b11011000));
}

/// The same as update_block, eight elements at a time. Multiplications and additions are not fused,
/// so that both forms and all processors agree to the last bit.
template <typename Weight>
__attribute__((target("avx2"))) void update_block_avx2(const Buffers<Weight, float>& b,
                                                       int64_t begin, int64_t end,
                                                       const Constants<float>& c) {
  const __m256 decay = _mm256_set1_ps(c.decay);
  const __m256 beta1 = _mm256_set1_ps(c.beta1), one_minus_beta1 = _mm256_set1_ps(c.one_minus_beta1);
  const __m256 beta2 = _mm256_set1_ps(c.beta2), one_minus_beta2 = _mm256_set1_ps(c.one_minus_beta2);
  const __m256 eps = _mm256_set1_ps(c.eps), grad_scale = _mm256_set1_ps(c.grad_scale);
  const __m256 step_size = _mm256_set1_ps(c.step_size);
  const __m256 inverse_sqrt_correction2 = _mm256_set1_ps(c.inverse_sqrt_correction2);
  int64_t i = begin;
  for (; i + 8 <= end; i += 8) {
    const __m256 g = _mm256_mul_ps(_mm256_loadu_ps(b.grad + i), grad_scale);
    const __m256 m = _mm256_add_ps(_mm256_mul_ps(beta1, _mm256_loadu_ps(b.m + i)),
                                   _mm256_mul_ps(one_minus_beta1, g));
    const __m256 v = _mm256_add_ps(_mm256_mul_ps(beta2, _mm256_loadu_ps(b.v + i)),
                                   _mm256_mul_ps(one_minus_beta2, _mm256_mul_ps(g, g)));
    _mm256_storeu_ps(b.m + i, m);
    _mm256_storeu_ps(b.v + i, v);
    const __m256 denominator =
        _mm256_add_ps(_mm256_mul_ps(_mm256_sqrt_ps(v), inverse_sqrt_correction2), eps);
    const __m256 w = _mm256_sub_ps(_mm256_mul_ps(decay, _mm256_loadu_ps(b.master + i)),
                                   _mm256_mul_ps(step_size, _mm256_div_ps(m, denominator)));
    _mm256_storeu_ps(b.master + i, w);
    if constexpr (std::is_same_v<Weight, at::BFloat16>) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(b.weights + i), to_bfloat16(w));
    }
  }
  update_block(b, i, end, c);
}

template <typename Weight, typename Real>
void run(const Tensor& weights_N, const Tensor& master_N, const Tensor& first_moment_N,
         const Tensor& second_moment_N, const Tensor& grad_N, std::span<const AdamRange> ranges,
         const AdamStep& step) {
  const Buffers<Weight, Real> buffers{
      weights_N.mutable_data_ptr<Weight>(), master_N.mutable_data_ptr<Real>(),
      first_moment_N.mutable_data_ptr<Real>(), second_moment_N.mutable_data_ptr<Real>(),
      grad_N.const_data_ptr<Real>()};
  const bool has_avx2 = __builtin_cpu_supports("avx2");
  for (const AdamRange& range : ranges) {
    const Constants<Real> constants(step, range.decays);
    parallel_chunks((range.end - range.begin + kBlock - 1) / kBlock, [&](int64_t block) {
      const int64_t begin = range.begin + block * kBlock;
      const int64_t end = std::min(begin + kBlock, range.end);
      if constexpr (std::is_same_v<Real, float> && !std::is_same_v<Weight, at::Half>) {
        if (has_avx2) return update_block_avx2(buffers, begin, end, constants);
      }
      update_block(buffers, begin, end, constants);
    });
  }
}

template <typename Real>
double sum_of_squares_block(const Real* x, int64_t count) {
  // Eight independent sums: the compiler may keep them in registers, and the order is the same
  // everywhere.
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int lane = 0; lane < 8; ++lane)
      sums[lane] += static_cast<double>(x[i + lane]) * x[i + lane];
  }
  for (; i < count; ++i) sums[0] += static_cast<double>(x[i]) * x[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

template <typename Real>
double sum_of_squares_of(const Tensor& x_N) {
  const int64_t count = x_N.numel();
  const auto* x = x_N.const_data_ptr<Real>();
  std::vector<double> blocks((count + kBlock - 1) / kBlock);
  parallel_chunks(static_cast<int64_t>(blocks.size()), [&](int64_t i) {
    blocks[i] = sum_of_squares_block(x + i * kBlock, std::min(kBlock, count - i * kBlock));
  });
  double total = 0;
  for (const double block : blocks) total += block;
  return total;
}

}  // namespace

void adamw_(const Tensor& weights_N, const Tensor& master_N, const Tensor& first_moment_N,
            const Tensor& second_moment_N, const Tensor& grad_N, std::span<const AdamRange> ranges,
            const AdamStep& step) {
  const auto real = weights_N.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  for (const Tensor* buffer : {&master_N, &first_moment_N, &second_moment_N, &grad_N}) {
    check(buffer->scalar_type() == real && buffer->is_contiguous() &&
              buffer->numel() == weights_N.numel(),
          "optimizer buffers are contiguous, as long as the weights, in float32 or with the "
          "weights in float64");
  }
  switch (weights_N.scalar_type()) {
    case at::kDouble:
      return run<double, double>(weights_N, master_N, first_moment_N, second_moment_N, grad_N,
                                 ranges, step);
    case at::kFloat:
      return run<float, float>(weights_N, master_N, first_moment_N, second_moment_N, grad_N, ranges,
                               step);
    case at::kBFloat16:
      return run<at::BFloat16, float>(weights_N, master_N, first_moment_N, second_moment_N, grad_N,
                                      ranges, step);
    case at::kHalf:
      return run<at::Half, float>(weights_N, master_N, first_moment_N, second_moment_N, grad_N,
                                  ranges, step);
    default:
      throw BugError("weights are bfloat16, float16, float32 or float64");
  }
}

double sum_of_squares(const Tensor& x_N) {
  if (x_N.scalar_type() == at::kDouble) return sum_of_squares_of<double>(x_N);
  check(x_N.scalar_type() == at::kFloat, "sum_of_squares reads float32 or float64");
  return sum_of_squares_of<float>(x_N);
}

}  // namespace slime::kernels::cpu
