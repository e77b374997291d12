#pragma once

/// Lanes and fragments where waves may be wider than a group of 32 lanes: the group is an aligned part of its wave; and FP8
/// numbers without instructions for them. For targets that define BFloat16 and Float16 and what a wave can do (amd.cuh, cpu.cuh):
///   lane_of_wave()                this thread's
///   from_wave_lane(x, lane)       the x of that lane of the wave, which is in the group
///   wave_ballot(is_true)          a bit for each lane of the wave; those of other groups mean nothing
///   exchange_lane(lane), exchange_distance(distance)  the same numbers, but where a test plants a mistake
///
/// Matrix products are sums of plain multiplications here, whose operands come from other lanes one by one: right,
/// and slow. No matrix instruction is used.

#include <cstdint>
#include <type_traits>

namespace slime::kernels::cuda {

using Fp8Code = uint8_t;
struct Fp8 {
  Fp8Code code;
  __device__ explicit operator float() const { return Fp8Codes<Fp8Encoding::kFn>::decode(code); }
};
__device__ inline Fp8Code to_fp8(float x) { return Fp8Codes<Fp8Encoding::kFn>::encode(x); }
__device__ inline float from_fp8(Fp8Code x) { return Fp8Codes<Fp8Encoding::kFn>::decode(x); }

template <typename T>
__device__ inline uint16_t bits_of(T x) {
  return __builtin_bit_cast(uint16_t, x);
}
template <typename T>
__device__ inline T number_of(uint16_t bits) {
  return __builtin_bit_cast(T, bits);
}

inline constexpr unsigned kGroupLanes = 32;

/// The first lane of the group in its wave.
__device__ inline unsigned group_begin() { return lane_of_wave() & ~(kGroupLanes - 1); }
__device__ inline unsigned lane_of_group() { return lane_of_wave() & (kGroupLanes - 1); }

template <typename T>
__device__ inline T shuffle(T x, int lane) {
  return from_wave_lane(x, group_begin() + exchange_lane(lane));
}
template <typename T>
__device__ inline T shuffle_xor(T x, int distance) {
  return from_wave_lane(x, group_begin() + (lane_of_group() ^ exchange_distance(distance)));
}
/// Of the lane `distance` below; the own number where there is none.
template <typename T>
__device__ inline T shuffle_up(T x, int distance) {
  const unsigned own = lane_of_group(), below = static_cast<unsigned>(distance);
  return from_wave_lane(x, group_begin() + (own >= below ? own - below : own));
}
__device__ inline unsigned ballot(bool is_true) {
  return static_cast<unsigned>(wave_ballot(is_true) >> group_begin());
}
__device__ inline bool any_lane(bool is_true) { return ballot(is_true) != 0; }
__device__ inline unsigned reduce_add(unsigned x) {
  for (int distance = 16; distance > 0; distance /= 2) x += shuffle_xor(x, distance);
  return x;
}
__device__ inline unsigned reduce_min(unsigned x) {
  for (int distance = 16; distance > 0; distance /= 2) x = min(x, shuffle_xor(x, distance));
  return x;
}
__device__ inline unsigned reduce_max(unsigned x) {
  for (int distance = 16; distance > 0; distance /= 2) x = max(x, shuffle_xor(x, distance));
  return x;
}

/// Two floats as two 16-bit numbers, the first in the low half.
template <typename T>
__device__ inline uint32_t pack(float low, float high) {
  return bits_of(static_cast<T>(low)) | static_cast<uint32_t>(bits_of(static_cast<T>(high))) << 16;
}
/// The other way.
template <typename T>
__device__ inline float2 unpack(uint32_t two) {
  return make_float2(static_cast<float>(number_of<T>(static_cast<uint16_t>(two))),
                     static_cast<float>(number_of<T>(static_cast<uint16_t>(two >> 16))));
}

/// Two codes, the first in the low byte.
__device__ inline uint32_t pack_fp8(float low, float high) {
  return to_fp8(low) | static_cast<uint32_t>(to_fp8(high)) << 8;
}
/// Two codes, in the low half, as two Float16.
__device__ inline uint32_t unpack_fp8(uint32_t two) {
  return pack<Float16>(from_fp8(static_cast<Fp8Code>(two)),
                       from_fp8(static_cast<Fp8Code>(two >> 8)));
}

// Shared memory is read and written as any other.

__device__ inline SharedAddress shared_address(const void* pointer) {
  return reinterpret_cast<SharedAddress>(pointer);
}
template <typename T>
__device__ inline T& at_shared(SharedAddress address) {
  return *reinterpret_cast<T*>(address);
}
__device__ inline float4 load_shared(SharedAddress address) { return at_shared<float4>(address); }
__device__ inline void store_shared(SharedAddress address, uint2 x) {
  at_shared<uint2>(address) = x;
}
__device__ inline void load_shared_if(bool wanted, SharedAddress address, uint32_t& a, uint32_t& b,
                                      uint32_t& c, uint32_t& d) {
  if (!wanted) return;
  const auto x = at_shared<uint4>(address);
  a = x.x, b = x.y, c = x.z, d = x.w;
}
__device__ inline void load_shared_if(bool wanted, SharedAddress address, uint32_t& a,
                                      uint32_t& b) {
  if (!wanted) return;
  const auto x = at_shared<uint2>(address);
  a = x.x, b = x.y;
}

/// A copy of 16 bytes by the thread itself, of which `bytes` (16 or none) are read and the others become zero.
__device__ inline void copy_piece(SharedAddress to, const void* from, int bytes) {
  at_shared<uint4>(to) = bytes == 16 ? *static_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
}
// It is there when copy_piece() returns; others see it after the barrier that follows in any case.
__device__ inline void wait_for_pieces() {}
__device__ inline void commit_pieces() {}
template <int kLatest>
__device__ inline void wait_for_pieces_but() {}

template <typename T>
__device__ inline T load_past_l1(const T* from) {
  return *from;
}
template <typename T>
__device__ inline T load_read_only(const T* from) {
  return *from;
}
__device__ inline uint4 load_once(const void* from) { return *static_cast<const uint4*>(from); }
__device__ inline uint2 load_half_once(const void* from) {
  return *static_cast<const uint2*>(from);
}

// Kernels start when those before them have ended.

__device__ inline void grid_dependency_wait() {}
__device__ inline void launch_dependents() {}

/// As tensor_core.cuh has the operands.
template <typename T>
__device__ inline void multiply(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                uint32_t b0, uint32_t b1) {
  const int lane = static_cast<int>(lane_of_group()), group = lane / 4, quarter = lane % 4;
#pragma unroll 1
  for (int t = 0; t < 4; ++t) {
    const int row = 4 * group + t;
    const float2 upper = unpack<T>(shuffle(a0, row)), lower = unpack<T>(shuffle(a1, row));
    const float2 upper_late = unpack<T>(shuffle(a2, row)), lower_late = unpack<T>(shuffle(a3, row));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = 4 * (2 * quarter + i) + t;
      const float2 early = unpack<T>(shuffle(b0, column)), late = unpack<T>(shuffle(b1, column));
      c[i] += upper.x * early.x + upper.y * early.y + upper_late.x * late.x + upper_late.y * late.y;
      c[2 + i] +=
          lower.x * early.x + lower.y * early.y + lower_late.x * late.x + lower_late.y * late.y;
    }
  }
}

template <int kMatrices>
__device__ inline void load_matrices(uint32_t (&to)[kMatrices], SharedAddress line_of_lane) {
  const int lane = static_cast<int>(lane_of_group());
#pragma unroll
  for (int m = 0; m < kMatrices; ++m)
    to[m] = at_shared<uint32_t>(shuffle(line_of_lane, 8 * m + lane / 4) + 4 * (lane % 4));
}
__device__ inline void load_turned(uint32_t (&to)[4], SharedAddress line_of_lane) {
  const int lane = static_cast<int>(lane_of_group());
#pragma unroll
  for (int m = 0; m < 4; ++m) {
    const int line = 8 * m + 2 * (lane % 4);
    const SharedAddress column = 2 * (lane / 4);
    const uint32_t low = at_shared<uint16_t>(shuffle(line_of_lane, line) + column);
    const uint32_t high = at_shared<uint16_t>(shuffle(line_of_lane, line + 1) + column);
    to[m] = low | high << 16;
  }
}

}  // namespace slime::kernels::cuda
