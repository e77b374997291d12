#include "kernels/cuda/products/linear.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products/batch_product.h"
#include "kernels/cuda/products/product_probe.h"
#include "kernels/cuda/recording.h"
#include "kernels/gpu/recorded_rows.h"

namespace slime::kernels::cuda {
namespace {

constexpr int kMaxCandidates = 8;
constexpr int kTimedRuns = 3;
constexpr size_t kLeastLaunches = 8;
constexpr size_t kMostCopies = 64;  // of small matrices: they would take long for nothing
/// Several times the largest cache of today's GPUs.
constexpr size_t kColdBytes = size_t{256} << 20;
/// A probe has weights of its own. Larger matrices, those of vocabularies, are the ruling kernel's:
/// they are read at the memory's speed whoever reads them.
constexpr size_t kMostProbedBytes = size_t{256} << 20;

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

size_t weight_bytes(const LinearCall& call) {
  return static_cast<size_t>(call.inputs * call.outputs) *
         (call.number == Number::kFloat32 ? 4 : 2);
}

bool is_probed(const LinearCall& call) {
  return weight_bytes(call) <= kMostProbedBytes && call.inputs % 2 == 0;
}

/// The same matrix several times, one after another. A matrix that alone is larger than any cache
/// is not copied: one product with it leaves nothing of its beginning there.
class WeightCopies final {
 public:
  WeightCopies(const void* weights, size_t bytes, cudaStream_t stream)
      : weights_(weights),
        bytes_(bytes),
        count_(std::min((kColdBytes + bytes - 1) / bytes, kMostCopies)) {
    if (count_ == 1) return;
    check_cuda(cudaMalloc(&memory_, bytes * count_), "memory for timing products");
    for (size_t i = 0; i < count_; ++i)
      check_cuda(cudaMemcpyAsync(static_cast<std::byte*>(memory_) + i * bytes, weights, bytes,
                                 cudaMemcpyDeviceToDevice, stream),
                 "copies for timing products");
  }
  WeightCopies(const WeightCopies&) = delete;
  WeightCopies& operator=(const WeightCopies&) = delete;
  ~WeightCopies() { cudaFree(memory_); }
  size_t count() const { return count_; }
  const void* copy(size_t i) const {
    return count_ == 1 ? weights_ : static_cast<const std::byte*>(memory_) + i * bytes_;
  }

 private:
  const void* weights_;
  size_t bytes_;
  size_t count_;
  void* memory_ = nullptr;
};

/// Launches recorded once on a stream of their own, and timed as a whole.
class TimedGraph final {
 public:
  template <typename Body>
  explicit TimedGraph(const Body& body) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream for timing");
    check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "recording");
    body(stream_);
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream_, &graph), "recording");
    const cudaError_t status = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "recording");
    check_cuda(cudaEventCreate(&begin_), "cudaEventCreate");
    check_cuda(cudaEventCreate(&end_), "cudaEventCreate");
  }
  TimedGraph(const TimedGraph&) = delete;
  TimedGraph& operator=(const TimedGraph&) = delete;
  ~TimedGraph() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaGraphExecDestroy(graph_);
    cudaStreamDestroy(stream_);
  }

  /// Milliseconds of the fastest run after one that does not count: what else the GPU does only
  /// ever adds time.
  float best_of(int runs) const {
    float best = 1e30F;
    for (int run = 0; run <= runs; ++run) {
      check_cuda(cudaEventRecord(begin_, stream_), "cudaEventRecord");
      check_cuda(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch");
      check_cuda(cudaEventRecord(end_, stream_), "cudaEventRecord");
      check_cuda(cudaEventSynchronize(end_), "timed products");  // sync: a shape's first use
      float milliseconds = 0;
      check_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
      if (run > 0) best = std::min(best, milliseconds);
    }
    return best;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

bool is_batch_product(const LinearCall& call) {
  return has_batch_product(call.number, call.rows) && call.inputs % kBatchProductInputs == 0 &&
         call.outputs % kBatchProductOutputs == 0 && is_aligned(call.x_TI) &&
         is_aligned(call.weight_OI) && is_aligned(call.bias_O) && is_aligned(call.y_TO);
}

void batch_linear(const LinearCall& call, cudaStream_t stream) {
  BatchProduct product;
  product.x_TI = call.x_TI;
  product.weight_OI = call.weight_OI;
  product.bias_O = call.bias_O;
  product.rows = static_cast<int>(call.rows);
  product.inputs = static_cast<int>(call.inputs);
  product.outputs = static_cast<int>(call.outputs);
  product.float_result = call.float_result;
  product.y = call.y_TO;
  batch_product(product, stream);
}

}  // namespace

void leave_processors_of_library(int count) {
  check_blas(cublasSetSmCountTarget(at::cuda::getCurrentCUDABlasHandle(),
                                    count == 0 ? 0 : num_processors() - count),
             "cublasSetSmCountTarget");
}

struct Linear::Plan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t weight = nullptr, x = nullptr, y = nullptr;
  Kernel kernel = Kernel::kLibrary;
  cublasLtMatmulAlgo_t algo{};  // of the library's kernel

  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    cublasLtMatmulDescDestroy(desc);
    for (cublasLtMatrixLayout_t layout : {weight, x, y}) cublasLtMatrixLayoutDestroy(layout);
  }
};

