#pragma once

/// Matrix products with few rows of activations: bound by reading the weights once.
///
/// y_TO = x_TI W_OI^T + b, T <= 16. A tile is 16 outputs; the eight warps of a thread block
/// slice its inputs (sliced K) and are reduced through shared memory, so a row's sums do not depend
/// on T. Weights
/// go straight from memory to tensor-core operands: the order of k inside a product is free, so
/// each lane reads 16 consecutive bytes and calls them the k's that its registers stand for. The
/// first weights are prefetched before the kernel waits for its input (kernels/cuda/launch.cuh).

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

struct LinearCall {
  Number number = Number::kBFloat16;
  bool float_result = false;  // y is float32 whatever x is
  bool accumulates = false;   // y += x W^T + b; of rows that are not recorded
  const void* x_TI = nullptr;
  const void* weight_OI = nullptr;
  const void* bias_O = nullptr;  // null: none
  void* y_TO = nullptr;
  int64_t rows = 0, inputs = 0, outputs = 0;
  int processors_left = 0;  // multiprocessors for what runs beside it
};

/// 16-bit precisions, rows <= 16, inputs a multiple of 32 and at least 256, outputs a multiple of
/// 16.
bool is_skinny(const LinearCall& call);
void skinny_linear(const LinearCall& call, Stream stream);

}  // namespace slime::kernels::cuda
