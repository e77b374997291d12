#include "model/weight_checksums.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include "core/xxhash64.h"

namespace slime::model {

uint64_t checksum_of(const Tensor& tensor) {
  const Tensor here = tensor.to(at::kCPU).contiguous();  // sync: it is read here
  return xxhash64({static_cast<const char*>(here.const_data_ptr()), here.nbytes()});
}

WeightChecksums checksums_of(const Weights& weights) {
  const at::NoGradGuard no_grad;
  WeightChecksums checksums;
  for (const NamedWeight& weight : weights.tensors())
    checksums.push_back({weight.name, checksum_of(Weights::view(weights.flat(), weight))});
  for (const NamedConstant& constant : weights.constants())
    checksums.push_back({constant.name, checksum_of(constant.value)});
  return checksums;
}

void fill_with_noise(Weights& weights, uint64_t seed) {
  const at::NoGradGuard no_grad;
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (const NamedWeight& weight : weights.tensors()) {
    Tensor noise = at::empty(weight.shape, at::kFloat).uniform_(0, 1, generator);
    Weights::view(weights.flat(), weight).copy_(noise);
  }
  for (const NamedConstant& constant : weights.constants()) {
    Tensor value = constant.value;
    value.copy_(at::empty(value.sizes(), at::kFloat).uniform_(0, 1, generator));
  }
}

}  // namespace slime::model
