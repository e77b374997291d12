#include "model/stored_parts.h"

#include <ATen/ATen.h>

#include <iterator>
#include <utility>

#include "model/network.h"

namespace slime::model {

std::string factors_name(const std::string& name) { return name + "_scale_inv"; }

std::vector<StoredPart> stored_parts(const Weights& weights, size_t i) {
  const NamedWeight& weight = weights.tensors()[i];
  const std::vector<Tensor> stored = weights.stored(i);
  const int64_t element = weights.flat().element_size();
  if (weight.offset >= 0)
    return {{weight.name, weight.full_shape, weight.slices, weight.offset,
             weight.whole_offset * element, stored[0]}};
  const kernels::MatrixFormat format = weights.matrices();
  const int64_t codes_begin = weights.num_whole_elements() * element,
                factors_begin = codes_begin + weights.num_whole_codes();
  StoredPart codes{weight.name,
                   weight.full_shape,
                   weight.slices,
                   -1,
                   codes_begin + weight.whole_offset,
                   stored[0].view(at::kByte).view(weight.shape)};
  StoredPart factors{factors_name(weight.name),
                     factors_shape(format, weight.full_shape),
                     factor_slices(format, weight.slices, weight.full_shape),
                     -1,
                     factors_begin + weight.whole_factors * static_cast<int64_t>(sizeof(float)),
                     stored[1]};
  factors.value = factors.value.view(factors.slices.shape(factors.full_shape));
  return {std::move(codes), std::move(factors)};
}

std::vector<StoredPart> stored_parts(const Weights& weights) {
  std::vector<StoredPart> all;
  for (size_t i = 0; i < weights.tensors().size(); ++i) {
    std::vector<StoredPart> parts = stored_parts(weights, i);
    all.insert(all.end(), std::make_move_iterator(parts.begin()),
               std::make_move_iterator(parts.end()));
  }
  return all;
}

StoredForms::StoredForms(const Weights& stored) : matrices_(stored.matrices()) {
  for (const NamedWeight& weight : stored.tensors())
    if (weight.offset < 0) coded_.insert(weight.name);
}

StoredForms::StoredForms(const ModelConfig& config, kernels::MatrixFormat matrices) {
  if (matrices == kernels::MatrixFormat::kPlain) return;
  const auto network = make_blank_network(config, {.matrices = matrices, .device = at::kMeta});
  *this = StoredForms(network->weights());
}

std::vector<StoredForms::NamedTensor> StoredForms::parts_of(const std::string& name,
                                                            const Tensor& plain) const {
  if (!coded_.contains(name)) return {{name, plain}};
  const std::vector<int64_t> shape = plain.sizes().vec();
  const std::vector<Tensor> stored = codes_of(matrices_, plain);
  return {{name, stored[0].view(at::kByte).view(shape)},
          {factors_name(name), stored[1].view(factors_shape(matrices_, shape))}};
}

}  // namespace slime::model
