#pragma once

/// Low-rank pairs (kernels/adapters.h) as the kernels beside products take them.

#include <ATen/ATen.h>

#include <vector>

#include "kernels/adapters.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/products/low_rank.h"

namespace slime::kernels::cuda {

/// Pairs beside a matrix in a pass whose rows all take one adapter and drop nothing; empty: there are none.
inline std::vector<PairRange> ranges_of(const Matrix& matrix) {
  const AdapterRows& rows = *matrix.adapters->rows;
  const bool drops = rows.dropout > 0 && matrix.adapter_pass > 0;
  if (!rows.takes_one() || rows.shares.front().slot < 0 || drops) return {};
  return pair_ranges(matrix, rows.shares.front().slot);
}

/// Of x, and of ranges of outputs: whole loads.
inline bool is_whole(int64_t columns) { return columns % kLowRankColumns == 0; }

/// Whether kernels read its factors as they lie.
inline bool has_plain_factors(const LowRankPair& pair) {
  return pair.experts == 0 && pair.a.value.scalar_type() == at::kFloat &&
         pair.a.value.is_contiguous() && pair.b.value.is_contiguous();
}

/// Tiles of rows that take adapters of their own, without a table.
inline LowRankRows rows_by_adapter(const MatrixAdapters& adapters) {
  const AdapterTiles& tiles = adapters.rows->tiles;
  LowRankRows rows;
  rows.slot_N = tiles.slot_N.const_data_ptr<int32_t>();
  rows.row_N = tiles.row_N.const_data_ptr<int32_t>();
  rows.tiles = static_cast<int>(tiles.slot_N.numel());
  rows.most_chunks = static_cast<int>(adapters.placed.most_chunks);
  rows.most_splits = static_cast<int>(adapters.placed.most_splits);
  return rows;
}

/// One of MatrixAdapters::Placed.
inline const LowRankFactors* factor_table(const Tensor& placed) {
  return static_cast<const LowRankFactors*>(placed.const_data_ptr());
}

/// The two factors of a pair, of which one range of outputs is wanted. Either has the scale: whichever kernel is the
/// last to multiply uses it.
struct FactorsOfPair {
  LowRankFactor a, b;

  explicit FactorsOfPair(const PairRange& range, int column) {
    const LowRankPair& pair = *range.pair;
    const int rank = static_cast<int>(pair.a.value.size(0));
    a.values = array<float>(pair.a.value);
    a.pitch = pair.a.value.size(1);
    a.is_turned = true;
    a.end = static_cast<int>(a.pitch);
    b.values = array<float>(pair.b.value) + range.in_pair * rank;
    b.pitch = rank;
    b.begin = static_cast<int>(range.in_matrix);
    b.end = static_cast<int>(range.in_matrix + range.size);
    for (LowRankFactor* factor : {&a, &b}) {
      factor->rank = rank;
      factor->scale = static_cast<float>(pair.scale);
      factor->column = column;
    }
  }
};

}  // namespace slime::kernels::cuda