struct Linear::Candidate {
  Kernel kernel = Kernel::kLibrary;
  cublasLtMatmulAlgo_t algo{};
  std::string name;
  bool has_ruling_bits = true;
  float milliseconds = 0;  // 0: not timed
};

Linear::Linear() { check_blas(cublasLtCreate(&handle_), "cublasLtCreate"); }

Linear::~Linear() = default;

/// By the shape alone, so that it is the same in every process.
Linear::Kernel Linear::ruling_kernel(const LinearCall& call) {
  if (!is_recorded_size(call.rows)) return Kernel::kLibrary;
  if (call.accumulates) throw std::runtime_error("recorded products do not accumulate");
  return is_batch_product(call) ? Kernel::kBatch
         : is_skinny(call)      ? Kernel::kSkinny
                                : Kernel::kLibrary;
}

/// In the library's column-major words: y [O, T] = (weight [I, O])^T times x [I, T].
std::unique_ptr<Linear::Plan> Linear::make_plan(const LinearCall& call,
                                                std::vector<Candidate>& candidates) const {
  auto plan = std::make_unique<Plan>();
  const int type = type_of(call.number);
  check_blas(cublasLtMatmulDescCreate(&plan->desc, cublaslt::kCompute32F, cublaslt::kReal32F),
             "cublasLtMatmulDescCreate");
  const auto set = [&](int attribute, const auto& value) {
    check_blas(cublasLtMatmulDescSetAttribute(plan->desc, attribute, &value, sizeof(value)),
               "cublasLtMatmulDescSetAttribute");
  };
  set(cublaslt::kDescTransA, cublaslt::kTransposed);
  if (call.processors_left > 0)
    set(cublaslt::kDescProcessors, int32_t{num_processors() - call.processors_left});
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
  for (int i = 0; i < count; ++i) {
    if (results[i].state == 0)
      candidates.push_back({Kernel::kLibrary, results[i].algo, "library-" + std::to_string(i)});
  }
  if (candidates.empty()) throw std::runtime_error("cuBLASLt has no kernel for this product");
  plan->algo = candidates.front().algo;
  if (is_batch_product(call)) candidates.push_back({Kernel::kBatch, {}, "batch"});
  if (is_skinny(call)) candidates.push_back({Kernel::kSkinny, {}, "skinny"});
  // The one that rules is first.
  plan->kernel = ruling_kernel(call);
  std::ranges::stable_partition(
      candidates, [&](const Candidate& candidate) { return candidate.kernel == plan->kernel; });
  return plan;
}

Linear::Plan& Linear::plan_for(const LinearCall& call, void* workspace, cudaStream_t stream) {
  const Shape shape{
      call.rows,          call.inputs,      call.outputs,           call.number,
      call.float_result,  call.accumulates, call.bias_O != nullptr, call.processors_left,
      ruling_kernel(call)};
  const auto found = plans_.find(shape);
  if (found != plans_.end()) return *found->second;
  std::vector<Candidate> candidates;
  auto plan = make_plan(call, candidates);
  if (is_recorded_size(call.rows) && is_probed(call)) {
    if (is_recording(stream)) throw std::runtime_error("a product is recorded before it ran once");
    find_equals(call, *plan, candidates, workspace, stream);
    std::erase_if(candidates, [](const Candidate& one) { return !one.has_ruling_bits; });
    if (candidates.size() > 1) measure(call, *plan, candidates, workspace, stream);
    const auto fastest = std::ranges::min_element(candidates, {}, &Candidate::milliseconds);
    plan->kernel = fastest->kernel;
    if (fastest->kernel == Kernel::kLibrary) plan->algo = fastest->algo;
  }
  return *plans_.emplace(shape, std::move(plan)).first->second;
}

