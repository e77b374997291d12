#pragma once

/// Drawing tokens from rows of logits. Dimensions: R rows, V vocabulary, C chunks of a row, B
/// buckets of a truncated row.
///
/// First the statistics of chunks (every logit is read once), then one thread block per row that
/// picks the chunk and the token in it. Truncated rows (top-k, top-p, min-p) take two kernels more
/// (sample_truncated.cu), which other rows leave at once. Masses there are fixed-point integers, so
/// sums do not depend on the order of threads.
///
/// The sampling extras of a row (kernels/gpu/row_extras.h) adds no kernel: the first changes its
/// logits, the last counts its token and reports.

#include <cstdint>

#include "kernels/cuda/vendor/vendor.cuh"
#include "kernels/gpu/row_extras.h"

namespace slime::kernels::cuda {

inline constexpr int kSampleChunk = 4096;
inline constexpr int kMaxSampleChunks = 256;
/// 64 per unit of (largest - logit) / temperature at the least: exp(-28) has no mass any more.
inline constexpr int kSampleBuckets = 28 * 64;

/// Statistics of a row that its last kernel needs.
struct MeasuredRow {
  double total;             // of exp((logit - largest) / temperature) over the row
  float largest;            // logit
  int32_t largest_id;       // of equal logits the smallest
  float buckets_per_logit;  // 0: the row is not truncated
};

/// Device memory, contiguous. Logits are finite or -infinity; a row of others gives token 0 and a
/// log-prob of NaN.
struct SampleCall {
  float* logits_RV = nullptr;  // changed in place where extras_R says so
  int64_t rows = 0, vocab = 0;
  const double* uniform_R = nullptr;     // in (0, 1)
  const float* temperature_R = nullptr;  // > 0
  const float* top_p_R = nullptr;        // 1: off
  const float* min_p_R = nullptr;        // 0: off
  const int32_t* top_k_R = nullptr;      // -1: off; 0: greedy
  const RowExtras* extras_R = nullptr;   // null: no row has one
  // Scratch, [R, C] with C = sample_chunks(vocab).
  float* chunk_max_RC = nullptr;
  float* chunk_sum_RC = nullptr;
  int32_t* chunk_argmax_RC = nullptr;
  // Scratch, B = kSampleBuckets: 21 KiB a row. Buckets are touched only where the row is truncated.
  MeasuredRow* measured_R = nullptr;
  unsigned long long* bucket_mass_RB = nullptr;
  uint32_t* bucket_count_RB = nullptr;
  // Results. The log-prob is natural, of the full distribution at the row's temperature; of the
  // kept tokens where these are reported.
  int32_t* token_R = nullptr;
  float* log_prob_R = nullptr;
  int32_t* num_kept_R = nullptr;  // or kHandedOver; only of rows with a report
};

inline int64_t sample_chunks(int64_t vocab) { return (vocab + kSampleChunk - 1) / kSampleChunk; }

/// Asynchronous on `stream`. Throws std::runtime_error when a launch fails.
void sample(const SampleCall& call, Stream stream);

/// The last step of sample(): draws in truncated rows, then counts and reports. Reads chunk_max_RC,
/// measured_R and buckets that are zero.
void finish_rows(const SampleCall& call, Stream stream);

}  // namespace slime::kernels::cuda
