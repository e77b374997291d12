#pragma once

/// Drawing tokens from rows of logits. Dimensions: R rows, V vocabulary, C chunks of a row.
///
/// Two passes: statistics of chunks (every logit is read once), then one block per row that picks
/// the chunk and the token in it. Rows with a cut (top-k, top-p, min-p) go through a third kernel,
/// which selects by radix on the order of floats. Masses there are fixed-point integers, so sums do
/// not depend on the order of threads.

#include <cuda_runtime.h>

#include <cstdint>

namespace slime::kernels::cuda {

inline constexpr int kSampleChunk = 4096;

struct SampleCall {
  const float* logits_RV = nullptr;
  int64_t rows = 0, vocab = 0;
  const double* uniform_R = nullptr;
  const float* temperature_R = nullptr;
  const float* top_p_R = nullptr;
  const float* min_p_R = nullptr;
  const int32_t* top_k_R = nullptr;
  // Scratch, [R, C] with C = sample_chunks(vocab).
  float* chunk_max_RC = nullptr;
  float* chunk_sum_RC = nullptr;
  int32_t* chunk_argmax_RC = nullptr;
  // Results.
  int32_t* token_R = nullptr;
  float* log_prob_R = nullptr;
};

inline int64_t sample_chunks(int64_t vocab) { return (vocab + kSampleChunk - 1) / kSampleChunk; }

void sample(const SampleCall& call, cudaStream_t stream);

}  // namespace slime::kernels::cuda
