#pragma once

/// Attention of the engine: query and key heads are normed and rotated, keys and values go into
/// their pages, then each row attends to the keys of its sequence. In steps of nothing but decode
/// one kernel does it all.
///
/// Dimensions: T rows, S sequences, N query heads, K key-value heads, D head size, E = (N + 2 K) D,
/// R = D / 2. Keys and values are [pages, K, kPageTokens, D], in the precision of the
/// rows or in fp8 (e4m3: what does not fit becomes +-448).
///
/// Pointers are device memory, contiguous unless a stride is given; heads, keys and values start at
/// multiples of 16 bytes. All functions are asynchronous on `stream` and throw std::runtime_error
/// for a shape that has no kernel or a launch that fails.

#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/gpu/decode_segment.h"
#include "kernels/page.h"

namespace slime::kernels::cuda {

inline constexpr int kPageTokens = static_cast<int>(kernels::kPageTokens);

struct RotateCall {
  Number number = Number::kBFloat16;
  const void* qkv_TE = nullptr;
  void* out_TE = nullptr;  // may be qkv_TE
  const int64_t* positions_T = nullptr;
  const void* q_norm_D = nullptr;  // null: no norm
  const void* k_norm_D = nullptr;
  bool has_float_norms = false;  // both in float32, whatever the rows are
  const float* cos_PR = nullptr;
  const float* sin_PR = nullptr;
  int64_t rows = 0;
  int num_heads = 0, num_kv_heads = 0, head_dim = 0;
  float eps = 0;
  // With pages: keys and values go there, and only query heads to out_TE.
  const int32_t* slot_T = nullptr;  // null: no pages; keys, rotated, and values go to out_TE
  void* keys = nullptr;
  void* values = nullptr;
  bool is_fp8 = false;  // keys and values in pages
  // With pages: keys and values go to out_TE too, as the pages hold them. Heads of 64, 128 and 256.
  bool keeps_keys = false;
};

/// Head sizes up to 256, even.
void norm_rotate(const RotateCall& call, Stream stream);

/// What both attention kernels read.
struct PagedArrays {
  const int32_t* query_starts = nullptr;      // [S + 1]
  const int32_t* page_starts = nullptr;       // [S + 1]
  const int32_t* pages = nullptr;             // flat
  const int32_t* last_page_tokens = nullptr;  // [S]
  const void* keys = nullptr;
  const void* values = nullptr;
  int num_sequences = 0;
  bool is_fp8 = false;  // keys and values
};

struct AttendCall {
  Number number = Number::kBFloat16;
  PagedArrays paged;
  void* q = nullptr;       // [T, E], the first N D numbers of a row
  int64_t row_stride = 0;  // E
  void* out_TC = nullptr;  // [T, N D]
  int64_t rows = 0;
  int num_heads = 0, num_kv_heads = 0, head_dim = 0;
  float scale = 1;
  float cap = 0;                  // of scaled scores (kernels/soft_cap.h); 0: none
  int64_t window = 0;             // 0: all earlier tokens
  const void* sinks_N = nullptr;  // scores that take part in the softmax without a value; or null
};

/// Any head size up to 256, any ratio of heads, any precision but fp8: one warp per row and head.
/// Slow.
void attend_plain(const AttendCall& call, const int64_t* positions_T, const int32_t* row_sequence_T,
                  Stream stream);

/// The same by matrix instructions (kernels/cuda/vendor/tile_layout.cuh), 16 rows at a time: 16-bit precisions, head sizes
/// 64, 96, 128 and 256, pages that are not in fp8. Probabilities are rounded to the precision of the rows.
bool has_attend_rows(Number number, int head_dim, bool is_fp8);
void attend_rows(const AttendCall& call, const int64_t* positions_T, const int32_t* row_sequence_T,
                 Stream stream);
/// Whether a step without other kernels takes it: on AMD's GPUs, where sequences have several rows on average.
bool is_for_attend_rows(const AttendCall& call);

/// One launch of tiles (kernels/gpu/gpu.h, TileLaunch).
struct UnitArrays {
  int tile = 16;
  int64_t num_units = 0;
  float* logsumexp_TN = nullptr;  // to the base of 2; null: not wanted
  const int32_t* sequence_U = nullptr;
  const int32_t* tile_U = nullptr;
  const int32_t* chunk_U = nullptr;
  const uint8_t* is_on_U = nullptr;
  const int32_t* chunk_tokens = nullptr;
  const int32_t* num_rows = nullptr;
  // Split keys: partial results of all chunks, and which of them each row merges. Scratch.
  void* partial_out = nullptr;              // [P, N, D] of the call's precision; null: not split
  float* partial_logsumexp = nullptr;       // [P, N]
  const int32_t* partial_starts = nullptr;  // [S]
  const int32_t* merge_starts = nullptr;    // [T + 1]
};

/// What attention without sinks gives becomes what it gives with them. logsumexp_TN of all scores, to
/// the base of e or of 2; +infinity: the row stays.
void apply_sinks(const AttendCall& call, const float* logsumexp_TN, bool is_base_2, Stream stream);

bool has_tiles(Number number, int head_dim, bool is_fp8);

/// FlashInfer's tensor-core kernel; head sizes 64, 128 and (without fp8, tiles of up to 64) 256,
/// bfloat16 and float16.
void attend_tiles(const AttendCall& call, const UnitArrays& units, Stream stream);

/// Keys of a tile in training arithmetic (kernels/gpu/exact_units.h).
inline constexpr int kExactTileKeys = 64;

/// A plan of kernels/gpu/exact_units.h on the device, and where its tables lead: to pages, or to rows, which are pages
/// of one token.
struct ExactArrays {
  int64_t tile = 0, num_runs = 0, num_units = 0;
  const int32_t* first_row_R = nullptr;
  const int32_t* num_rows_R = nullptr;
  const int32_t* num_keys_R = nullptr;
  const int32_t* entry_starts = nullptr;  // [R + 1]
  const int32_t* run_U = nullptr;
  const int32_t* tile_U = nullptr;
  const int32_t* zero_U = nullptr;
  const int32_t* most_keys = nullptr;  // [1]
  const int32_t* entries = nullptr;    // of all tables
  int64_t entry_tokens = kPageTokens;
  int64_t entry_stride = 0, head_stride = 0, token_stride = 0;  // numbers, of keys and of values
};

/// bfloat16 and head sizes 64, 128 and 256.
bool has_exact(Number number, int head_dim);

/// A row's bits depend on its query and on the keys and values up to its own alone. Without windows; sinks are not in
/// the softmax (apply_sinks). logsumexp_TN, to the base of 2: null, or written for the plan's rows.
void attend_exact(const AttendCall& call, const ExactArrays& plan, float* logsumexp_TN,
                  Stream stream);

struct GatherCall {
  Number number = Number::kBFloat16;  // of the rows; not float32
  const int32_t* pages_P = nullptr;
  int64_t num_pages = 0;
  const void* keys = nullptr;
  const void* values = nullptr;
  int num_kv_heads = 0, head_dim = 0;  // head_dim: a multiple of 8
  bool is_fp8 = false;
  void* rows_CX = nullptr;  // [kPageTokens P, 2 K D]: a token's keys, then its values
};

/// Tokens of pages as rows, for kernels that know nothing of pages.
void gather_pages(const GatherCall& call, Stream stream);

/// The plan of kernels/gpu/decode_units.h on the device.
struct DecodeArrays {
  int num_units = 0;
  const int32_t* unit_starts = nullptr;  // [U + 1]
  const DecodeSegment* segments = nullptr;
  const DecodeMember* members = nullptr;
  const int32_t* record_starts = nullptr;  // [S + 1]
  // Scratch: partial results of a head, not divided yet, and their largest score and weight.
  float* record_sums = nullptr;      // [records, N, D]
  float2* record_weights = nullptr;  // [records, N]
};

/// Sequences of one row, at most kMostDecodeRows query heads per key-value head; head sizes 64 and
/// 128, precisions of attend_tiles.
bool has_decode(Number number, int head_dim, int group);
/// `rotate`: what norm_rotate would be called with, and call.q as that would find it; or null,
/// where it has run. Norms in the precision of the rows.
void attend_decode(const AttendCall& call, const DecodeArrays& plan, const RotateCall* rotate,
                   Stream stream);
/// The second kernel of attend_decode: merges the records (partial softmaxes) of each sequence.
void merge_records(const AttendCall& call, const DecodeArrays& plan, Stream stream);

}  // namespace slime::kernels::cuda
