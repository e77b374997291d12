#include "kernels/clamped_swiglu.h"

#include <ATen/ATen.h>

#include "kernels/device.h"

namespace slime::kernels {
namespace {

constexpr double kSteepness = 1.702;

/// Gates and ups apart, in the accumulation precision.
struct Turns {
  Tensor gate_TF, up_TF;
};
Turns apart(const Tensor& gate_up_T2F) {
  const Tensor pairs_TF2 = gate_up_T2F.to(accumulator_of(gate_up_T2F))
                               .view({gate_up_T2F.size(0), gate_up_T2F.size(1) / 2, 2});
  return {pairs_TF2.select(2, 0), pairs_TF2.select(2, 1)};
}

}  // namespace

Tensor clamped_swiglu(const Tensor& gate_up_T2F, double limit) {
  const auto [gate, up] = apart(gate_up_T2F);
  const Tensor g = gate.clamp_max(limit), u = up.clamp(-limit, limit);
  return ((u + 1) * g * (g * kSteepness).sigmoid()).to(gate_up_T2F.scalar_type());
}

Tensor clamped_swiglu_backward(const Tensor& dy_TF, const Tensor& gate_up_T2F, double limit) {
  const auto [gate, up] = apart(gate_up_T2F);
  const Tensor g = gate.clamp_max(limit), u = up.clamp(-limit, limit),
               s = (g * kSteepness).sigmoid(), dy = dy_TF.to(g.scalar_type());
  const Tensor dgate = dy * (u + 1) * s * (1 + kSteepness * g * (1 - s)) * (gate <= limit);
  const Tensor dup = dy * g * s * (up.abs() <= limit);
  return at::stack({dgate, dup}, -1).view(gate_up_T2F.sizes()).to(gate_up_T2F.scalar_type());
}

}  // namespace slime::kernels
