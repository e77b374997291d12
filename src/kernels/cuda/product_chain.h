#pragma once

/// Matrix products of a decode step, one after another in one kernel, each bound by reading its
/// weights once; what stands between products in a decoder is folded in.
///
/// One block per processor. A block owns a range of each product's outputs, cut so finely that all
/// have the same work, and walks over it in passes: one warp asks for weights, one for rows of x,
/// eight multiply on tensor cores. Weights do not depend on the product before, so they are asked
/// for as far ahead as the ring in shared memory reaches, over the end of a product and before the
/// kernel's own input is there (kernels/cuda/launch.cuh): memory never waits for a result. Between
/// products all blocks wait for each other, through a counter in memory; so all of them must fit on
/// the GPU at once, and two chains must not run beside each other.
///
/// A norm needs no pass of its own: rms_norm(s) w = (s w) / rms(s), and the division, one number
/// per row, can wait until after the product. So a product that adds to the residual stream leaves
/// s, s w and sums of squares of s, and the one after it divides its results. All sums are taken in
/// one order: results are reproducible.

#include <cuda_runtime.h>

#include <array>
#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

/// y = x W^T + b and what follows; pointers into memory of the device.
struct ChainLink {
  enum class Ending {
    kStore,   // y_TO
    kSwiglu,  // rows of the product are [gate; up]: y_TF = silu(gate) * up, F = O / 2
    kAdd,     // sum_TO = residual_TO + product; y_TO = sum * norm_O; squares_out of the sum
  };
  const void* x_TI = nullptr;
  const void* weight_OI = nullptr;
  const void* bias_O = nullptr;  // null: none
  int inputs = 0, outputs = 0;
  /// Null, or sums of squares per row: the product is divided by sqrt(sum of them / inputs + eps).
  const float* squares_TP = nullptr;
  float eps = 0;
  Ending ending = Ending::kStore;
  void* y = nullptr;
  bool float_result = false;          // kStore: y is float32
  const void* residual_TO = nullptr;  // kAdd
  void* sum_TO = nullptr;             // kAdd; may be residual_TO
  const void* norm_O = nullptr;       // kAdd
  float* squares_out_TP = nullptr;    // kAdd
};

struct ProductChain {
  static constexpr int kMaxLinks = 4;
  static constexpr int kCounters = kMaxLinks + 1;

  Number number = Number::kBFloat16;
  int rows = 0;
  std::array<ChainLink, kMaxLinks> links;
  int num_links = 0;
  uint32_t* counters = nullptr;  // kCounters of them, zero before and after; null for one link
};

inline constexpr int kChainInputs = 64;  // inputs of every product are a multiple of this

/// P: numbers per row in squares_TP.
int chain_squares();
/// bfloat16, at most 16 rows, compute capability 9.0. With more rows separate products are as fast
/// (docs/decisions/0050-cuda.md).
bool has_chain(Number number, int64_t rows);
void product_chain(const ProductChain& chain, cudaStream_t stream);

}  // namespace slime::kernels::cuda
