#include "kernels/cuda/products/linear.h"

#include <ATen/ATen.h>

#include <stdexcept>

#include "kernels/cuda/products/batch_invariant_linear.h"
#include "kernels/hip/products.h"

/// Products through ATen, which takes hipBLASLt's or rocBLAS's kernel; none of ours is tried beside it.

namespace slime::kernels::cuda {
namespace {

at::ScalarType type_of(Number number) {
  switch (number) {
    case Number::kFloat32:
      return at::kFloat;
    case Number::kBFloat16:
      return at::kBFloat16;
    default:
      return at::kHalf;
  }
}

/// The call's memory as a tensor of the current device.
Tensor tensor_over(const void* begin, at::IntArrayRef sizes, at::ScalarType type) {
  return at::from_blob(const_cast<void*>(begin), sizes, at::TensorOptions(at::kCUDA).dtype(type));
}

}  // namespace

struct Linear::Plan {};
struct Linear::Candidate {};

Linear::Linear() = default;

Linear::~Linear() = default;

void Linear::run(const LinearCall& call, void* /*workspace*/, cudaStream_t /*stream*/) {
  if (call.rows == 0) return;
  const at::ScalarType type = type_of(call.number);
  const Tensor bias_O =
      call.bias_O == nullptr ? Tensor() : tensor_over(call.bias_O, {call.outputs}, type);
  hip::product_into(
      tensor_over(call.y_TO, {call.rows, call.outputs}, call.float_result ? at::kFloat : type),
      tensor_over(call.x_TI, {call.rows, call.inputs}, type),
      tensor_over(call.weight_OI, {call.outputs, call.inputs}, type), bias_O, call.accumulates);
}

std::vector<ProductCandidate> Linear::candidates(const LinearCall&, void*, cudaStream_t) {
  return {};
}

/// Algorithms of hipBLASLt are not chosen here: --true-on-policy is refused before.
struct BatchInvariantLinear::Plan {};

BatchInvariantLinear::BatchInvariantLinear() = default;

BatchInvariantLinear::~BatchInvariantLinear() = default;

void BatchInvariantLinear::run(const LinearCall& /*call*/, cudaStream_t /*stream*/) {
  throw std::runtime_error("there are no products in training arithmetic on AMD's GPUs");
}

/// ATen has no such bound here.
void leave_processors_of_library(int /*count*/) {}

}  // namespace slime::kernels::cuda
