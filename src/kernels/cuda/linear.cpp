#include "kernels/cuda/linear.h"

#include <algorithm>

#include "kernels/cuda/rows.h"

namespace slime::kernels::cuda {
namespace {

constexpr int kMaxCandidates = 8;
constexpr int kTimedRuns = 5;
/// Read between timed runs, so that weights come from memory as they do in a model.
constexpr size_t kFlushBytes = size_t{128} << 20;

void check_blas(int status, const char* what) {
  if (status != 0)
    throw std::runtime_error(std::string(what) + " failed with cuBLAS status " +
                             std::to_string(status));
}

int type_of(Number number) {
  switch (number) {
    case Number::kFloat32:
      return cublaslt::kReal32F;
    case Number::kBFloat16:
      return cublaslt::kReal16BF;
    default:
      return cublaslt::kReal16F;
  }
}

bool is_recording(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

struct Linear::Plan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t weight = nullptr, x = nullptr, y = nullptr;
  cublasLtMatmulAlgo_t algo{};
  bool is_skinny = false;

  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    cublasLtMatmulDescDestroy(desc);
    for (cublasLtMatrixLayout_t layout : {weight, x, y}) cublasLtMatrixLayoutDestroy(layout);
  }
};

Linear::Linear() {
  check_blas(cublasLtCreate(&handle_), "cublasLtCreate");
  check_cuda(cudaMalloc(&workspace_, kWorkspaceBytes), "workspace of matrix products");
}

Linear::~Linear() { cudaFree(workspace_); }

/// In the library's column-major words: y [O, T] = (weight [I, O])^T times x [I, T].
Linear::Plan& Linear::plan_for(const LinearCall& call, cudaStream_t stream) {
  const Shape shape{call.rows,   call.inputs,       call.outputs,
                    call.number, call.float_result, call.bias_O != nullptr};
  const auto found = plans_.find(shape);
  if (found != plans_.end()) return *found->second;

  auto plan = std::make_unique<Plan>();
  const int type = type_of(call.number);
  check_blas(cublasLtMatmulDescCreate(&plan->desc, cublaslt::kCompute32F, cublaslt::kReal32F),
             "cublasLtMatmulDescCreate");
  const auto set = [&](int attribute, const auto& value) {
    check_blas(cublasLtMatmulDescSetAttribute(plan->desc, attribute, &value, sizeof(value)),
               "cublasLtMatmulDescSetAttribute");
  };
  set(cublaslt::kDescTransA, cublaslt::kTransposed);
  if (call.bias_O != nullptr) {
    set(cublaslt::kDescEpilogue, cublaslt::kEpilogueBias);
    set(cublaslt::kDescBiasPointer, call.bias_O);
    set(cublaslt::kDescBiasDataType, type);
  }
  const auto layout = [&](cublasLtMatrixLayout_t* out, int of, int64_t rows, int64_t columns) {
    check_blas(cublasLtMatrixLayoutCreate(out, of, rows, columns, rows),
               "cublasLtMatrixLayoutCreate");
  };
  layout(&plan->weight, type, call.inputs, call.outputs);
  layout(&plan->x, type, call.inputs, call.rows);
  layout(&plan->y, call.float_result ? cublaslt::kReal32F : type, call.outputs, call.rows);

  cublasLtMatmulPreference_t preference = nullptr;
  check_blas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  cublasLtMatmulPreferenceSetAttribute(preference, cublaslt::kPreferenceMaxWorkspaceBytes,
                                       &kWorkspaceBytes, sizeof(kWorkspaceBytes));
  cublasLtMatmulHeuristicResult_t results[kMaxCandidates];
  int count = 0;
  const int status =
      cublasLtMatmulAlgoGetHeuristic(handle_, plan->desc, plan->weight, plan->x, plan->y, plan->y,
                                     preference, kMaxCandidates, results, &count);
  cublasLtMatmulPreferenceDestroy(preference);
  check_blas(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<cublasLtMatmulAlgo_t> candidates;
  for (int i = 0; i < count; ++i)
    if (results[i].state == 0) candidates.push_back(results[i].algo);
  if (candidates.empty()) throw std::runtime_error("cuBLASLt has no kernel for this product");
  plan->algo = candidates.front();
  const bool can_measure = call.rows <= kMeasuredRows && !is_recording(stream);
  if (can_measure) measure(call, *plan, candidates, stream);
  Plan& result = *plan;
  // A choice made without measuring is not kept where measuring is possible later.
  if (can_measure || call.rows > kMeasuredRows) {
    plans_.emplace(shape, std::move(plan));
    return result;
  }
  throw std::runtime_error("a product is recorded before it ran once");
}

void Linear::run_library(const LinearCall& call, Plan& plan, const cublasLtMatmulAlgo_t& algo,
                         cudaStream_t stream) const {
  if (call.bias_O != nullptr) {
    check_blas(cublasLtMatmulDescSetAttribute(plan.desc, cublaslt::kDescBiasPointer, &call.bias_O,
                                              sizeof(call.bias_O)),
               "cublasLtMatmulDescSetAttribute");
  }
  const float one = 1, zero = 0;
  check_blas(cublasLtMatmul(handle_, plan.desc, &one, call.weight_OI, plan.weight, call.x_TI,
                            plan.x, &zero, call.y_TO, plan.y, call.y_TO, plan.y, &algo, workspace_,
                            kWorkspaceBytes, stream),
             "cublasLtMatmul");
}

/// The fastest of kTimedRuns runs counts: what else the GPU does only ever adds time.
void Linear::measure(const LinearCall& call, Plan& plan,
                     const std::vector<cublasLtMatmulAlgo_t>& candidates, cudaStream_t stream) {
  void* flush = nullptr;
  check_cuda(cudaMalloc(&flush, kFlushBytes), "memory for timing products");
  cudaEvent_t begin = nullptr, end = nullptr;
  check_cuda(cudaEventCreate(&begin), "cudaEventCreate");
  check_cuda(cudaEventCreate(&end), "cudaEventCreate");
  const auto best_of = [&](const auto& work) {
    float best = 1e30F;
    for (int run = 0; run < kTimedRuns; ++run) {
      read_through(flush, kFlushBytes, stream);
      check_cuda(cudaEventRecord(begin, stream), "cudaEventRecord");
      work();
      check_cuda(cudaEventRecord(end, stream), "cudaEventRecord");
      check_cuda(cudaEventSynchronize(end), "timed product");  // sync: a shape's first use
      float milliseconds = 0;
      check_cuda(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
      best = std::min(best, milliseconds);
    }
    return best;
  };
  float fastest = 1e30F;
  for (const cublasLtMatmulAlgo_t& algo : candidates) {
    const float time = best_of([&] { run_library(call, plan, algo, stream); });
    if (time >= fastest) continue;
    fastest = time;
    plan.algo = algo;
  }
  plan.is_skinny = cuda::is_skinny(call) && best_of([&] { skinny_linear(call, stream); }) < fastest;
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaFree(flush);
}

void Linear::run(const LinearCall& call, cudaStream_t stream) {
  if (call.rows == 0) return;
  const std::lock_guard lock(mutex_);
  Plan& plan = plan_for(call, stream);
  if (plan.is_skinny) return skinny_linear(call, stream);
  run_library(call, plan, plan.algo, stream);
}

}  // namespace slime::kernels::cuda
