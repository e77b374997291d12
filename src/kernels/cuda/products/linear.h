#pragma once

/// Matrix products y = x W^T + b: cuBLASLt's kernels and our two for few rows, whichever measures
/// fastest.
///
/// For the batch sizes of recorded decode steps (kernels/gpu/recorded_rows.h: the same shape in
/// every layer of every step) the candidates are timed the first time a shape appears, in a row on
/// cold copies of the weights, which takes some milliseconds and waits for the GPU; during
/// recording of a graph nothing can be timed, so a shape must have run before. For other numbers of
/// rows, which seldom come twice, cuBLASLt's first choice is taken. Choices are remembered per
/// shape and precision. One instance per device; may be called from any thread.

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "kernels/cuda/products/cublaslt_api.h"
#include "kernels/cuda/products/skinny_linear.h"

namespace slime::kernels::cuda {

/// Those of LibTorch's cuBLAS calls on this thread that come next leave so many multiprocessors.
void leave_processors_of_library(int count);

class Linear final {
 public:
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  Linear();
  ~Linear();
  Linear(const Linear&) = delete;
  Linear& operator=(const Linear&) = delete;

  /// `workspace`: kWorkspaceBytes that nothing else on the device uses until the product is done.
  void run(const LinearCall& call, void* workspace, cudaStream_t stream);

 private:
  /// rows, inputs, outputs, precision, float result, has bias, processors left.
  using Shape = std::tuple<int64_t, int64_t, int64_t, Number, bool, bool, int>;
  struct Plan;  // descriptors of cuBLASLt for a shape, and the algorithm

  Plan& plan_for(const LinearCall& call, void* workspace, cudaStream_t stream);
  void run_library(const LinearCall& call, Plan& plan, const cublasLtMatmulAlgo_t& algo,
                   void* workspace, cudaStream_t stream) const;
  void measure(const LinearCall& call, Plan& plan,
               const std::vector<cublasLtMatmulAlgo_t>& candidates, void* workspace,
               cudaStream_t stream);

  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<Shape, std::unique_ptr<Plan>> plans_;  // guarded by mutex_
};

}  // namespace slime::kernels::cuda
