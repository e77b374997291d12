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

/// e^x within 2e-7 relative; 0 below -87, saturates above 88.
inline float fast_exp(float x) {
  const float clamped = x < -87.0F ? -87.0F : (x > 88.0F ? 88.0F : x);
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
  return x < -87.0F ? 0.0F : p * power;
}

}  // namespace slime::kernels::cpu
