#pragma once

/// Drawing tokens from rows of logits. Dimensions: R rows, V vocabulary, C chunks of a row, B
/// buckets of a row with a cut.
///
/// First the statistics of chunks (every logit is read once), then one block per row that picks the
/// chunk and the token in it. Rows with a cut (top-k, top-p, min-p) take two kernels more
/// (sample_cut.cu), which other rows leave at once. Masses there are fixed-point integers, so sums
/// do not depend on the order of threads.

#include <cuda_runtime.h>

#include <cstdint>

namespace slime::kernels::cuda {

inline constexpr int kSampleChunk = 4096;
inline constexpr int kMaxSampleChunks = 256;
/// 64 per unit of (largest - logit) / temperature at the least: exp(-28) has no mass any more.
inline constexpr int kSampleBuckets = 28 * 64;

/// What the cut of a row needs to know about it.
struct CutRow {
  double total;             // of exp((logit - largest) / temperature) over the row
  float largest;            // logit
  float buckets_per_logit;  // 0: there is nothing to cut
};

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
  // Scratch, B = kSampleBuckets: 21 KiB a row. Buckets are touched only where the row has a cut.
  CutRow* cut_R = nullptr;
  unsigned long long* bucket_mass_RB = nullptr;
  uint32_t* bucket_count_RB = nullptr;
  // Results.
  int32_t* token_R = nullptr;
  float* log_prob_R = nullptr;
};

inline int64_t sample_chunks(int64_t vocab) { return (vocab + kSampleChunk - 1) / kSampleChunk; }

void sample(const SampleCall& call, cudaStream_t stream);

/// The part of sample() that draws in rows with a cut. Reads chunk_max_RC, cut_R and emptied
/// buckets.
void sample_cut(const SampleCall& call, cudaStream_t stream);

}  // namespace slime::kernels::cuda
