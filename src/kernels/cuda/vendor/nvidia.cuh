#pragma once

/// NVIDIA's words for the names of vendor.cuh: types, lanes, arithmetic, conversions, memory.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/vendor/nvidia_launch.cuh"

namespace slime::kernels::cuda {

using BFloat16 = __nv_bfloat16;
using Float16 = __half;
using Fp8 = __nv_fp8_e4m3;
using Fp8Code = __nv_fp8_storage_t;
using SharedAddress = uint32_t;

#ifdef __CUDACC__

#define SLIME_DEVICE_CODE 1
#define SLIME_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define SLIME_HAS_PIECES 1
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define SLIME_HAS_DECODE 1
#endif

inline constexpr unsigned kAllLanes = 0xffffffffU;

template <typename T>
__device__ inline T shuffle(T x, int lane) {
  return __shfl_sync(kAllLanes, x, lane);
}
template <typename T>
__device__ inline T shuffle_xor(T x, int distance) {
  return __shfl_xor_sync(kAllLanes, x, distance);
}
/// Of the lane `distance` below; the own number where there is none.
template <typename T>
__device__ inline T shuffle_up(T x, int distance) {
  return __shfl_up_sync(kAllLanes, x, distance);
}
__device__ inline unsigned ballot(bool is_true) { return __ballot_sync(kAllLanes, is_true); }
__device__ inline bool any_lane(bool is_true) { return __any_sync(kAllLanes, is_true); }
__device__ inline unsigned reduce_add(unsigned x) { return __reduce_add_sync(kAllLanes, x); }
__device__ inline unsigned reduce_min(unsigned x) { return __reduce_min_sync(kAllLanes, x); }
__device__ inline unsigned reduce_max(unsigned x) { return __reduce_max_sync(kAllLanes, x); }
__device__ inline void sync_lanes() { __syncwarp(); }

__device__ inline float sum_rn(float a, float b) { return __fadd_rn(a, b); }
__device__ inline double sum_rn(double a, double b) { return __dadd_rn(a, b); }
__device__ inline float difference_rn(float a, float b) { return __fsub_rn(a, b); }
__device__ inline float product_rn(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double product_rn(double a, double b) { return __dmul_rn(a, b); }
__device__ inline float quotient_rn(float a, float b) { return __fdiv_rn(a, b); }
__device__ inline float reciprocal_rn(float x) { return __frcp_rn(x); }
__device__ inline float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ inline float to_float_rn(double x) { return __double2float_rn(x); }
__device__ inline float fast_exp(float x) { return __expf(x); }
__device__ inline float fast_divide(float a, float b) { return __fdividef(a, b); }
/// Nothing is done for numbers below 1e-38: they are zero.
__device__ inline float exp2_flushed(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
__device__ inline float reciprocal_flushed(float x) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}

/// Two floats as two 16-bit numbers, the first in the low half.
template <typename T>
__device__ inline uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&both);
  } else {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&both);
  }
}
/// The other way.
template <typename T>
__device__ inline float2 unpack(uint32_t two) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(*reinterpret_cast<const __half2*>(&two));
  } else {
    return make_float2(__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000U));
  }
}

/// What does not fit into e4m3 becomes +-448.
__device__ inline Fp8Code to_fp8(float x) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}
__device__ inline float from_fp8(Fp8Code x) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(x, __NV_E4M3)));
}
/// Two codes, the first in the low byte.
__device__ inline uint32_t pack_fp8(float low, float high) {
  return static_cast<uint32_t>(
      __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3));
}
/// Two codes, in the low half, as two Float16.
__device__ inline uint32_t unpack_fp8(uint32_t two) {
  const __half2_raw wide =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two), __NV_E4M3);
  return static_cast<uint32_t>(wide.x) | static_cast<uint32_t>(wide.y) << 16;
}

template <typename T>
__device__ inline T load_past_l1(const T* from) {
  return __ldcg(from);
}
template <typename T>
__device__ inline T load_read_only(const T* from) {
  return __ldg(from);
}
/// 16 bytes that are read once: past the L1 cache, and not while they may still be written.
__device__ inline uint4 load_once(const void* pointer) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(pointer));
  return x;
}
/// 8 bytes likewise.
__device__ inline uint2 load_half_once(const void* pointer) {
  uint2 x;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
               : "=r"(x.x), "=r"(x.y)
               : "l"(pointer));
  return x;
}

__device__ inline SharedAddress shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ inline float4 load_shared(SharedAddress address) {
  float4 x;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(address)
               : "memory");
  return x;
}
__device__ inline void store_shared(SharedAddress address, uint2 x) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(x.x), "r"(x.y) : "memory");
}
/// Reads from shared memory where `wanted`, without a branch.
__device__ inline void load_shared_if(bool wanted, SharedAddress address, uint32_t& a, uint32_t& b,
                                      uint32_t& c, uint32_t& d) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.shared.v4.u32 {%0, %1, %2, %3}, [%4]; }"
               : "+r"(a), "+r"(b), "+r"(c), "+r"(d)
               : "r"(address), "r"(static_cast<uint32_t>(wanted))
               : "memory");
}
__device__ inline void load_shared_if(bool wanted, SharedAddress address, uint32_t& a,
                                      uint32_t& b) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %3, 0; @p ld.shared.v2.u32 {%0, %1}, [%2]; }"
               : "+r"(a), "+r"(b)
               : "r"(address), "r"(static_cast<uint32_t>(wanted))
               : "memory");
}

/// Waits until the preceding kernels have completed and their writes are visible.
__device__ inline void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Lets the next kernel start as soon as every thread block has called this or ended.
__device__ inline void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

#endif

}  // namespace slime::kernels::cuda

#ifdef __CUDACC__
#include "kernels/cuda/vendor/nvidia_fragments.cuh"
#endif
