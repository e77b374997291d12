#pragma once

/// y = x W^T of a decode step of up to 64 sequences, with its epilogue fused.
///
/// Bound by the bandwidth of reading the weights once. With programmatic dependent launch a thread
/// block of the next kernel starts on a multiprocessor as soon as this one's there has ended, and
/// prefetches its weights before its input is complete.

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/products/low_rank.h"

namespace slime::kernels::cuda {

/// One product. Pointers are device memory, 16-byte aligned; tensors are contiguous and bfloat16
/// unless a comment says otherwise. Dimensions: T rows, I inputs, O outputs, S splits.
struct BatchProduct {
  enum class Epilogue {
    kStore,   // y_TO, bias added
    kSwiglu,  // weight rows are [gate; up]: y_TF = silu(gate) * up, F = O / 2
    kSplitK,  // y_STO in float32: partial sums over S splits of the inputs, without bias
  };
  const void* x_TI = nullptr;
  const void* weight_OI = nullptr;
  const void* bias_O = nullptr;           // null: none
  int rows = 0, inputs = 0, outputs = 0;  // T, I, O
  Epilogue epilogue = Epilogue::kStore;
  bool float_result = false;  // kStore: y_TO is float32
  void* y = nullptr;
  LowRankAddition addition;  // with kSwiglu to both halves, with kSplitK to the first split
};

/// `inputs` and `outputs` must be multiples of these.
inline constexpr int kBatchProductInputs = 64, kBatchProductOutputs = 8;

inline constexpr int kMostBatchRows = 64;

/// True for bfloat16, at most kMostBatchRows rows and compute capability 9.0.
bool has_batch_product(Number number, int64_t rows);
/// S of a product with Epilogue::kSplitK: how many partial sums `y` must hold.
int batch_product_splits(int inputs, int outputs);
/// Whether the kernel can make h of the addition itself (LowRankAddition::flags), from `addition.down` or of rows that take
/// adapters of their own, `addition.by_row`: few rows, and a multiprocessor for each thread block.
bool makes_low_rank_hidden(const BatchProduct& call);
/// Then: float32 numbers of `addition.h_TR`, and flags at most.
int64_t low_rank_hidden_numbers(const BatchProduct& call);
inline constexpr int kMostHiddenFlags = 4096;
/// Asynchronous on `stream`. Throws std::runtime_error for too many rows or a failed launch.
void batch_product(const BatchProduct& call, cudaStream_t stream);

}  // namespace slime::kernels::cuda
