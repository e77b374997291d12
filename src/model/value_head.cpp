#include "model/value_head.h"

#include <ATen/ATen.h>

#include "core/random.h"
#include "kernels/linear.h"
#include "model/weights_builder.h"

namespace slime::model {

ValueHead::ValueHead(int64_t hidden_size, const Tensor& like, double init_std, uint64_t seed) {
  Weights::Builder builder(weights_);
  builder.add_plain(weight_1H_, {{"value_head.weight", {1, hidden_size}, {}}});
  builder.add(bias_1_, {{"value_head.bias", {1}, {}}});
  const at::ScalarType dtype = like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  builder.allocate({.weights = dtype, .activations = dtype, .device = like.device()});
  constexpr uint64_t kStream = 0x76616c7565ULL;  // apart from the streams of the network's tensors
  const Tensor sampled_1H = at::empty({1, hidden_size}, dtype);
  for (int64_t i = 0; i < hidden_size; ++i)
    sampled_1H[0][i] = init_std * normal(seed, kStream, static_cast<uint64_t>(i));
  weight_1H_.matrix.values.copy_(sampled_1H);
}

Tensor ValueHead::forward(const Tensor& hidden_TH) const {
  return kernels::linear(hidden_TH.to(weight_1H_.matrix.values.scalar_type()), weight_1H_, bias_1_)
      .squeeze(1);
}

}  // namespace slime::model
