#pragma once

/// Layouts of matrix instructions: which numbers of [16, 16] matrices a lane of a wave has.
///
/// c += a b of three such matrices by all lanes of a wave together: 32 on NVIDIA's GPUs, 64 on AMD's, either under the
/// block executor. A lane has `kWords` registers of each operand, with two neighbouring k in each, the even one in the low
/// half, and `kSums` numbers of c. A kernel asks a layout for rows, columns and k, and so knows of no vendor:
///
///   a: word w holds (row(lane, w), k(lane, w)) and the next k     b: likewise (k, column)     c: number i is (row, column)
///
/// Sums are float32; in which order a processor adds the 16 products of a number is its own.

namespace slime::kernels::cuda {

template <int kWaveLanes>
struct TileLayout;

/// v_mfma_f32_16x16x16_bf16 and _f16. Four blocks of 16 lanes: as operands a block has four k of its 16 rows or columns,
/// as sums four rows of its 16 columns. AMD Instinct MI300 ISA, "Matrix Arithmetic Instructions"; in composable_kernel's
/// xdlops_gemm.hpp (mfma_f32_16x16x16bf16_1k): num_input_blks 4, k_per_blk 4, num_threads_per_blk 16, group_size 4.
template <>
struct TileLayout<64> {
  static constexpr int kLanes = 64, kWords = 2, kSums = 4;
  struct A {
    __device__ static constexpr int row(int lane, int /*word*/) { return lane % 16; }
    __device__ static constexpr int k(int lane, int word) { return 4 * (lane / 16) + 2 * word; }
  };
  struct B {
    __device__ static constexpr int k(int lane, int word) { return 4 * (lane / 16) + 2 * word; }
    __device__ static constexpr int column(int lane, int /*word*/) { return lane % 16; }
  };
  struct C {
    __device__ static constexpr int row(int lane, int i) { return 4 * (lane / 16) + i; }
    __device__ static constexpr int column(int lane, int /*i*/) { return lane % 16; }
  };
};

/// Two of mma.m16n8k16, the second with the last eight columns: PTX ISA, "Matrix Fragments for mma.m16n8k16"
/// (kernels/cuda/tensor_core.cuh).
template <>
struct TileLayout<32> {
  static constexpr int kLanes = 32, kWords = 4, kSums = 8;
  struct A {
    __device__ static constexpr int row(int lane, int word) { return lane / 4 + 8 * (word % 2); }
    __device__ static constexpr int k(int lane, int word) {
      return 2 * (lane % 4) + 8 * (word / 2);
    }
  };
  struct B {
    __device__ static constexpr int k(int lane, int word) {
      return 2 * (lane % 4) + 8 * (word % 2);
    }
    __device__ static constexpr int column(int lane, int word) { return lane / 4 + 8 * (word / 2); }
  };
  struct C {
    __device__ static constexpr int row(int lane, int i) { return lane / 4 + 8 * (i / 2 % 2); }
    __device__ static constexpr int column(int lane, int i) {
      return 2 * (lane % 4) + i % 2 + 8 * (i / 4);
    }
  };
};

}  // namespace slime::kernels::cuda
