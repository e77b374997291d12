#include <ATen/ATen.h>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/delta/delta_gates.h"
#include "kernels/gpu/delta_limits.h"

namespace slime::kernels::cuda {

std::optional<DeltaRates> CudaDevice::delta_rates(const Tensor& a_TN, const Tensor& b_TN,
                                                  const Tensor& a_log_N,
                                                  const Tensor& bias_N) const {
  if (!has_number(a_TN) || a_TN.scalar_type() != b_TN.scalar_type() || !has_number(a_log_N) ||
      a_log_N.scalar_type() != bias_N.scalar_type() || a_TN.stride(1) != 1 || b_TN.stride(1) != 1 ||
      a_TN.stride(0) != b_TN.stride(0))
    return std::nullopt;
  const auto floats = a_TN.options().dtype(at::kFloat);
  DeltaRates out{at::empty(a_TN.sizes(), floats), at::empty(a_TN.sizes(), floats)};
  DeltaRateCall call;
  call.number = number_of(a_TN);
  call.a_TN = pointer(a_TN);
  call.b_TN = pointer(b_TN);
  call.row_stride = a_TN.stride(0);
  call.of_weights = number_of(a_log_N);
  call.a_log_N = pointer(a_log_N);
  call.bias_N = pointer(bias_N);
  call.decay_TN = out.decay_TN.data_ptr<float>();
  call.rate_TN = out.rate_TN.data_ptr<float>();
  call.rows = a_TN.size(0);
  call.heads = static_cast<int>(a_TN.size(1));
  cuda::delta_rates(call, stream_of(a_TN));
  return out;
}

std::optional<Tensor> CudaDevice::gated_norm(const Tensor& x_TC, const Tensor& z_TC,
                                             const Tensor& weight_V, double eps) const {
  const int64_t size = weight_V.size(0);
  if (x_TC.scalar_type() != at::kFloat || !x_TC.is_contiguous() || !has_number(z_TC) ||
      !has_number(weight_V) || z_TC.stride(1) != 1 || size > kMostDeltaValues)
    return std::nullopt;
  Tensor out_TC = at::empty(x_TC.sizes(), z_TC.options());
  GatedNormCall call;
  call.number = number_of(z_TC);
  call.x_TC = x_TC.const_data_ptr<float>();
  call.z_TC = pointer(z_TC);
  call.row_stride = z_TC.stride(0);
  call.of_weight = number_of(weight_V);
  call.weight_V = pointer(weight_V);
  call.out_TC = out_TC.data_ptr();
  call.rows = x_TC.size(0);
  call.heads = static_cast<int>(x_TC.size(1) / size);
  call.value_dim = static_cast<int>(size);
  call.eps = static_cast<float>(eps);
  cuda::gated_norm(call, stream_of(x_TC));
  return out_TC;
}

}  // namespace slime::kernels::cuda
