#include "kernels/device.h"

#include <ATen/ATen.h>

namespace slime::kernels {

Tensor Device::sum(const Tensor& a, const Tensor& b) const { return a + b; }

Tensor Device::softmax_gradient(const Tensor& logits_RV, const Tensor& target_R, double temperature,
                                const Tensor& logsumexp_R, const Tensor& entropy_R,
                                const Tensor& dlogprob_R, const Tensor& dentropy_R,
                                at::ScalarType precision) const {
  softmax_backward_(logits_RV, target_R, temperature, logsumexp_R, entropy_R, dlogprob_R,
                    dentropy_R);
  return logits_RV.to(precision);
}

}  // namespace slime::kernels
