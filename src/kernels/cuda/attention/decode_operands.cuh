#pragma once

/// Pages of decode attention as tensor-core operands: keys and values come straight from memory in
/// the order in which the instruction takes them, and queries are permuted to match.
///
/// lane = 4 group + quarter; `group` is a row within the eight of a warp's set.

#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::decode {

/// Keys and values are T, or fp8 (e4m3) under T activations; then tensor-core operands are float16,
/// which holds every e4m3 number exactly.
template <typename T, typename Kv>
using Operand = std::conditional_t<sizeof(Kv) == 1, Float16, T>;

/// Keys of one page: those of this lane's two rows, 16 bytes at a time.
template <typename Kv, int kDim>
struct Keys {
  static constexpr int kPacks = kDim * static_cast<int>(sizeof(Kv)) / 64;
  uint4 x[2][kPacks];
};
/// Values of one page: those of this lane's four keys, a share of their dims.
template <typename Kv, int kDim>
struct Values {
  static constexpr int kWords = kDim * static_cast<int>(sizeof(Kv)) / 32;
  uint32_t x[4][kWords];
};

template <typename Kv, int kDim>
__device__ void load_keys(Keys<Kv, kDim>& keys, const Kv* page, int group, int quarter) {
  constexpr int kNumbers = 16 / static_cast<int>(sizeof(Kv));  // in a pack
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < Keys<Kv, kDim>::kPacks; ++j)
      keys.x[half][j] = load_once(page + (group + 8 * half) * kDim + kNumbers * (4 * j + quarter));
  }
}

/// The key of the page to which the k-th row of a lane's values belongs.
__device__ inline int key_of_value(int k, int quarter) {
  return 2 * quarter + (k & 1) + 8 * (k >> 1);
}

/// Rows at `valid` and beyond were never written, and may be no numbers.
template <typename Kv, int kDim>
__device__ void load_values(Values<Kv, kDim>& values, const Kv* page, int group, int quarter,
                            int valid) {
  constexpr int kWords = Values<Kv, kDim>::kWords;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int key = key_of_value(k, quarter);
    uint32_t(&words)[kWords] = values.x[k];
    const Kv* row = page + key * kDim;
#pragma unroll
    for (int w = 0; w < kWords; ++w) words[w] = 0;
    if (key >= valid) continue;
    if constexpr (kWords == 2) {
      const uint2 x = load_half_once(row + 8 * group);
      words[0] = x.x;
      words[1] = x.y;
    } else {
#pragma unroll
      for (int j = 0; j < kWords / 4; ++j) {
        const uint4 x = load_once(row + (8 * j + group) * (16 / static_cast<int>(sizeof(Kv))));
        words[4 * j] = x.x;
        words[4 * j + 1] = x.y;
        words[4 * j + 2] = x.z;
        words[4 * j + 3] = x.w;
      }
    }
  }
}

/// Replaces row `row` of the page, in registers, by a key and its value from shared memory.
template <typename Kv, int kDim>
__device__ void replace_row(Keys<Kv, kDim>& keys, Values<Kv, kDim>& values, const Kv* key,
                            const Kv* value, int row, int group, int quarter) {
  constexpr int kWords = Values<Kv, kDim>::kWords;
  const SharedAddress key_at = shared_address(key);
  const SharedAddress value_at = shared_address(value);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < Keys<Kv, kDim>::kPacks; ++j) {
      uint4& x = keys.x[half][j];
      load_shared_if(group + 8 * half == row, key_at + 16 * (4 * j + quarter), x.x, x.y, x.z, x.w);
    }
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const bool wanted = key_of_value(k, quarter) == row;
    uint32_t(&x)[kWords] = values.x[k];
    if constexpr (kWords == 2) {
      load_shared_if(wanted, value_at + 8 * group, x[0], x[1]);
    } else {
#pragma unroll
      for (int j = 0; j < kWords / 4; ++j)
        load_shared_if(wanted, value_at + 16 * (8 * j + group), x[4 * j], x[4 * j + 1],
                       x[4 * j + 2], x[4 * j + 3]);
    }
  }
}

