#pragma once

/// Adapters beside the products of a decode step's chain (kernels/block_chain.h).

#include <cuda_runtime.h>

#include <optional>

#include "kernels/cuda/products/batch_product.h"
#include "kernels/cuda/products/low_rank.h"
#include "kernels/matrix.h"

namespace slime::kernels::cuda {

/// Whether the product of a matrix has an addition in this pass.
bool has_addition(const Matrix& weight_OI);
/// Whether the chain's kernels compute it for so many rows and are the faster way, or there is none. `epilogue`: of the
/// matrix's product where it is one of a batch.
bool has_chain_addition(const Matrix& weight_OI, int64_t rows, BatchProduct::Epilogue epilogue);

/// Addition of adapters to a product of the chain, with the memory of h.
class ChainAddition {
 public:
  /// Of a product of few rows, whose kernel makes h itself. `counts`: of the network (LowRankAddition::made); `polled`: its
  /// low_rank_polled(), or null.
  ChainAddition(const Tensor& x_TI, const Matrix& weight_OI, unsigned* counts, float* polled);
  /// Of any other: h is on its way on `stream`, where the kernel that adds it goes next. `ready`: of the matrix
  /// (LowRankAddition::ready), for a product that reads x before h is there; null: it waits for h.
  ChainAddition(const Tensor& x_TI, const Matrix& weight_OI, cudaStream_t stream, unsigned* ready);

  /// Of a product of a batch whose kernel makes h itself, if it can with these `flags` (LowRankAddition::flags), which may
  /// be null.
  static std::optional<ChainAddition> made_by(const BatchProduct& product, const Tensor& x_TI,
                                              const Matrix& weight_OI, unsigned* flags);

  const LowRankAddition& call() const { return call_; }

 private:
  ChainAddition() = default;
  /// With room for h.
  ChainAddition(const Tensor& x_TI, const Matrix& weight_OI);
  void set_rows_and_factors(const Matrix& weight_OI);

  LowRankAddition call_;
  Tensor h_TR_;
};

}  // namespace slime::kernels::cuda
