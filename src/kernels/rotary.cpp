#include "kernels/rotary.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/trace.h"

namespace slime::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct NormRotate : torch::autograd::Function<NormRotate> {
  static Tensor forward(AutogradContext* ctx, const Tensor& qkv_TE, const Tensor& positions_T,
                        const Param& q_norm, const Param& k_norm, const Tensor& cos_PR,
                        const Tensor& sin_PR, const RotaryShape& shape) {
    // Without norms the backward is the inverse rotation and does not need the input.
    if (q_norm.defined()) ctx->save_for_backward({qkv_TE});
    ctx->saved_data["positions"] = positions_T;
    ctx->saved_data["q_norm"] = q_norm.value;
    ctx->saved_data["k_norm"] = k_norm.value;
    ctx->saved_data["q_grad"] = q_norm.grad;
    ctx->saved_data["k_grad"] = k_norm.grad;
    ctx->saved_data["cos"] = cos_PR;
    ctx->saved_data["sin"] = sin_PR;
    ctx->saved_data["eps"] = shape.norm_eps;
    ctx->saved_data["shape"] =
        std::vector<int64_t>{shape.num_heads, shape.num_kv_heads, shape.head_dim};
    return kernels_for(qkv_TE).norm_rotate(qkv_TE, positions_T, q_norm.value, k_norm.value, cos_PR,
                                           sin_PR, shape);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto tensor = [&](const char* name) { return ctx->saved_data[name].toTensor(); };
    const auto sizes = ctx->saved_data["shape"].toIntVector();
    const RotaryShape shape{sizes[0], sizes[1], sizes[2], ctx->saved_data["eps"].toDouble()};
    const variable_list saved = ctx->get_saved_variables();
    const Tensor dx = kernels_for(grads[0]).norm_rotate_backward(
        grads[0].contiguous(), saved.empty() ? Tensor() : saved[0], tensor("positions"),
        tensor("q_norm"), tensor("k_norm"), tensor("cos"), tensor("sin"), shape, tensor("q_grad"),
        tensor("k_grad"));
    return {dx, Tensor(), Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor norm_rotate(const Tensor& qkv_TE, const Tensor& positions_T, const Param& q_norm_D,
                   const Param& k_norm_D, const Tensor& cos_PR, const Tensor& sin_PR,
                   const RotaryShape& shape) {
  const TraceRange range("norm_rotate");
  if (at::GradMode::is_enabled() && qkv_TE.requires_grad()) {
    return NormRotate::apply(qkv_TE, positions_T, q_norm_D, k_norm_D, cos_PR, sin_PR, shape);
  }
  return kernels_for(qkv_TE).norm_rotate(qkv_TE, positions_T, q_norm_D.value, k_norm_D.value,
                                         cos_PR, sin_PR, shape);
}

}  // namespace slime::kernels
