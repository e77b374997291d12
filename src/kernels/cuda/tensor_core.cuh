#pragma once

/// One tensor-core instruction, its operand layout, and its operands from shared memory.
///
/// c += a b with a [16, 16], b [16, 8], c [16, 8] spread over a warp. With g = lane / 4 and
/// t = lane % 4, a lane holds
///   a0 (g, 2t..2t+1)  a1 (g + 8, 2t..2t+1)  a2 (g, 2t+8..2t+9)  a3 (g + 8, 2t+8..2t+9)
///   b0 (2t..2t+1, g)  b1 (2t+8..2t+9, g)
///   c0, c1 (g, 2t..2t+1)  c2, c3 (g + 8, 2t..2t+1)
/// (PTX ISA, section "Matrix Fragments for mma.m16n8k16"). Which number is called which k is free
/// as long as a and b agree: that is how operands come straight from 16-byte loads.

#include "kernels/cuda/vendor/vendor.cuh"

namespace slime::kernels::cuda {

/// The low halves of two registers, and the high ones.
__device__ inline uint32_t low_halves(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x5410); }
__device__ inline uint32_t high_halves(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x7632); }

}  // namespace slime::kernels::cuda
