#pragma once

/// Fused operations around the gated delta rule of a layer (model/layers/gated_delta_net.h), for
/// devices that have them: without gradients. The parts, with gradients: kernels/delta_decay.h and
/// kernels/rms_norm.h.
///
/// Dimensions: T tokens, N value heads, V value size.

#include <optional>

#include "core/tensor.h"

namespace slime::kernels {

/// float32 [T, N].
struct DeltaRates {
  Tensor decay_TN;  // -exp(a_log) softplus(a + bias)
  Tensor rate_TN;   // sigmoid(b)
};

/// Implemented by a kernels::Device with such kernels. Rows of a, b and z may lie apart, their numbers may
/// not; nothing where precisions or sizes have no kernel.
class DeltaKernels {
 public:
  virtual ~DeltaKernels() = default;
  virtual std::optional<DeltaRates> delta_rates(const Tensor& a_TN, const Tensor& b_TN,
                                                const Tensor& a_log_N,
                                                const Tensor& bias_N) const = 0;
  /// norm(x) weight silu(z) of each head, [T, N V] in the precision of z. x_TC: float32.
  virtual std::optional<Tensor> gated_norm(const Tensor& x_TC, const Tensor& z_TC,
                                           const Tensor& weight_V, double eps) const = 0;
};

/// Those of the tensor's device; null: it has none.
const DeltaKernels* delta_kernels_for(const Tensor& tensor);

}  // namespace slime::kernels
