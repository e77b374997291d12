#include "kernels/cuda/products/batch_invariant_linear.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products/product_probe.h"
#include "kernels/cuda/recording.h"

namespace slime::kernels::cuda {
namespace {

/// Most rows of the classes that have a choice of their own. With more rows the reference computes.
constexpr auto kRowClasses = std::to_array<int64_t>({64, 256, 1024});
/// Those for which the reference is asked for.
constexpr int64_t kReferenceRows = 4096;
constexpr int64_t kProbeRows = 128;
/// Of a probe, which are multiplied one after another.
constexpr auto kPieces = std::to_array<int64_t>({1, 6, 57});
constexpr size_t kMostProbeBytes = size_t{256} << 20;
constexpr int kMostSuggestions = 8;
constexpr uint32_t kRowAlignment = 16;  // bytes, of rows and matrices (CudaDevice's conditions)

void check_lt(int status, const char* what) {
  if (status != 0)
    throw std::runtime_error(std::string(what) + " failed with cuBLAS status " +
                             std::to_string(status) + " in training arithmetic");
}

int lt_type(Number number) {
  switch (number) {
    case Number::kFloat32:
      return cublaslt::kReal32F;
    case Number::kBFloat16:
      return cublaslt::kReal16BF;
    default:
      return cublaslt::kReal16F;
  }
}

int64_t number_bytes(Number number) { return number == Number::kFloat32 ? 4 : 2; }

int64_t result_bytes(const LinearCall& call) {
  return call.float_result ? 4 : number_bytes(call.number);
}

bool may_be_probed(const LinearCall& call) {
  return call.inputs % 2 == 0 && static_cast<size_t>(call.inputs * call.outputs *
                                                     number_bytes(call.number)) <= kMostProbeBytes;
}

/// Rows of the smallest class that has the call.
int64_t class_of(int64_t rows) {
  const auto found = std::ranges::lower_bound(kRowClasses, rows);
  return found == kRowClasses.end() ? kReferenceRows : *found;
}

template <typename T>
T config_of(const cublasLtMatmulAlgo_t& algo, int attribute) {
  T value{};
  size_t written = 0;
  check_lt(cublasLtMatmulAlgoConfigGetAttribute(&algo, attribute, &value, sizeof(value), &written),
           "cublasLtMatmulAlgoConfigGetAttribute");
  return value;
}

/// A thread block adds all products of an element by itself.
bool adds_alone(const cublasLtMatmulAlgo_t& algo) {
  return config_of<int32_t>(algo, cublaslt::kConfigSplitK) <= 1 &&
         config_of<uint32_t>(algo, cublaslt::kConfigReductionScheme) == cublaslt::kReductionNone;
}

LinearCall piece_of(const LinearCall& call, int64_t begin, int64_t rows) {
  LinearCall piece = call;
  piece.rows = rows;
  piece.x_TI =
      static_cast<const std::byte*>(call.x_TI) + begin * call.inputs * number_bytes(call.number);
  piece.y_TO = static_cast<std::byte*>(call.y_TO) + begin * call.outputs * result_bytes(call);
  return piece;
}

}  // namespace

/// In the library's column-major words: y [O, T] = (weight [I, O])^T times x [I, T].
struct BatchInvariantLinear::Plan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t weight = nullptr, x = nullptr, y = nullptr;
  cublasLtMatmulAlgo_t algo{};

  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    cublasLtMatmulDescDestroy(desc);
    for (cublasLtMatrixLayout_t layout : {weight, x, y}) cublasLtMatrixLayoutDestroy(layout);
  }

  void set_rows(int64_t rows) {
    const auto columns = static_cast<uint64_t>(rows);
    for (cublasLtMatrixLayout_t layout : {x, y})
      check_lt(cublasLtMatrixLayoutSetAttribute(layout, cublaslt::kLayoutColumns, &columns,
                                                sizeof(columns)),
               "cublasLtMatrixLayoutSetAttribute");
  }
};

BatchInvariantLinear::BatchInvariantLinear() = default;

BatchInvariantLinear::~BatchInvariantLinear() = default;