/// The dim that lane `group` has in the upper half of tile r of the result; the lower half has the
/// next one.
template <typename Kv, int kDim>
__device__ int dim_of(int r, int group) {
  if constexpr (sizeof(Kv) == 1) return kDim / 8 * group + 2 * r;
  return 64 * (r / 4) + 8 * group + 2 * (r % 4);
}

/// Two bfloat16 numbers as float16, as far as that reaches.
__device__ inline uint32_t to_half(uint32_t two) {
  constexpr float kMost = 65504;
  const float2 x = unpack<BFloat16>(two);
  return pack<Float16>(fminf(fmaxf(x.x, -kMost), kMost), fminf(fmaxf(x.y, -kMost), kMost));
}

/// A lane's share of a query row, in the order of its keys.
template <typename T, typename Kv, int kDim>
struct Query {
  uint4 x[kDim / 32];
  __device__ void clear() {
#pragma unroll
    for (int j = 0; j < kDim / 32; ++j) x[j] = make_uint4(0, 0, 0, 0);
  }
  __device__ void load(const T* q, int quarter) {
    constexpr bool kIsNarrow = sizeof(Kv) == 1;
#pragma unroll
    for (int j = 0; j < kDim / 32; ++j) {
      const int first =
          kIsNarrow ? 64 * (j / 2) + 16 * quarter + 8 * (j % 2) : 32 * j + 8 * quarter;
      uint4 y = *reinterpret_cast<const uint4*>(q + first);
      if constexpr (kIsNarrow && !std::is_same_v<T, Float16>)
        y = make_uint4(to_half(y.x), to_half(y.y), to_half(y.z), to_half(y.w));
      x[j] = y;
    }
  }
};

/// score += query keys^T, for eight keys.
template <typename T, typename Kv, int kDim>
__device__ void score_keys(float (&score)[4], const Query<T, Kv, kDim>& query,
                           const uint4 (&keys)[Keys<Kv, kDim>::kPacks]) {
#pragma unroll
  for (int j = 0; j < Keys<Kv, kDim>::kPacks; ++j) {
    const uint4 k = keys[j];
    if constexpr (sizeof(Kv) == 1) {
      const uint4 q = query.x[2 * j], r = query.x[2 * j + 1];
      multiply<Float16>(score, q.x, 0, q.y, 0, unpack_fp8(k.x & 0xffffU), unpack_fp8(k.x >> 16));
      multiply<Float16>(score, q.z, 0, q.w, 0, unpack_fp8(k.y & 0xffffU), unpack_fp8(k.y >> 16));
      multiply<Float16>(score, r.x, 0, r.y, 0, unpack_fp8(k.z & 0xffffU), unpack_fp8(k.z >> 16));
      multiply<Float16>(score, r.z, 0, r.w, 0, unpack_fp8(k.w & 0xffffU), unpack_fp8(k.w >> 16));
    } else {
      const uint4 q = query.x[j];
      multiply<T>(score, q.x, 0, q.y, 0, k.x, k.y);
      multiply<T>(score, q.z, 0, q.w, 0, k.z, k.w);
    }
  }
}

/// Tile r of the result += values^T p^T.
template <typename T, typename Kv, int kDim>
__device__ void add_values(float (&out)[4], const Values<Kv, kDim>& values, int r,
                           const uint32_t (&p)[2]) {
  if constexpr (sizeof(Kv) == 1) {
    const uint32_t order = r % 2 == 0 ? 0x5140 : 0x7362;  // key a, key b, key a, key b
    const uint32_t early = __byte_perm(values.x[0][r / 2], values.x[1][r / 2], order);
    const uint32_t late = __byte_perm(values.x[2][r / 2], values.x[3][r / 2], order);
    multiply<Float16>(out, unpack_fp8(early & 0xffffU), unpack_fp8(early >> 16),
                      unpack_fp8(late & 0xffffU), unpack_fp8(late >> 16), p[0], p[1]);
  } else {
    const uint32_t v0 = values.x[0][r], v1 = values.x[1][r];
    const uint32_t v2 = values.x[2][r], v3 = values.x[3][r];
    multiply<T>(out, low_halves(v0, v1), high_halves(v0, v1), low_halves(v2, v3),
                high_halves(v2, v3), p[0], p[1]);
  }
}

}  // namespace slime::kernels::cuda::decode
