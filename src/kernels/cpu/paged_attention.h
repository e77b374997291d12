#pragma once

/// Attention over a paged key-value cache on the CPU: norm, rotary embedding and cache write of the
/// new tokens, then each new token against all keys it may see. Called by engine/paged_attention.h
/// once per layer.
///
/// Dimensions: T new tokens of all sequences, N query heads, K key-value heads, D head size, G = N
/// / K.
///
/// Cache layout of one layer. A page holds kPageTokens tokens of one sequence:
///   keys    [pages, K, D, kPageTokens]   transposed: a page's scores come from D multiply-adds
///                                        without a horizontal sum
///   values  [pages, K, kPageTokens, S]   S = value_stride(D), D rounded up to eight
/// Where values are the keys (latent attention), there are no other keys than `values`.
///
/// Every query sees keys in blocks of kBlockTokens that start at multiples of kBlockTokens, and its
/// arithmetic does not depend on which other queries share the step: a token's output is the same
/// bits whether it is computed alone, in a batch, in a chunk of its prompt or behind a cached
/// prefix (with float32 storage, or once the prefix is stored).

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/page.h"

namespace slime::kernels {

inline constexpr int64_t kBlockTokens = 64;
inline constexpr int64_t kBlockPages = kBlockTokens / kPageTokens;

inline constexpr int64_t value_stride(int64_t head_dim) { return (head_dim + 7) / 8 * 8; }

enum class FloatKind { kFloat32, kBFloat16 };

/// The new tokens of one sequence: rows [first_row, first_row + num_rows) of the step. Row i is at
/// position num_keys - num_rows + i and sees the keys up to its own.
struct PagedSequence {
  /// Page i holds positions [i kPageTokens, (i + 1) kPageTokens); valid during the call. With a window
  /// those of blocks that no row sees are not looked at.
  const int32_t* pages = nullptr;
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t num_keys = 0;  // the new ones included
};

/// How the work of a step is tiled; made once per step, used by every layer.
struct PagedPlan {
  /// Queries that walk over keys together: some rows of one sequence, or the single rows of
  /// neighbouring sequences whose first `num_shared_blocks` blocks are the same pages (samples of
  /// one prompt), which are then read once for all.
  struct Tile {
    int32_t first_sequence = 0;
    int32_t num_sequences = 1;
    int32_t first_row = 0;  // of the sequence; 0 when there are several
    int32_t num_rows = 1;   // of each sequence
    int64_t num_shared_blocks = 0;
    double cost = 0;
  };

  std::vector<PagedSequence> sequences;
  std::vector<Tile> tiles;
  double total_cost = 0;
  bool single_rows_only = false;  // every sequence has one row: writing and attending are one pass
};

/// Tiles the step. `queries_per_key` is G. Sequences that share a prompt are recognised when they
/// are neighbours.
PagedPlan make_paged_plan(std::vector<PagedSequence> sequences, int64_t queries_per_key);

struct PagedAttentionCall {
  const void* qkv_TE = nullptr;  // [T, (N + 2 K) D], or [T, (N + K) D] where values are keys
  void* out_TE = nullptr;        // [T, N D]
  FloatKind activations = FloatKind::kFloat32;
  void* keys = nullptr;
  void* values = nullptr;
  FloatKind storage = FloatKind::kFloat32;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  bool values_are_keys = false;
  float scale = 0;
  float cap = 0;                  // of scaled scores (kernels/soft_cap.h); 0: none
  int64_t window = 0;             // 0: all
  const float* q_norm = nullptr;  // [D], null without q/k norm
  const float* k_norm = nullptr;
  float norm_eps = 0;
  const float* sinks = nullptr;   // [N], null without attention sinks (kernels/tree_attention.h)
  const float* cos_PR = nullptr;  // [P, R], R = rotary_half
  const float* sin_PR = nullptr;
  int64_t rotary_half = 0;
  const int64_t* rotary_row_T = nullptr;  // the row of those tables that turns a row of the step
  /// Of each row, null, or null for rows that see all: a byte for each key up to its own, 0 where it
  /// does not look.
  const uint8_t* const* chosen_T = nullptr;
  float* query_scratch = nullptr;  // [K, T, G, value_stride(D)]: queries, normed, turned and scaled
  float* logsumexp_TN = nullptr;   // of scaled scores and sinks; null: not wanted
  const PagedPlan* plan = nullptr;

  /// Numbers of a row of qkv.
  int64_t row_size() const {
    return (num_heads + (values_are_keys ? 1 : 2) * num_kv_heads) * head_dim;
  }
};

/// Runs on the kernel threads. The AVX2 form where the processor has it, its products in AVX-512
/// where there is that.
void paged_attention(const PagedAttentionCall& call);

/// Its first half: norms and turns, writes pages and queries. Needs AVX2.
void prepare_pages(const PagedAttentionCall& call);
/// The same behind pages and queries that are prepared: nothing of qkv is read. Needs AVX2.
void attend_prepared_pages(const PagedAttentionCall& call);

/// The same in plain loops: for other processors, and the twin that tests compare with.
void paged_attention_portable(const PagedAttentionCall& call);

// The two passes over one tile and key-value head, implemented with AVX2 in
// paged_attention_avx2.cpp.
void paged_prepare_avx2(const PagedAttentionCall& call, const PagedPlan::Tile& tile,
                        int64_t kv_head);
void paged_attend_avx2(const PagedAttentionCall& call, const PagedPlan::Tile& tile,
                       int64_t kv_head);

}  // namespace slime::kernels
