#include "model/weights.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/processor.h"
#include "model/weights_builder.h"

namespace slime::model {
namespace {

/// Every parameter starts at a multiple of this many elements: a cache line even in bfloat16, and a
/// length that divides among data-parallel ranks.
constexpr int64_t kAlignment = 128;

int64_t aligned(int64_t elements) { return (elements + kAlignment - 1) / kAlignment * kAlignment; }

int64_t product(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

}  // namespace

Precision Precision::of(const std::string& dtype) {
  if (dtype == "bfloat16")
    return {at::kBFloat16, kernels::cpu::has_tiles() ? at::kBFloat16 : at::kFloat};
  if (dtype == "float16") return {at::kHalf, at::kFloat};
  if (dtype == "float32") return {at::kFloat, at::kFloat};
  if (dtype == "float64") return {at::kDouble, at::kDouble};
  throw ConfigError(
      fmt::format("dtype \"{}\" is not known; bfloat16, float16, float32 and float64 are", dtype));
}

Precision Precision::on_gpu(const std::string& dtype) {
  const at::ScalarType type = of(dtype).weights;
  if (type == at::kDouble)
    throw ConfigError("dtype \"float64\" is for the CPU; a GPU has bfloat16, float16 and float32");
  return {type, type, at::Device(at::kCUDA, 0)};
}

int64_t Weights::num_parameters() const {
  int64_t n = 0;
  for (const NamedWeight& weight : tensors_) n += product(weight.shape);
  return n;
}

void Weights::enable_grad() {
  if (grad_.defined()) return;
  const auto accumulator = flat_.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  grad_ = at::zeros({num_elements()}, flat_.options().dtype(accumulator));
  for (auto& [param, weight] : params_) param->grad = view(grad_, weight);
}

void Weights::zero_grad() {
  if (grad_.defined()) grad_.zero_();
}

void Weights::release_grad() {
  grad_ = Tensor();
  for (auto& [param, weight] : params_) param->grad = Tensor();
}

void Weights::copy_from(const Weights& other) {
  flat_.copy_(other.flat_);
  flat_constants_.copy_(other.flat_constants_);
}

Tensor Weights::view(const Tensor& buffer, const NamedWeight& weight) {
  return buffer.narrow(0, weight.offset, product(weight.shape)).view(weight.shape);
}

void Weights::Builder::add(kernels::Param& param, std::vector<Component> components) {
  NamedWeight fused;
  fused.is_of_own_expert = components.front().is_of_own_expert;
  int64_t& num_elements = fused.is_of_own_expert ? num_expert_elements_ : num_elements_;
  fused.offset = num_elements;
  for (Component& component : components) {
    NamedWeight weight;
    weight.name = std::move(component.name);
    weight.full_shape = std::move(component.full_shape);
    weight.slices = component.slices.simplified(weight.full_shape);
    weight.has_partial_grad = component.has_partial_grad;
    weight.is_on_two_stages = component.is_on_two_stages;
    weight.keeps_stored_precision = component.keeps_stored_precision;
    weight.is_of_own_expert = component.is_of_own_expert;
    weight.shape = weight.slices.shape(weight.full_shape);
    weight.offset = num_elements;
    weight.whole_offset = weights_.num_whole_elements_;
    weights_.num_whole_elements_ += product(weight.full_shape);
    weight.decays = weight.shape.size() >= 2 && !component.is_bias;
    const int64_t row = weight.shape.empty() ? 1 : product(weight.shape) / weight.shape[0];
    num_elements += std::max(product(weight.shape), component.room_rows * row);
    if (fused.shape.empty()) {
      fused.shape = weight.shape;
    } else {
      fused.shape[0] += weight.shape[0];
    }
    weights_.tensors_.push_back(std::move(weight));
  }
  num_elements = aligned(num_elements);
  weights_.num_whole_elements_ = aligned(weights_.num_whole_elements_);
  weights_.params_.emplace_back(&param, std::move(fused));
}

void Weights::Builder::add_constant(Tensor& tensor, std::string name, std::vector<int64_t> shape) {
  constants_.push_back({&tensor, std::move(name), std::move(shape)});
}

void Weights::Builder::allocate(const Precision& precision) {
  weights_.flat_ = at::zeros({num_elements_ + num_expert_elements_},
                             at::TensorOptions().dtype(precision.weights).device(precision.device));
  weights_.experts_begin_ = num_elements_;
  for (NamedWeight& weight : weights_.tensors_) {
    if (weight.is_of_own_expert) weight.offset += num_elements_;
  }
  for (auto& [param, weight] : weights_.params_) {
    if (weight.is_of_own_expert) weight.offset += num_elements_;
  }
  for (auto& [param, weight] : weights_.params_) param->value = view(weights_.flat_, weight);
  int64_t size = 0;
  for (const Constant& constant : constants_) size += product(constant.shape);
  weights_.flat_constants_ = at::zeros({size}, weights_.flat_.options().dtype(at::kFloat));
  int64_t offset = 0;
  for (Constant& constant : constants_) {
    const int64_t count = product(constant.shape);
    *constant.tensor = weights_.flat_constants_.narrow(0, offset, count).view(constant.shape);
    offset += count;
    weights_.constants_.push_back({std::move(constant.name), *constant.tensor});
  }
}

}  // namespace slime::model