std::vector<ProductCandidate> Linear::candidates(const LinearCall& call, void* workspace,
                                                 cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  std::vector<Candidate> candidates;
  const auto plan = make_plan(call, candidates);
  if (is_probed(call)) find_equals(call, *plan, candidates, workspace, stream);
  measure(call, *plan, candidates, workspace, stream);
  std::vector<ProductCandidate> out;
  for (const Candidate& one : candidates)
    out.push_back({one.name, 1e3 * one.milliseconds, one.has_ruling_bits});
  return out;
}

void Linear::run_kernel(const LinearCall& call, Plan& plan, Kernel kernel,
                        const cublasLtMatmulAlgo_t& algo, void* workspace,
                        cudaStream_t stream) const {
  switch (kernel) {
    case Kernel::kSkinny:
      return skinny_linear(call, stream);
    case Kernel::kBatch:
      return batch_linear(call, stream);
    case Kernel::kLibrary:
      return run_library(call, plan, algo, workspace, stream);
  }
}

void Linear::run_library(const LinearCall& call, Plan& plan, const cublasLtMatmulAlgo_t& algo,
                         void* workspace, cudaStream_t stream) const {
  if (call.bias_O != nullptr) {
    check_blas(cublasLtMatmulDescSetAttribute(plan.desc, cublaslt::kDescBiasPointer, &call.bias_O,
                                              sizeof(call.bias_O)),
               "cublasLtMatmulDescSetAttribute");
  }
  const float one = 1, kept = call.accumulates ? 1 : 0;
  check_blas(cublasLtMatmul(handle_, plan.desc, &one, call.weight_OI, plan.weight, call.x_TI,
                            plan.x, &kept, call.y_TO, plan.y, call.y_TO, plan.y, &algo, workspace,
                            kWorkspaceBytes, stream),
             "cublasLtMatmul");
}

/// The first candidate rules, and becomes the first where it was not; which of the others have its bits?
void Linear::find_equals(const LinearCall& call, Plan& plan, std::vector<Candidate>& candidates,
                         void* workspace, cudaStream_t stream) const {
  ProductProbe probe(call, stream);
  const auto multiply = [&](const LinearCall& one, const Candidate& candidate) {
    run_kernel(one, plan, candidate.kernel, candidate.algo, workspace, stream);
  };
  const auto agrees = [&](const Candidate& candidate) {
    return probe.agrees([&](const LinearCall& one) { multiply(one, candidate); });
  };
  // One that is not the same twice does not rule, but if none is.
  const auto rules = [&](const Candidate& candidate) {
    probe.take([&](const LinearCall& one) { multiply(one, candidate); });
    return agrees(candidate);
  };
  const auto ruling = std::ranges::find_if(candidates, rules);
  if (ruling == candidates.end()) {
    for (Candidate& candidate : candidates)
      candidate.has_ruling_bits = &candidate == &candidates.front();
    return;
  }
  std::rotate(candidates.begin(), ruling, ruling + 1);
  for (Candidate& candidate : candidates) candidate.has_ruling_bits = agrees(candidate);
  candidates.front().has_ruling_bits = true;
}

/// Each candidate runs many times in a row, as a recorded graph, on copies of the weights that do
/// not fit into the caches together: cold weights, launch gaps, second kernels and early starts
/// count as they do in a model.
void Linear::measure(const LinearCall& call, Plan& plan, std::vector<Candidate>& candidates,
                     void* workspace, cudaStream_t stream) const {
  const WeightCopies copies(call.weight_OI, weight_bytes(call), stream);
  check_cuda(cudaStreamSynchronize(stream), "a product's input");  // sync: a shape's first use
  for (Candidate& candidate : candidates) {
    const TimedGraph graph([&](cudaStream_t recording) {
      for (size_t i = 0; i < std::max(copies.count(), kLeastLaunches); ++i) {
        LinearCall one = call;
        one.weight_OI = copies.copy(i % copies.count());
        run_kernel(one, plan, candidate.kernel, candidate.algo, workspace, recording);
      }
    });
    candidate.milliseconds =
        graph.best_of(kTimedRuns) / static_cast<float>(std::max(copies.count(), kLeastLaunches));
  }
}

void Linear::run(const LinearCall& call, void* workspace, cudaStream_t stream) {
  if (call.rows == 0) return;
  const std::lock_guard lock(mutex_);
  Plan& plan = plan_for(call, workspace, stream);
  run_kernel(call, plan, plan.kernel, plan.algo, workspace, stream);
}

}  // namespace slime::kernels::cuda
