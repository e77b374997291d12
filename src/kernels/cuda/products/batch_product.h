#pragma once

/// A matrix product of a decode step of up to 64 sequences, with what follows it.
///
/// Bound by reading the weights once. A block of the next kernel starts on a processor as soon as
/// this one's there has ended, and asks for its weights before its input is complete.

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

/// x W^T; pointers into memory of the device, multiples of 16 bytes. bfloat16 where nothing else is
/// said.
struct BatchProduct {
  enum class Ending {
    kStore,   // y_TO, with the bias
    kSwiglu,  // rows of the product are [gate; up]: y_TF = silu(gate) * up, F = O / 2
    kParts,   // y_PTO in float32: sums over P parts of the inputs, without a bias
  };
  const void* x_TI = nullptr;
  const void* weight_OI = nullptr;
  const void* bias_O = nullptr;  // null: none
  int rows = 0, inputs = 0, outputs = 0;
  Ending ending = Ending::kStore;
  bool float_result = false;  // kStore: y_TO is float32
  void* y = nullptr;
};

/// Inputs and outputs are multiples of these.
inline constexpr int kBatchProductInputs = 64, kBatchProductOutputs = 8;

inline constexpr int kMostBatchRows = 64;

/// bfloat16, at most kMostBatchRows rows, compute capability 9.0.
bool has_batch_product(Number number, int64_t rows);
/// P of a product that ends with parts.
int batch_product_parts(int inputs, int outputs);
void batch_product(const BatchProduct& call, cudaStream_t stream);

}  // namespace slime::kernels::cuda
