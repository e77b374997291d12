#pragma once

/// Scalar arithmetic written so that the compiler turns loops over it into vector code (`#pragma
/// omp simd`).

#include <ATen/ATen.h>

#include <cstdint>
#include <cstring>

namespace slime::kernels::cpu {

inline float bits_to_float(uint32_t bits) {
  float out;
  std::memcpy(&out, &bits, sizeof(out));
  return out;
}
inline uint32_t float_to_bits(float x) {
  uint32_t out;
  std::memcpy(&out, &x, sizeof(out));
  return out;
}

inline float load(const float* from) { return *from; }
inline float load(const at::BFloat16* from) {
  return bits_to_float(static_cast<uint32_t>(from->x) << 16);
}
inline float load(const at::Half* from) { return static_cast<float>(*from); }

inline void store(float* to, float x) { *to = x; }
/// Rounds to nearest, ties to even; a NaN keeps its upper half, which is a NaN for those the
/// processor makes.
inline void store(at::BFloat16* to, float x) {
  const uint32_t bits = float_to_bits(x);
  const uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
  to->x = static_cast<uint16_t>((x != x ? bits : rounded) >> 16);
}

/// e^x within 3e-7 relative; 0 below -87, saturates above 88, NaN for a positive NaN. Limits are
/// masks of bits: comparisons of floats may trap and branches may skip what traps, so the compiler
/// would keep either scalar.
inline float fast_exp(float x) {
  constexpr uint32_t kLowest = 0xC2AE0000;   // -87; of two negative numbers the lower has more bits
  constexpr uint32_t kHighest = 0x42B00000;  // 88
  constexpr uint32_t kInfinity = 0x7F800000;
  const uint32_t bits = float_to_bits(x);
  const uint32_t vanishes = 0U - static_cast<uint32_t>(bits > kLowest);
  const uint32_t saturates = 0U - static_cast<uint32_t>(bits - kHighest <= kInfinity - kHighest);
  const float clamped = bits_to_float((bits & ~(vanishes | saturates)) | (kLowest & vanishes) |
                                      (kHighest & saturates));
  const float shifted =
      clamped * 1.44269504F + 12582912.0F;  // adding 1.5 * 2^23 rounds to an integer
  const float n = shifted - 12582912.0F;
  const float r = (clamped - n * 0.693145752F) - n * 1.42860677e-6F;  // ln 2 in two parts
  float p = 1.38888889e-3F;
  p = p * r + 8.33333333e-3F;
  p = p * r + 4.16666667e-2F;
  p = p * r + 1.66666667e-1F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const float power = bits_to_float((float_to_bits(shifted) + 127U) << 23);
  return bits_to_float(float_to_bits(p * power) & ~vanishes);
}

/// tanh x within 2e-7 relative, of finite numbers. Polynomial and exponential are both taken, and one is
/// chosen by masks of bits, for the same reason.
inline float fast_tanh(float x) {
  constexpr uint32_t kSmall = 0x3F200000;  // 0.625
  const uint32_t sign = float_to_bits(x) & 0x80000000U;
  const uint32_t size = float_to_bits(x) & 0x7FFFFFFFU;
  const float square = x * x;
  float p = -5.70498872745e-3F;
  p = p * square + 2.06390887954e-2F;
  p = p * square - 5.37397155531e-2F;
  p = p * square + 1.33314422036e-1F;
  p = p * square - 3.33332819422e-1F;
  const float near = p * square * x + x;
  const float far = 1.0F - 2.0F / (fast_exp(2.0F * bits_to_float(size)) + 1.0F);
  const uint32_t is_small = 0U - static_cast<uint32_t>(size < kSmall);
  return bits_to_float((float_to_bits(near) & is_small) |
                       ((float_to_bits(far) | sign) & ~is_small));
}

/// x = cap * tanh(scale * x / cap) for x[0 .. size).
inline void soft_cap(float* x, int64_t size, float scale, float cap) {
  const float factor = scale / cap;
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) x[i] = cap * fast_tanh(x[i] * factor);
}

/// The largest of x[0 .. size), at least -infinity; NaNs are passed over. In vectors by hand: the
/// compiler does not reorder a maximum of floats.
inline float largest_of(const float* x, int64_t size) {
  using Vector = float __attribute__((vector_size(32)));
  constexpr int64_t kLanes = 8;
  float largest = -__builtin_inff();
  int64_t i = 0;
  if (size >= 2 * kLanes) {
    Vector a, b, next;
    std::memcpy(&a, x, sizeof(a));
    std::memcpy(&b, x + kLanes, sizeof(b));
    for (i = 2 * kLanes; i + 2 * kLanes <= size; i += 2 * kLanes) {
      std::memcpy(&next, x + i, sizeof(next));
      a = next > a ? next : a;
      std::memcpy(&next, x + i + kLanes, sizeof(next));
      b = next > b ? next : b;
    }
    a = b > a ? b : a;
    for (int64_t lane = 0; lane < kLanes; ++lane) largest = a[lane] > largest ? a[lane] : largest;
  }
  for (; i < size; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

}  // namespace slime::kernels::cpu
