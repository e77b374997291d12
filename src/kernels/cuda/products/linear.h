#pragma once

/// Matrix products y = x W^T + b: cuBLASLt's kernels and our two for few rows.
///
/// A shape has one ruling kernel, chosen by the shape alone: ours where they compute it, else
/// cuBLASLt's first choice. Results have its bits, in every process and on every rank with the same
/// card and library. For the batch sizes of recorded decode steps (kernels/gpu/recorded_rows.h: the
/// same shape in every layer of every step) the other candidates that have the ruling one's bits on a
/// probe (product_probe.h) are timed beside it the first time a shape appears, in a row on cold
/// copies of the weights, and the fastest is taken. That takes some milliseconds and waits for the
/// GPU; during recording of a graph nothing can be timed, so a shape must have run before. Other
/// numbers of rows seldom come twice. One instance per device; may be called from any thread.
/// Why: docs/decisions/0146-kernel-choice.md.

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "kernels/cuda/products/cublaslt_api.h"
#include "kernels/cuda/products/skinny_linear.h"
#include "kernels/gpu/product_candidate.h"

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

  /// All that could compute this product, the ruling kernel first, each one timed: for measurements.
  std::vector<ProductCandidate> candidates(const LinearCall& call, void* workspace,
                                           cudaStream_t stream);

 private:
  enum class Kernel { kLibrary, kSkinny, kBatch };
  /// rows, inputs, outputs, precision, float result, accumulates, has bias, processors left, ruling kernel (which
  /// depends on the alignment of pointers too).
  using Shape = std::tuple<int64_t, int64_t, int64_t, Number, bool, bool, bool, int, Kernel>;
  struct Plan;       // descriptors of cuBLASLt for a shape, and the kernel
  struct Candidate;  // a kernel that can compute a shape

  static Kernel ruling_kernel(const LinearCall& call);
  Plan& plan_for(const LinearCall& call, void* workspace, cudaStream_t stream);
  std::unique_ptr<Plan> make_plan(const LinearCall& call, std::vector<Candidate>& candidates) const;
  void run_kernel(const LinearCall& call, Plan& plan, Kernel kernel,
                  const cublasLtMatmulAlgo_t& algo, void* workspace, cudaStream_t stream) const;
  void run_library(const LinearCall& call, Plan& plan, const cublasLtMatmulAlgo_t& algo,
                   void* workspace, cudaStream_t stream) const;
  void find_equals(const LinearCall& call, Plan& plan, std::vector<Candidate>& candidates,
                   void* workspace, cudaStream_t stream) const;
  void measure(const LinearCall& call, Plan& plan, std::vector<Candidate>& candidates,
               void* workspace, cudaStream_t stream) const;

  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<Shape, std::unique_ptr<Plan>> plans_;  // guarded by mutex_
};

}  // namespace slime::kernels::cuda
