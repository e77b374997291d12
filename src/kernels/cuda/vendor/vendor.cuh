#pragma once

/// The language of kernels: one source for NVIDIA's GPUs, AMD's, and the CPU that checks both.
///
/// Kernels use the words that CUDA and HIP share (__global__, __shared__, threadIdx, __syncthreads, atomicAdd,
/// float4 ...), and for everything else the names of this table, which each of three headers defines. Only these
/// headers know a vendor; what is not on every target is a capability with a name.
///
///   types           BFloat16, Float16, Fp8 (e4m3, and Fp8Code its bits), Stream, SharedAddress
///   lanes           a group is 32 neighbouring threads, whatever the width of the processor's waves: shuffle,
///                   shuffle_xor, shuffle_up, ballot, any_lane, reduce_add, reduce_min, reduce_max, sync_lanes.
///                   All lanes of the group call them together
///   arithmetic      sum_rn, difference_rn, product_rn, quotient_rn, reciprocal_rn, fma_rn: rounded as written, never
///                   contracted; fast_exp, fast_divide, exp2_flushed, reciprocal_flushed: as the processor has them
///   conversions     pack, unpack: two floats and two numbers of 16 bits; to_fp8, from_fp8, pack_fp8, unpack_fp8
///   memory          load_past_l1, load_read_only, load_once, load_half_once; shared_address, load_shared,
///                   store_shared, load_shared_if; copy_piece and its waits: 16 bytes into shared memory; and
///                   SLIME_DYNAMIC_SHARED(name)
///   fragments       multiply, load_matrices, load_turned (kernels/cuda/tensor_core.cuh says the layout)
///   tiles           multiply_tiles<T>(layout, c, a, b) by a whole wave (tile_layout.cuh); on the host with_tiles(stream, body),
///                   which calls body(layout) with the processor's, and attends_in_tiles(): whether attention of rows without
///                   other kernels should take it
///   order           grid_dependency_wait, launch_dependents
///   host            launch, allow_shared_memory, has_code, num_processors, shared_bytes_of_processor,
///                   has_decode_kernels
///
/// Capabilities, true or false in each compilation of device code:
///   SLIME_DEVICE_CODE       device functions can be compiled here
///   SLIME_HAS_PIECES        copy_piece and its waits
///   SLIME_HAS_DECODE        kernels that NVIDIA's GPUs have from compute capability 9.0 on, and other targets always
///
/// Why, and what was left aside: docs/decisions/0158-one-source-for-gpus.md.

#if defined(SLIME_KERNELS_ON_CPU)
#include "kernels/cuda/vendor/cpu.cuh"
#elif defined(__HIP_PLATFORM_AMD__) || defined(__HIP__)
#include "kernels/cuda/vendor/amd.cuh"
#else
#include "kernels/cuda/vendor/nvidia.cuh"
#endif
