#pragma once

/// Eight floats at a time: what the AVX2 kernels of this folder share. Include only from files that
/// are entered after has_avx2() said yes.

#include <immintrin.h>

#include <cstdint>

#define SLIME_AVX2 [[gnu::target("avx2,fma")]]
#define SLIME_AVX2_INLINE [[gnu::target("avx2,fma"), gnu::always_inline]] inline

namespace slime::kernels {

SLIME_AVX2_INLINE __m256 load8(const float* from) { return _mm256_loadu_ps(from); }

/// bfloat16 to float32: the upper half of the bits.
SLIME_AVX2_INLINE __m256 load8(const uint16_t* from) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/// e^x for x <= 88, relative error below 2e-7; 0 below -87 and for -infinity. Cody-Waite reduction
/// to |r| <= ln 2 / 2, then the degree-6 polynomial of Cephes' expf.
SLIME_AVX2_INLINE __m256 exp8(__m256 x) {
  const __m256 lowest = _mm256_set1_ps(-87.0F);
  const __m256 is_normal = _mm256_cmp_ps(x, lowest, _CMP_GE_OQ);
  x = _mm256_max_ps(x, lowest);
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504088896341F)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375F), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4F), r);
  __m256 p = _mm256_set1_ps(1.9875691500e-4F);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1F));
  p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0F)));
  const __m256i exponent =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_and_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(exponent)), is_normal);
}

/// tanh x, relative error below 3e-7: the polynomial of Cephes' tanhf up to 0.625, beyond from e^2x.
SLIME_AVX2_INLINE __m256 tanh8(__m256 x) {
  const __m256 sign_bit = _mm256_set1_ps(-0.0F), one = _mm256_set1_ps(1.0F);
  const __m256 size = _mm256_andnot_ps(sign_bit, x);
  const __m256 square = _mm256_mul_ps(x, x);
  __m256 p = _mm256_set1_ps(-5.70498872745e-3F);
  p = _mm256_fmadd_ps(p, square, _mm256_set1_ps(2.06390887954e-2F));
  p = _mm256_fmadd_ps(p, square, _mm256_set1_ps(-5.37397155531e-2F));
  p = _mm256_fmadd_ps(p, square, _mm256_set1_ps(1.33314422036e-1F));
  p = _mm256_fmadd_ps(p, square, _mm256_set1_ps(-3.33332819422e-1F));
  const __m256 near = _mm256_fmadd_ps(_mm256_mul_ps(p, square), x, x);
  // From 10 on it is 1, and e^2x stays finite.
  const __m256 bounded = _mm256_min_ps(size, _mm256_set1_ps(10.0F));
  const __m256 power = exp8(_mm256_add_ps(bounded, bounded));
  const __m256 far =
      _mm256_sub_ps(one, _mm256_div_ps(_mm256_set1_ps(2.0F), _mm256_add_ps(power, one)));
  const __m256 is_small = _mm256_cmp_ps(size, _mm256_set1_ps(0.625F), _CMP_NGE_UQ);  // or NaN
  return _mm256_blendv_ps(_mm256_or_ps(far, _mm256_and_ps(sign_bit, x)), near, is_small);
}

SLIME_AVX2_INLINE float sum8(__m256 x) {
  const __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}

SLIME_AVX2_INLINE float max8(__m256 x) {
  const __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}

inline bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

}  // namespace slime::kernels