std::unique_ptr<BatchInvariantLinear::Plan> BatchInvariantLinear::blank_plan(const LinearCall& call,
                                                                             int64_t rows) const {
  auto plan = std::make_unique<Plan>();
  const int type = lt_type(call.number);
  check_lt(cublasLtMatmulDescCreate(&plan->desc, cublaslt::kCompute32F, cublaslt::kReal32F),
           "cublasLtMatmulDescCreate");
  const auto set = [&](int attribute, const auto& value) {
    check_lt(cublasLtMatmulDescSetAttribute(plan->desc, attribute, &value, sizeof(value)),
             "cublasLtMatmulDescSetAttribute");
  };
  set(cublaslt::kDescTransA, cublaslt::kTransposed);
  if (call.bias_O != nullptr) {
    set(cublaslt::kDescEpilogue, cublaslt::kEpilogueBias);
    set(cublaslt::kDescBiasPointer, call.bias_O);
    set(cublaslt::kDescBiasDataType, type);
  }
  const auto layout = [&](cublasLtMatrixLayout_t* out, int of, int64_t height, int64_t width) {
    check_lt(cublasLtMatrixLayoutCreate(out, of, height, width, height),
             "cublasLtMatrixLayoutCreate");
  };
  layout(&plan->weight, type, call.inputs, call.outputs);
  layout(&plan->x, type, call.inputs, rows);
  layout(&plan->y, call.float_result ? cublaslt::kReal32F : type, call.outputs, rows);
  return plan;
}

/// The library's order, for the rows that the plan's layouts have.
std::vector<cublasLtMatmulAlgo_t> BatchInvariantLinear::suggestions(const Plan& plan) const {
  cublasLtMatmulPreference_t preference = nullptr;
  check_lt(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](int attribute, const auto& value) {
    return cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value));
  };
  // What thread blocks add together goes through a workspace, or through y by a reduction scheme.
  int status = prefer(cublaslt::kPreferenceMaxWorkspaceBytes, uint64_t{0});
  status |= prefer(cublaslt::kPreferenceReductionSchemes, cublaslt::kReductionNone);
  for (const int alignment : cublaslt::kPreferenceMinAlignments)
    status |= prefer(alignment, kRowAlignment);
  cublasLtMatmulHeuristicResult_t results[kMostSuggestions];
  int count = 0;
  if (status == 0)
    status = cublasLtMatmulAlgoGetHeuristic(handle_, plan.desc, plan.weight, plan.x, plan.y, plan.y,
                                            preference, kMostSuggestions, results, &count);
  cublasLtMatmulPreferenceDestroy(preference);
  check_lt(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<cublasLtMatmulAlgo_t> algos;
  for (int i = 0; i < count; ++i)
    if (results[i].state == 0 && results[i].workspaceSize == 0 && adds_alone(results[i].algo))
      algos.push_back(results[i].algo);
  return algos;
}

/// For one row, for as many as a class has, and for those of a probe. The workspace that the check names is one that a
/// kernel may use, not one that it needs: it runs without, which is what the heuristic was asked for, with equal bits.
bool BatchInvariantLinear::may_compute(Plan& plan, const cublasLtMatmulAlgo_t& algo,
                                       int64_t most_rows) const {
  const auto can = [&](int64_t rows) {
    plan.set_rows(rows);
    cublasLtMatmulHeuristicResult_t result{};
    return cublasLtMatmulAlgoCheck(handle_, plan.desc, plan.weight, plan.x, plan.y, plan.y, &algo,
                                   &result) == 0;
  };
  return can(1) && can(std::min(kProbeRows, most_rows)) && can(most_rows);
}

void BatchInvariantLinear::multiply(const LinearCall& call, Plan& plan,
                                    const cublasLtMatmulAlgo_t& algo, cudaStream_t stream) const {
  plan.set_rows(call.rows);
  if (call.bias_O != nullptr)
    check_lt(cublasLtMatmulDescSetAttribute(plan.desc, cublaslt::kDescBiasPointer, &call.bias_O,
                                            sizeof(call.bias_O)),
             "cublasLtMatmulDescSetAttribute");
  const float one = 1, none = 0;
  check_lt(cublasLtMatmul(handle_, plan.desc, &one, call.weight_OI, plan.weight, call.x_TI, plan.x,
                          &none, call.y_TO, plan.y, call.y_TO, plan.y, &algo, nullptr, 0, stream),
           "cublasLtMatmul");
}

