#pragma once

/// Matrix products y = x W^T + b in which a row has the same bits whatever the other rows are: training arithmetic.
///
/// A shape's reference is one of cuBLASLt's algorithms for many rows, without split-K, reduction and workspace: a thread
/// block adds the products of an element from the first input to the last. For few rows the library's choices there are
/// taken where they have the reference's bits on a probe (product_probe.h). Each also multiplies the probe in pieces of
/// its rows, which must change nothing. Both is done once a shape and class of row counts, in some milliseconds, and
/// waits for the GPU. Matrices above 256 MB (vocabularies) are not probed: the reference has them for any rows. Nothing
/// is timed, so that every process finds the same with the same card and library.
/// Why: docs/decisions/0168-training-arithmetic.md.

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "kernels/cuda/products/cublaslt_api.h"
#include "kernels/cuda/products/skinny_linear.h"

namespace slime::kernels::cuda {

/// One instance per device; may be called from any thread.
class BatchInvariantLinear final {
 public:
  BatchInvariantLinear();
  ~BatchInvariantLinear();
  BatchInvariantLinear(const BatchInvariantLinear&) = delete;
  BatchInvariantLinear& operator=(const BatchInvariantLinear&) = delete;

  /// Throws std::runtime_error for a call that accumulates, for a shape of which no algorithm passes, and where a
  /// shape's first call is recorded. LinearCall::processors_left is no matter.
  void run(const LinearCall& call, cudaStream_t stream);

 private:
  struct Plan;  // descriptors of cuBLASLt for a shape, and the algorithm
  /// most rows, inputs, outputs, precision, float result, has bias.
  using Shape = std::tuple<int64_t, int64_t, int64_t, Number, bool, bool>;

  Plan& plan_for(const LinearCall& call, cudaStream_t stream);
  Plan& reference_for(const LinearCall& call, cudaStream_t stream);
  std::unique_ptr<Plan> blank_plan(const LinearCall& call, int64_t rows) const;
  std::vector<cublasLtMatmulAlgo_t> suggestions(const Plan& plan) const;
  bool may_compute(Plan& plan, const cublasLtMatmulAlgo_t& algo, int64_t most_rows) const;
  void multiply(const LinearCall& call, Plan& plan, const cublasLtMatmulAlgo_t& algo,
                cudaStream_t stream) const;
  void multiply_in_pieces(const LinearCall& call, Plan& plan, const cublasLtMatmulAlgo_t& algo,
                          cudaStream_t stream) const;

  cublasLtHandle_t handle_ = nullptr;  // made by the first call
  std::mutex mutex_;
  std::map<Shape, std::unique_ptr<Plan>> plans_;  // guarded by mutex_
};

}  // namespace slime::kernels::cuda
