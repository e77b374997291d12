#pragma once

/// kernels::Device on an NVIDIA GPU: our kernels where they are written, plain ATen for the rest
/// (which is also their slow twin).

#include <cuda_runtime.h>

#include "kernels/cpu/reference.h"
#include "kernels/cuda/linear.h"

namespace slime::kernels::cuda {

/// Throws BugError for precisions that kernels are not compiled for.
Number number_of(const Tensor& tensor);
/// The current stream of the tensor's device.
cudaStream_t stream_of(const Tensor& tensor);

class CudaDevice final : public cpu::ReferenceDevice {
 public:
  Tensor embedding(const Tensor& ids_T, const Tensor& table_VH,
                   at::ScalarType activations) const override;
  Tensor linear(const Tensor& x_TI, const Tensor& weight_OI, const Tensor& bias_O) const override;
  Tensor logits(const Tensor& x_TI, const Tensor& weight_OI) const override;
  Tensor rms_norm(const Tensor& x_TH, const Tensor& weight_H, double eps) const override;
  Tensor add_rms_norm_(Tensor x_TH, const Tensor& update_TH, const Tensor& weight_H,
                       double eps) const override;
  Tensor swiglu(const Tensor& gate_up_T2F) const override;
  Tensor norm_rotate(const Tensor& qkv_TE, const Tensor& positions_T, const Tensor& q_norm_D,
                     const Tensor& k_norm_D, const Tensor& cos_PR, const Tensor& sin_PR,
                     const RotaryShape& shape) const override;

 private:
  Tensor product(const Tensor& x_TI, const Tensor& weight_OI, const Tensor& bias_O,
                 bool float_result) const;

  mutable Linear linear_;  // has its own lock
};

}  // namespace slime::kernels::cuda
