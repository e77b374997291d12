#pragma once

/// Low-rank additions to products (LoRA): x A^T, and what it adds to the rows of a result.
///
///   down   h_TR  = x_TI A_RI^T             the way back: dy_TO B_OR
///   up     y_TO += scale * h_TR B_OR^T     the way back: dx_TI += scale * dh_TR A_RI
///
/// Factors are float32 and multiply as numbers of x's 16 bits; sums are float32, and h is not rounded on its way up
/// (it multiplies as two numbers of 16 bits). A row's numbers depend neither on the other rows nor on how many
/// there are. Several pairs of one fused matrix are one launch each way.
///
/// Dimensions: T rows, I inputs, O outputs, R ranks of all pairs, S splits of the sum.

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

/// Columns that one thread block sums: what is longer has several splits, which the way up adds in order.
inline constexpr int kLowRankSplit = 512;
inline constexpr int kMostLowRankFactors = 8;
/// Columns of x and of ranges are a multiple of it.
inline constexpr int kLowRankColumns = 8;

/// One matrix of a pair: its number (m, r) is at values[m * pitch + r], turned at values[r * pitch + m].
struct LowRankFactor {
  const float* values = nullptr;
  int64_t pitch = 0;
  bool is_turned = false;
  int begin = 0,
      end = 0;  // columns of x that it reads, or of y that it adds to: m counts from begin
  int rank = 0;
  int column = 0;  // where its ranks begin in h
  float scale = 1;
  int splits = 1;  // of its part of h

  int splits_of_range() const { return (end - begin + kLowRankSplit - 1) / kLowRankSplit; }
};

struct LowRankFactors {
  LowRankFactor of[kMostLowRankFactors];
  int count = 0;
  int ranks = 0;  // of all

  /// Of 32 ranks of one factor.
  int chunks() const {
    int all = 0;
    for (int i = 0; i < count; ++i) all += (of[i].rank + 31) / 32;
    return all;
  }
};

/// Rows that take adapters of their own: tiles of 16 rows that take one, and the factors of each slot, on the device.
/// Each row is in one tile. A recorded graph finds in them what the step has.
struct LowRankRows {
  static constexpr int kRows = 16;  // of a tile

  const int* slot_N = nullptr;            // of each tile; -1: its rows take none
  const int* row_N = nullptr;             // 16 of each tile; -1: there is none
  const LowRankFactors* table = nullptr;  // by slot
  int tiles = 0;                          // 0: all rows take the factors of the call
  int most_chunks = 0;                    // of a slot
  int most_splits = 0;
};

/// Bits of a number of h that is not there yet: a NaN that no instruction returns.
inline constexpr uint32_t kNotMade = 0xffffffff;

/// Addition to the rows of a product's result before they are rounded: h B^T, h in float32 as two numbers of 16 bits.
struct LowRankAddition {
  float* h_TR = nullptr;  // scale * x A^T; null: nothing is added
  int h_pitch = 0;
  int first_output = 0;    // of the matrix that the factors' ranges count from
  LowRankFactors factors;  // B of each pair
  LowRankRows by_row;

  /// Not null: the product's kernel makes h itself, its thread blocks some ranks each. Two numbers, 0 between kernels:
  /// the thread blocks that have made theirs, and those that have waited for them.
  unsigned* made = nullptr;
  /// With `made`: all numbers of h are kNotMade between products, and thread blocks wait for the numbers themselves; the last
  /// one that has them sets them back.
  bool is_polled = false;
  /// Not null: the kernel before makes h, and says in the first of two numbers when x is there. The product reads x then,
  /// and waits for that kernel's end before its epilogue. 0 between passes; the second one counts who has seen it.
  unsigned* ready = nullptr;
  /// Not null: a batch's product makes h itself, in units of which each has a flag (batch_product_share.cuh). h_TR is the
  /// units' memory. 0 between kernels.
  unsigned* flags = nullptr;
  LowRankFactors down;                         // A of each pair
  const LowRankFactors* down_table = nullptr;  // by slot
};

/// Floats of a row of h in shared memory: what eight lanes read at once lies in different banks.
constexpr int staged_hidden_pitch(int ranks) { return (ranks + 31) / 32 * 32 + 16; }

struct LowRankDown {
  const void* x_TI = nullptr;  // 16 bytes at once
  int64_t pitch = 0;           // columns of x
  int rows = 0;
  LowRankFactors factors;
  LowRankRows by_row;
  int h_pitch = 0;         // ranks of a row of h
  float* h_STR = nullptr;  // most splits of a factor
  /// As x: scale * h, which gradients of factors multiply. Of low_rank_down_many() alone; may be null.
  void* scaled_TR = nullptr;
};

struct LowRankUp {
  const float* h_STR = nullptr;
  int h_pitch = 0;
  int rows = 0;
  int outputs = 0;
  int first_output = 0;  // of the matrix that the factors' ranges count from
  LowRankFactors factors;
  LowRankRows by_row;
  const void* y_TO = nullptr;
  bool is_y_float = true;    // else as x
  void* out_TO = nullptr;    // may be y
  bool is_out_float = true;  // else as x
};

/// Addition of pairs by itself: out_TO = scale * h B^T, zero where there is no pair. Many rows; a product that adds to
/// what it finds does the rest.
struct LowRankFill {
  const float* h_TR = nullptr;  // complete
  int h_pitch = 0;
  int rows = 0;
  int outputs = 0;  // a multiple of kLowRankColumns
  LowRankFactors factors;
  void* out_TO = nullptr;  // as x
};

/// h and B as more inputs of a product, which then adds what pairs do by itself: 64 columns for each 32 ranks of a
/// factor. Those of x are scale * h as two numbers of 16 bits, those of the matrix B twice, zero in other outputs.
struct LowRankColumns {
  static constexpr int kOfChunk = 64;

  const float* h_TR = nullptr;  // complete
  int h_pitch = 0;
  int rows = 0;
  int outputs = 0;
  LowRankFactors factors;
  void* h_TC = nullptr;  // as x
  void* b_OC = nullptr;

  int columns() const { return kOfChunk * factors.chunks(); }
};

/// `number`: of x, 16 bits.
void low_rank_down(Number number, const LowRankDown& call, Stream stream);
/// The splits of each factor added in order, to one: for many rows, before their way up. May not be in place.
void low_rank_sums(const LowRankDown& call, float* h_TR, Stream stream);
/// Both at once: h complete, [T, R] in h_STR, with the same bits. Enough rows to fill the processors, of one adapter, and
/// factors in whole pieces of 16 bytes.
bool has_low_rank_down_many(const LowRankDown& call);
void low_rank_down_many(Number number, const LowRankDown& call, Stream stream);
void low_rank_up(Number number, const LowRankUp& call, Stream stream);
void low_rank_fill(Number number, const LowRankFill& call, Stream stream);
void low_rank_columns(Number number, const LowRankColumns& call, Stream stream);

}  // namespace slime::kernels::cuda
