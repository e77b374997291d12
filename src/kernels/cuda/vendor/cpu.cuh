#pragma once

/// The words of vendor.cuh for C++ on the CPU: kernels under the block executor, for tests.

#include <math.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "kernels/block_executor/block_executor.h"
#include "kernels/cuda/vendor/fp8_codes.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
// Blocks run one after the other.
#define __shared__ static

#define SLIME_DEVICE_CODE 1
#define SLIME_DYNAMIC_SHARED(name) \
  unsigned char* const name = ::slime::kernels::BlockExecutor::dynamic_shared_memory()
#define SLIME_HAS_PIECES 1
#define SLIME_HAS_DECODE 1

namespace slime::kernels::cuda {

using Stream = BlockExecutor*;
using SharedAddress = uintptr_t;

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
inline const Extent& threadIdx = BlockExecutor::place.thread;
inline const Extent& blockIdx = BlockExecutor::place.block;
inline const Extent& blockDim = BlockExecutor::place.block_size;
inline const Extent& gridDim = BlockExecutor::place.grid_size;

struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline int2 make_int2(int x, int y) { return {x, y}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

/// The nearest, of two the even one.
struct BFloat16 {
  uint16_t bits;
  BFloat16() = default;
  explicit BFloat16(float x) {
    const auto all = std::bit_cast<uint32_t>(x);
    bits = static_cast<uint16_t>(isnan(x) ? 0x7fc0U : (all + 0x7fffU + (all >> 16 & 1U)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};
using Float16 = _Float16;

template <typename A, typename B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <typename A, typename B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}
inline float rsqrtf(float x) { return 1.0F / sqrtf(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned order) {
  const uint64_t all = uint64_t{b} << 32 | a;
  unsigned made = 0;
  for (int i = 0; i < 4; ++i)
    made |= static_cast<unsigned>(all >> (8 * (order >> 4 * i & 7U)) & 0xffU) << 8 * i;
  return made;
}

// Threads take turns: nobody else is between reading and writing.
template <typename T, typename U>
T atomicAdd(T* to, U x) {
  const T before = *to;
  *to = before + static_cast<T>(x);
  return before;
}
template <typename T, typename U>
T atomicMin(T* to, U x) {
  const T before = *to;
  *to = min(before, static_cast<T>(x));
  return before;
}
template <typename T, typename U>
T atomicMax(T* to, U x) {
  const T before = *to;
  *to = max(before, static_cast<T>(x));
  return before;
}
template <typename T, typename U>
T atomicOr(T* to, U x) {
  const T before = *to;
  *to = before | static_cast<T>(x);
  return before;
}

inline void __syncthreads() { BlockExecutor::current().wait_for_block(); }
inline int __syncthreads_and(int is_true) {
  return BlockExecutor::current().all_of_block(is_true != 0) ? 1 : 0;
}
inline void sync_lanes() { BlockExecutor::current().wait_for_group(); }

inline unsigned lane_of_wave() { return BlockExecutor::current().lane_of_wave(); }
template <typename T>
T from_wave_lane(T x, unsigned lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t word = 0;
  std::memcpy(&word, &x, sizeof(T));
  word = BlockExecutor::current().exchange(word, lane);
  std::memcpy(&x, &word, sizeof(T));
  return x;
}
inline uint64_t wave_ballot(bool is_true) { return BlockExecutor::current().ballot(is_true); }
inline unsigned exchange_distance(int distance) {
  const auto there = static_cast<unsigned>(distance);
  return there == BlockExecutor::current().options().mistaken_distance ? there / 2 : there;
}
inline unsigned exchange_lane(int lane) {
  const auto there = static_cast<unsigned>(lane) % BlockExecutor::kGroupLanes;
  const bool is_mistaken =
      static_cast<int>(there) == BlockExecutor::current().options().mistaken_lane;
  return is_mistaken ? there ^ 1U : there;
}

inline float sum_rn(float a, float b) { return a + b; }
inline double sum_rn(double a, double b) { return a + b; }
inline float difference_rn(float a, float b) { return a - b; }
inline float product_rn(float a, float b) { return a * b; }
inline double product_rn(double a, double b) { return a * b; }
inline float quotient_rn(float a, float b) { return a / b; }
inline float reciprocal_rn(float x) { return 1.0F / x; }
inline float fma_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float to_float_rn(double x) { return static_cast<float>(x); }
inline float fast_exp(float x) { return expf(x); }
inline float fast_divide(float a, float b) { return a / b; }
inline float exp2_flushed(float x) { return exp2f(x); }
inline float reciprocal_flushed(float x) { return 1.0F / x; }

/// Few, so that persistent kernels go round.
inline int num_processors() { return 2; }
inline int shared_bytes_of_processor() { return 64 << 10; }
inline bool has_decode_kernels() { return true; }
inline bool attends_in_tiles() { return true; }
template <auto kKernel>
void allow_shared_memory(int) {}
enum SharedShare : unsigned { kDriverChooses = ~0U };

template <typename... Parameters, typename... Arguments>
void launch(SharedShare, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            Stream stream, Arguments... arguments) {
  stream->run({grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_bytes,
              [&] { kernel(static_cast<Parameters>(arguments)...); });
}
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            Stream stream, Arguments... arguments) {
  launch(kDriverChooses, kernel, grid, block, shared_bytes, stream, arguments...);
}
template <typename... Parameters>
bool has_code(void (*)(Parameters...)) {
  return true;
}

}  // namespace slime::kernels::cuda

#include "kernels/cuda/vendor/half_waves.cuh"
#include "kernels/cuda/vendor/tile_layout.cuh"

namespace slime::kernels::cuda {

/// As the fragments of a group are.
template <typename T>
void multiply_tiles(TileLayout<32>, float (&c)[8], const uint32_t (&a)[4], const uint32_t (&b)[4]) {
  float left[4] = {c[0], c[1], c[2], c[3]}, right[4] = {c[4], c[5], c[6], c[7]};
  multiply<T>(left, a[0], a[1], a[2], a[3], b[0], b[1]);
  multiply<T>(right, a[0], a[1], a[2], a[3], b[2], b[3]);
  for (int i = 0; i < 4; ++i) c[i] = left[i], c[4 + i] = right[i];
}

/// From what the instruction's documentation says of registers, not from TileLayout: a test compares the two. With q = lane / 16 and
/// n = lane % 16 a lane has numbers a[n][4q .. 4q + 3], b[4q .. 4q + 3][n] and c[4q .. 4q + 3][n].
template <typename T>
void multiply_tiles(TileLayout<64>, float (&c)[4], const uint32_t (&a)[2], const uint32_t (&b)[2]) {
  BlockExecutor& executor = BlockExecutor::current();
  const unsigned lane = lane_of_wave();
  uint64_t of_a[64], of_b[64];
  executor.gather_wave(uint64_t{a[1]} << 32 | a[0], of_a);
  executor.gather_wave(uint64_t{b[1]} << 32 | b[0], of_b);
  const auto number = [](const uint64_t(&words)[64], unsigned n, unsigned k) {
    return static_cast<float>(
        number_of<T>(static_cast<uint16_t>(words[16 * (k / 4) + n] >> 16 * (k % 4))));
  };
  for (unsigned i = 0; i < 4; ++i)
    for (unsigned k = 0; k < 16; ++k)
      c[i] += number(of_a, 4 * (lane / 16) + i, k) * number(of_b, lane % 16, k);
}

template <typename Body>
void with_tiles(Stream stream, const Body& body) {
  stream->options().wave_lanes == 64 ? body(TileLayout<64>{}) : body(TileLayout<32>{});
}

}  // namespace slime::kernels::cuda
