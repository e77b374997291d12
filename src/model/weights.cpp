#include "model/weights.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/divide_up.h"
#include "core/error.h"
#include "kernels/cpu/processor.h"
#include "kernels/device.h"
#include "kernels/matrix_formats.h"
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

BugError not_plain(const NamedWeight& weight) {
  return BugError(weight.name + " is a matrix in another format, and no part of a flat buffer");
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
  return {.weights = type, .activations = type, .device = at::Device(at::kCUDA, 0)};
}

int64_t Weights::num_parameters() const {
  int64_t n = 0;
  for (const NamedWeight& weight : tensors_) n += product(weight.shape);
  return n;
}

void Weights::enable_grad() {
  if (grad_.defined()) return;
  for (const NamedWeight& weight : tensors_)
    if (weight.offset < 0) throw not_plain(weight);
  const auto accumulator = flat_.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  grad_ = at::zeros({num_elements()}, flat_.options().dtype(accumulator));
  for (const Parameter& param : params_) param.set_grad(view(grad_, param.fused));
}

void Weights::zero_grad() {
  if (grad_.defined()) grad_.zero_();
}

void Weights::release_grad() {
  grad_ = Tensor();
  for (const Parameter& param : params_) param.set_grad({});
}

void Weights::copy_from(const Weights& other) {
  if (has_formats() == other.has_formats()) return buffers().copy_from(other.buffers());
  if (has_formats()) return make_buffers(other, buffers());
  for (size_t i = 0; i < params_.size(); ++i) {
    const Parameter &own = params_[i], &from = other.params_[i];
    const Tensor numbers = from.stored
                               ? kernels::numbers_of(from.matrix->matrix, flat_.scalar_type())
                               : view(other.flat_, from.fused);
    view(flat_, own.fused).copy_(numbers.view(own.fused.shape));
  }
  flat_constants_.copy_(other.flat_constants_);
}

void Weights::make_buffers(const Weights& plain, const WeightBuffers& to) const {
  check(params_.size() == plain.params_.size(), "networks of one shape have the same parameters");
  for (size_t i = 0; i < params_.size(); ++i) {
    const Parameter &own = params_[i], &from = plain.params_[i];
    if (own.is_tied) continue;
    const Tensor numbers = view(plain.flat_, from.fused);
    if (own.stored) {
      own.stored->convert(numbers, to);
    } else {
      view(to.flat_N, own.fused).copy_(numbers);
    }
  }
  Tensor(to.constants_C).copy_(plain.flat_constants_);
}

std::vector<Tensor> Weights::stored(size_t i) const {
  if (tensors_[i].offset >= 0) return {view(flat_, tensors_[i])};
  // Tied ones stand behind all others, which are in the order of their tensors.
  const auto tied = std::ranges::find_if(params_, &Parameter::is_tied);
  const auto of =
      std::prev(std::ranges::upper_bound(params_.begin(), tied, i, {}, &Parameter::first));
  return of->stored->part(buffers(), i - of->first);
}

kernels::MatrixFormat Weights::matrices() const {
  const auto stored = std::ranges::find_if(
      params_, [](const Parameter& param) { return param.stored.has_value() && !param.is_tied; });
  return stored == params_.end() ? kernels::MatrixFormat::kPlain : stored->matrix->matrix.format;
}

WeightBuffers Weights::buffers() const { return {flat_, flat_constants_, codes_, scales_}; }

int64_t Weights::num_bytes() const {
  return buffers().num_bytes() - static_cast<int64_t>(flat_constants_.nbytes());
}

Tensor Weights::view(const Tensor& buffer, const NamedWeight& weight) {
  if (weight.offset < 0) throw not_plain(weight);
  return buffer.narrow(0, weight.offset, product(weight.shape)).view(weight.shape);
}

void Weights::Parameter::point_at(const Tensor& values) const {
  if (vector != nullptr) {
    vector->value = values;
  } else {
    matrix->matrix.values = values;
  }
}

