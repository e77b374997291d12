#pragma once

/// Collectives of tensor-parallel ranks without gradients: the all-reduce behind a row-parallel
/// product, and the all-gather of a column-parallel one. A chain of kernels (kernels/block_chain.h)
/// is handed them, because its norms read the sum.
///
/// All ranks make the same calls in the same order, and have the same bits afterwards.
///
/// Dimensions: T tokens, H hidden, S partial sums of split-K, R rows, V columns of one rank.

#include <cstdint>

#include "core/tensor.h"

namespace slime::kernels {

class RankCollectives {
 public:
  virtual ~RankCollectives() = default;

  /// partial_TH, contiguous, becomes the sum over the ranks.
  virtual void sum_(const Tensor& partial_TH) const = 0;

  /// True when add_norm_() takes such a residual stream.
  virtual bool has_add_norm(const Tensor& residual_TH) const = 0;
  /// Sum, addition and norm in one: residual_TH += the sum over the ranks of what each has, which is
  /// `partial` [T, H] in the precision of the residual or float32 [S, T, H], to be added up here, and
  /// bias_H where it is defined (on one rank). Returns the RMS norm times weight_H. What a rank has is
  /// rounded to the precision of the residual once.
  virtual Tensor add_norm_(const Tensor& residual_TH, const Tensor& partial, const Tensor& bias_H,
                           const Tensor& weight_H, double eps) const = 0;

  /// True when gather_columns() takes what a rank has, and so what all have.
  virtual bool has_gather_columns(const Tensor& own_RV) const = 0;
  /// [R, columns] on all ranks. Each has as many columns, but for the last ones, which may have fewer.
  virtual Tensor gather_columns(const Tensor& own_RV, int64_t columns) const = 0;
};

}  // namespace slime::kernels
