#include "kernels/device.h"

#include <ATen/ATen.h>

namespace slime::kernels {

Tensor Device::sum(const Tensor& a, const Tensor& b) const { return a + b; }

Tensor Device::add_rms_norm(const Tensor& x_TH, const Tensor& update_TH, const Tensor& weight_H,
                            double eps, Tensor& sum_TH) const {
  sum_TH = sum(x_TH, update_TH);
  return rms_norm(sum_TH, weight_H, eps);
}

Tensor Device::add_rms_norm_backward(const Tensor& dsum_TH, const Tensor& dy_TH,
                                     const Tensor& sum_TH, const Tensor& weight_H, double eps,
                                     Tensor grad_H) const {
  return sum(rms_norm_backward(dy_TH, sum_TH, weight_H, eps, std::move(grad_H)), dsum_TH);
}

Tensor Device::softmax_gradient(const Tensor& logits_RV, const Tensor& target_R, double temperature,
                                const Tensor& logsumexp_R, const Tensor& entropy_R,
                                const Tensor& dlogprob_R, const Tensor& dentropy_R,
                                at::ScalarType precision) const {
  softmax_backward_(logits_RV, target_R, temperature, logsumexp_R, entropy_R, dlogprob_R,
                    dentropy_R);
  return logits_RV.to(precision);
}

}  // namespace slime::kernels