void BatchInvariantLinear::multiply_in_pieces(const LinearCall& call, Plan& plan,
                                              const cublasLtMatmulAlgo_t& algo,
                                              cudaStream_t stream) const {
  int64_t begin = 0;
  const auto next = [&](int64_t rows) {
    if (rows > 0) multiply(piece_of(call, begin, rows), plan, algo, stream);
    begin += rows;
  };
  for (const int64_t rows : kPieces) next(std::min(rows, call.rows - begin));
  next(call.rows - begin);
}

BatchInvariantLinear::Plan& BatchInvariantLinear::reference_for(const LinearCall& call,
                                                                cudaStream_t stream) {
  const Shape shape{kReferenceRows, call.inputs,       call.outputs,
                    call.number,    call.float_result, call.bias_O != nullptr};
  const auto found = plans_.find(shape);
  if (found != plans_.end()) return *found->second;
  if (is_recording(stream))
    throw std::runtime_error("a product in training arithmetic is recorded before it ran once");
  auto plan = blank_plan(call, kReferenceRows);
  const auto passes = [&](const cublasLtMatmulAlgo_t& algo) {
    if (!may_compute(*plan, algo, kReferenceRows)) return false;
    if (!may_be_probed(call)) return true;
    LinearCall like = call;
    like.rows = kProbeRows;
    ProductProbe probe(like, stream);
    probe.take([&](const LinearCall& whole) { multiply(whole, *plan, algo, stream); });
    return result_bytes(call) * call.outputs % kRowAlignment != 0 ||
           probe.agrees(
               [&](const LinearCall& one) { multiply_in_pieces(one, *plan, algo, stream); });
  };
  const std::vector<cublasLtMatmulAlgo_t> algos = suggestions(*plan);
  const auto first = std::ranges::find_if(algos, passes);
  if (first == algos.end())
    throw std::runtime_error("training arithmetic: none of cuBLASLt's " +
                             std::to_string(algos.size()) + " algorithms for a matrix of " +
                             std::to_string(call.outputs) + " x " + std::to_string(call.inputs) +
                             " gives rows that do not depend on one another");
  plan->algo = *first;
  return *plans_.emplace(shape, std::move(plan)).first->second;
}

BatchInvariantLinear::Plan& BatchInvariantLinear::plan_for(const LinearCall& call,
                                                           cudaStream_t stream) {
  if (call.accumulates)
    throw std::runtime_error("products that accumulate have no training arithmetic");
  if (handle_ == nullptr) check_lt(cublasLtCreate(&handle_), "cublasLtCreate");
  const int64_t most_rows = class_of(call.rows);
  if (most_rows == kReferenceRows || !may_be_probed(call)) return reference_for(call, stream);
  const Shape shape{most_rows,   call.inputs,       call.outputs,
                    call.number, call.float_result, call.bias_O != nullptr};
  const auto found = plans_.find(shape);
  if (found != plans_.end()) return *found->second;
  Plan& reference = reference_for(call, stream);
  if (is_recording(stream))
    throw std::runtime_error("a product in training arithmetic is recorded before it ran once");
  auto plan = blank_plan(call, most_rows);
  const std::vector<cublasLtMatmulAlgo_t> algos = suggestions(*plan);
  LinearCall like = call;
  like.rows = std::min(kProbeRows, most_rows);
  ProductProbe probe(like, stream);
  probe.take([&](const LinearCall& one) { multiply(one, reference, reference.algo, stream); });
  const bool has_whole_pieces = result_bytes(call) * call.outputs % kRowAlignment == 0;
  const auto has_the_bits = [&](const cublasLtMatmulAlgo_t& algo) {
    if (!may_compute(*plan, algo, most_rows)) return false;
    return probe.agrees([&](const LinearCall& one) { multiply(one, *plan, algo, stream); }) &&
           (!has_whole_pieces || probe.agrees([&](const LinearCall& one) {
             multiply_in_pieces(one, *plan, algo, stream);
           }));
  };
  const auto first = std::ranges::find_if(algos, has_the_bits);
  plan->algo = first == algos.end() ? reference.algo : *first;
  return *plans_.emplace(shape, std::move(plan)).first->second;
}

void BatchInvariantLinear::run(const LinearCall& call, cudaStream_t stream) {
  if (call.rows == 0) return;
  const std::lock_guard lock(mutex_);
  Plan& plan = plan_for(call, stream);
  multiply(call, plan, plan.algo, stream);
}

}  // namespace slime::kernels::cuda
