#pragma once

/// Kernels of sparse attention in decode (kernels/gpu/sparse.h): what an indexer makes of a row, its scores
/// for all tokens of a sequence, and the choice of the best of them. Attention to the chosen ones is latent attention's
/// (kernels/cuda/latent). They run on compute capability 9.0.
///
/// How much is launched depends on the number of rows and on the bound of keys alone; lengths are read on
/// the device.
///
/// Dimensions: T rows, each of a sequence of its own, J heads of an indexer with D numbers; C chosen
/// tokens of a row. Pointers are device memory, contiguous, at multiples of 16 bytes. All functions are
/// asynchronous on `stream` and throw std::runtime_error for a shape without a kernel or a launch that
/// fails.

#include <cstdint>

#include "kernels/cuda/vendor/vendor.cuh"
#include "kernels/page.h"

namespace slime::kernels::cuda {

/// D, and what J may be.
inline constexpr int kIndexSize = 128;
bool has_index_kernels(int64_t heads, int64_t size);
inline constexpr int64_t kMostIndexRows = 1024;

/// 64 of the numbers of a head rotate. In bfloat16 but for the weights of heads; results in float32.
struct IndexRowsCall {
  const void* query_TE = nullptr;  // [T, J D]
  const void* key_TD = nullptr;    // not normed
  const float* weight_TJ = nullptr;
  const void* norm_D = nullptr;
  const void* norm_bias_D = nullptr;
  const float* cos_PR = nullptr;  // [positions, 32]
  const float* sin_PR = nullptr;
  const int64_t* positions_T = nullptr;
  float* made_query_TJD = nullptr;    // rotated, and divided by the root of D
  float* made_key_TD = nullptr;       // normed and rotated
  float* scaled_weight_TJ = nullptr;  // divided by the root of J
  int64_t num_rows = 0;
  int num_heads = 0;
  float eps = 0;
  bool rotates_pairs = false;  // neighbours; otherwise halves. Results are halves
};
void index_rows(const IndexRowsCall& call, Stream stream);

/// A score as an integer with the same order, in which 0 and -0 are one number.
struct IndexScores {
  const float* query_TJD = nullptr;
  const float* key_TD = nullptr;  // of the rows' own tokens: they also go to their slots
  const float* weight_TJ = nullptr;
  float* keys = nullptr;  // [pages, kPageTokens, D]
  const int64_t* positions_T = nullptr;
  const int32_t* slot_T = nullptr;
  const int32_t* page_starts = nullptr;  // [T + 1]
  const int32_t* pages = nullptr;
  uint32_t* score_TK =
      nullptr;  // result; rows that see no more than `most_chosen` tokens have none
  int64_t num_rows = 0;
  int num_heads = 0;        // J
  int64_t most_keys = 0;    // no row sees more; a row of score_TK is so long, a multiple of 4
  int64_t most_chosen = 0;  // C
};
void index_scores(const IndexScores& call, Stream stream);

/// The C best of each row, or all that it sees where these are not more; of equal scores the earlier
/// token's counts. What is behind the last chosen one is not written.
struct ChooseTokens {
  const uint32_t* score_TK = nullptr;
  const int64_t* positions_T = nullptr;
  const int32_t* page_starts = nullptr;
  const int32_t* pages = nullptr;
  int32_t* slot_TC = nullptr;  // result: places in the cache, in the order of the tokens
  int64_t num_rows = 0;
  int64_t most_keys = 0;
  int64_t most_chosen = 0;
};
void choose_tokens(const ChooseTokens& call, Stream stream);

}  // namespace slime::kernels::cuda
