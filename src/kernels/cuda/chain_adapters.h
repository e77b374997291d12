#pragma once

/// Adapters beside the products of a decode step's chain (kernels/block_chain.h).

#include <cuda_runtime.h>

#include "kernels/cuda/products/low_rank.h"
#include "kernels/cuda/products/narrow_product.h"
#include "kernels/matrix.h"

namespace slime::kernels::cuda {

/// Whether the product of a matrix has an addition in this pass.
bool has_addition(const Matrix& weight_OI);
/// Whether the chain's kernels compute it, or there is none.
bool has_chain_addition(const Matrix& weight_OI);

/// What the adapters add to a product of the chain. Made, h is on its way on `stream`: the product goes there next.
class ChainAddition {
 public:
  /// `x_TI`: of which only the size is read where there is a norm.
  ChainAddition(const Tensor& x_TI, const Matrix& weight_OI, const NormPrologue& norm,
                cudaStream_t stream);

  const LowRankAddition& call() const { return call_; }

 private:
  LowRankAddition call_;
  Tensor h_TR_;
};

}  // namespace slime::kernels::cuda
