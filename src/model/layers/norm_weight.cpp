#include "model/layers/norm_weight.h"

#include <ATen/ATen.h>

#include "kernels/device.h"

namespace slime::model {

kernels::Param norm_weight(const kernels::Param& weight, bool adds_one) {
  if (!adds_one || !weight.defined()) return weight;
  return {weight.value.to(kernels::accumulator_of(weight.value)) + 1, weight.grad};
}

}  // namespace slime::model