void Weights::Parameter::set_grad(Tensor grad) const {
  (vector != nullptr ? vector->grad : matrix->grad) = std::move(grad);
}

void Weights::Builder::add(kernels::Param& param, std::vector<Component> components) {
  add({.vector = &param}, std::move(components));
}

void Weights::Builder::add(kernels::MatrixParam& param, std::vector<Component> components) {
  add({.matrix = &param}, std::move(components));
}

void Weights::Builder::add_plain(kernels::MatrixParam& param, std::vector<Component> components) {
  add({.matrix = &param, .stays_plain = true}, std::move(components));
}

void Weights::Builder::add_tied(kernels::MatrixParam& matrix, const kernels::Param& param) {
  tied_.emplace_back(&matrix, &param);
}

void Weights::Builder::add(Parameter param, std::vector<Component> components) {
  NamedWeight& fused = param.fused;
  fused.is_of_own_expert = components.front().is_of_own_expert;
  param.first = weights_.tensors_.size();
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
    weight.decays = weight.shape.size() >= 2 && !component.is_bias;
    const int64_t row = weight.shape.empty() ? 1 : product(weight.shape) / weight.shape[0];
    param.room = component.room_rows * row;
    if (fused.shape.empty()) {
      fused.shape = weight.shape;
    } else {
      fused.shape[0] += weight.shape[0];
    }
    weights_.tensors_.push_back(std::move(weight));
  }
  param.end = weights_.tensors_.size();
  weights_.params_.push_back(std::move(param));
}

/// In the flat buffer; own experts' parameters stand behind all others.
void Weights::Builder::lay_out(Parameter& param) {
  int64_t& next = param.fused.is_of_own_expert ? num_expert_elements_ : num_elements_;
  param.fused.offset = next;
  for (size_t i = param.first; i < param.end; ++i) {
    NamedWeight& weight = weights_.tensors_[i];
    weight.offset = next;
    next += product(weight.shape);
  }
  next = aligned(std::max(next, param.fused.offset + param.room));
}

/// In the buffers of codes and factors.
void Weights::Builder::store(Parameter& param, kernels::MatrixFormat format,
                             std::vector<std::string>& problems) {
  std::vector<MatrixPart> parts;
  for (size_t i = param.first; i < param.end; ++i) {
    NamedWeight& weight = weights_.tensors_[i];
    weight.offset = -1;
    parts.push_back({weight.full_shape, weight.slices});
    if (const std::string problem = slice_problem(format, parts.back()); !problem.empty())
      problems.push_back(fmt::format("{}: {}", weight.name, problem));
  }
  param.fused.offset = -1;
  param.stored.emplace(format, parts, code_bytes_, num_scales_);
}

/// In the buffers of a network that holds every tensor whole.
void Weights::Builder::lay_out_whole(const Parameter& param, kernels::MatrixFormat format) {
  int64_t &elements = weights_.num_whole_elements_, &codes = weights_.num_whole_codes_,
          &factors = weights_.num_whole_factors_;
  for (size_t i = param.first; i < param.end; ++i) {
    NamedWeight& weight = weights_.tensors_[i];
    if (!param.stored) {
      weight.whole_offset = elements;
      elements += product(weight.full_shape);
      continue;
    }
    weight.whole_offset = codes;
    weight.whole_factors = factors;
    codes += product(weight.full_shape) *
             static_cast<int64_t>(c10::elementSize(kernels::row_of(format).code));
    factors += product(factors_shape(format, weight.full_shape));
  }
  elements = aligned(elements);
  codes = round_up(codes, kStorageAlignment);
  factors = round_up(factors, kStorageAlignment);
}

