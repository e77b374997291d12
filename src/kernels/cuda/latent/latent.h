#pragma once

/// Kernels of latent attention in the absorbed form (kernels/gpu/latent.h): what a step's rows bring,
/// attention over pages, and the product of values.
///
/// The fast ones are for the sizes of DeepSeek-V2 to V3, Kimi K2, Moonlight and GLM-4.7-Flash: bfloat16,
/// a latent of 512 and 64 rotating numbers. They run on compute capability 9.0. attend_latent_plain() has
/// every precision and size.
///
/// Dimensions as there; E = R + L numbers of a row in the cache. Pointers are device memory, contiguous
/// unless a stride is given, at multiples of 16 bytes. All functions are asynchronous on `stream` and
/// throw std::runtime_error for a launch that fails.

#include <cstdint>

#include "kernels/cuda/attention/attention.h"

namespace slime::kernels::cuda {

inline constexpr int kLatentRank = 512, kLatentRotary = 64;
inline constexpr int kLatentRow = kLatentRank + kLatentRotary;
inline constexpr int kMostLatentHead = 192;  // P

/// Whether the fast kernels have these sizes, in bfloat16.
bool has_latent_kernels(int rank, int rotary_dim, int plain_dim, int value_dim);

/// What the rows of a step bring: rotated keys and normed latents go to their slots, queries become
/// q_TNE [T, N, R + L].
struct LatentStep {
  const void* query = nullptr;  // [T, N (P + R)]
  const void* latent = nullptr;
  const void* rotary_key = nullptr;
  int64_t query_stride = 0, latent_stride = 0, rotary_stride = 0;  // of rows, in numbers
  const int64_t* positions_T = nullptr;
  const int32_t* slot_T = nullptr;
  const void* latent_norm_L = nullptr;
  const void* expand = nullptr;  // [N (P + V), L]
  const float* cos_PR = nullptr;
  const float* sin_PR = nullptr;
  bool rotates_pairs = false;  // neighbours; otherwise halves
  float eps = 0;
  void* rows = nullptr;   // the cache
  void* q_TNE = nullptr;  // result
  int64_t num_rows = 0;   // T
  int num_heads = 0, plain_dim = 0, value_dim = 0;
};
void latent_step(const LatentStep& call, Stream stream);

/// Tokens that rows of decode look at, in units of a row each (split-KV): as many for each row, which leave
/// records where a row's tokens are more than one unit has. Of row t the first min(position + 1, most) are
/// there. Record u of row t is number units t + u.
struct ChosenTokens {
  const int32_t* slot_TC = nullptr;  // places in the cache; null: rows look at pages
  const int64_t* positions_T = nullptr;
  int most = 0;  // C
  int units = 1;
};

/// Attention of q_TNE over the rows of pages; the result is [T, N, L].
struct LatentAttend {
  Number number = Number::kBFloat16;
  const void* q_TNE = nullptr;
  const void* rows = nullptr;
  PagedArrays paged;  // keys and values are not looked at
  const int64_t* positions_T = nullptr;
  const int32_t* row_sequence_T = nullptr;
  void* out_TNL = nullptr;
  int64_t num_rows = 0;
  int num_heads = 0, rank = 0, rotary_dim = 0;
  float scale = 1;
  // Rows that are attended, in their order: of a unit the sequence, and the row's number in it. Null: all.
  const int32_t* unit_sequence_U = nullptr;
  const int32_t* unit_tile_U = nullptr;
  int64_t num_units = 0;
  ChosenTokens chosen;
};

/// A warp for each row and head; R + L up to 768. Slow.
void attend_latent_plain(const LatentAttend& call, Stream stream);

/// Whether the three that come next are there for this GPU: they have the sizes of the fast kernels.
bool has_latent_attend();
/// Each row by itself, over all keys that it sees.
void attend_latent_rows(const LatentAttend& call, Stream stream);

/// By a plan: sequences of one row, in units (split-KV). Rows of sequences that are in several segments
/// leave records, [records, N, L] and [records, N].
void attend_latent_units(const LatentAttend& call, const DecodeArrays& plan, Stream stream);
/// Over call.chosen alone: rows of sequences of their own. Of the plan only room for records is looked at.
void attend_latent_chosen(const LatentAttend& call, const DecodeArrays& plan, Stream stream);
/// Merges the records of the rows that have some into out_TNL. Sequence and row are the same number.
void merge_latent_records(const LatentAttend& call, const DecodeArrays& plan, Stream stream);

/// What heads make of attended latents: y_TC [T, N V] from x_TNL.
struct LatentValues {
  const void* x_TNL = nullptr;
  const void* expand = nullptr;
  void* y_TC = nullptr;
  int64_t num_rows = 0;
  int num_heads = 0, plain_dim = 0, value_dim = 0;
  // Not null: records that are merged on the way, of few rows.
  const DecodeArrays* plan = nullptr;
  ChosenTokens chosen;
};
void latent_values(const LatentValues& call, Stream stream);
/// With so many rows each thread block may merge records anew.
inline constexpr int64_t kMostMergedRows = 2;

}  // namespace slime::kernels::cuda