void Weights::Builder::lay_out(const Precision& precision) {
  const bool has_format = precision.matrices != kernels::MatrixFormat::kPlain;
  std::vector<std::string> problems;
  for (Parameter& param : weights_.params_) {
    if (has_format && param.matrix != nullptr && !param.stays_plain) {
      store(param, precision.matrices, problems);
    } else {
      lay_out(param);
    }
    lay_out_whole(param, precision.matrices);
  }
  if (!problems.empty()) throw ConfigError(problems);
  const auto place_behind = [&](NamedWeight& weight) {
    if (weight.is_of_own_expert && weight.offset >= 0) weight.offset += num_elements_;
  };
  for (NamedWeight& weight : weights_.tensors_) place_behind(weight);
  for (Parameter& param : weights_.params_) place_behind(param.fused);
}

void Weights::Builder::check_products(const Precision& precision) const {
  const Tensor there = at::empty({0}, at::TensorOptions().device(precision.device));
  if (there.is_meta() || kernels::kernels_for(there).has_format(precision.matrices)) return;
  const auto first = std::ranges::find_if(
      weights_.params_, [](const Parameter& param) { return param.stored.has_value(); });
  throw ConfigError(fmt::format(
      "{} would be stored as {}, and {} has no products of such matrices: it takes plain ones",
      weights_.tensors_[first->first].name, kernels::row_of(precision.matrices).word,
      precision.device.is_cuda() ? "a GPU" : "this device"));
}

void Weights::Builder::point(Parameter& param) const {
  if (param.matrix != nullptr) param.matrix->matrix.name = &weights_.tensors_[param.first].name;
  if (param.stored) {
    param.stored->point_at(weights_.buffers(), param.matrix->matrix);
  } else {
    param.point_at(view(weights_.flat_, param.fused));
  }
}

void Weights::Builder::add_constant(Tensor& tensor, std::string name, std::vector<int64_t> shape) {
  constants_.push_back({&tensor, std::move(name), std::move(shape)});
}

void Weights::Builder::allocate(const Precision& precision) {
  lay_out(precision);
  if (code_bytes_ > 0) check_products(precision);
  const auto options = at::TensorOptions().device(precision.device);
  const auto zeros = [&](int64_t size, at::ScalarType type) {
    return at::zeros({size}, options.dtype(type));
  };
  const int64_t num_elements = num_elements_ + num_expert_elements_;
  const Weights* shared = precision.shared;
  // Longer by draft layers, which stand behind all others.
  check(shared == nullptr || (shared->flat_.size(0) >= num_elements &&
                              shared->flat_.scalar_type() == precision.weights),
        "networks that share numbers have one shape, but for draft layers, and one precision");
  weights_.flat_ = shared != nullptr ? shared->flat_.narrow(0, 0, num_elements)
                                     : zeros(num_elements, precision.weights);
  weights_.experts_begin_ = num_elements_;
  if (shared != nullptr) {
    weights_.codes_ = shared->codes_;
    weights_.scales_ = shared->scales_;
  } else if (code_bytes_ > 0) {
    weights_.codes_ = zeros(code_bytes_, at::kByte);
    weights_.scales_ = zeros(num_scales_, at::kFloat);
  }
  for (Parameter& param : weights_.params_) point(param);
  for (const auto& [matrix, param] : tied_) {
    const auto found = std::ranges::find(weights_.params_, param, &Parameter::vector);
    check(found != weights_.params_.end(), "a tied matrix is that of a parameter");
    Parameter copy = *found;
    copy.vector = nullptr;
    copy.matrix = matrix;
    copy.is_tied = true;
    point(copy);
    weights_.params_.push_back(std::move(copy));
  }
  int64_t size = 0;
  for (const Constant& constant : constants_) size += product(constant.shape);
  weights_.flat_constants_ = shared != nullptr
                                 ? shared->flat_constants_.narrow(0, 0, size)
                                 : at::zeros({size}, weights_.flat_.options().dtype(at::kFloat));
  int64_t offset = 0;
  for (Constant& constant : constants_) {
    const int64_t count = product(constant.shape);
    *constant.tensor = weights_.flat_constants_.narrow(0, offset, count).view(constant.shape);
    offset += count;
    weights_.constants_.push_back({std::move(constant.name), *constant.tensor});
  }
}

}  // namespace slime::model
