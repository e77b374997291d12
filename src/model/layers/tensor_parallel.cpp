#include "model/layers/tensor_parallel.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/linear.h"

namespace slime::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kBackward = "the backward of a tensor-parallel layer";

struct SumGradient : torch::autograd::Function<SumGradient> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, comm::RankGroup* tp) {
    ctx->saved_data["tp"] = reinterpret_cast<int64_t>(tp);
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    // A copy: others may read the buffer that autograd gave.
    const Tensor grad = grads[0].clone(at::MemoryFormat::Contiguous);
    reinterpret_cast<comm::RankGroup*>(ctx->saved_data["tp"].toInt())->all_reduce_(grad, kBackward);
    return {grad, Tensor()};
  }
};

struct SumOverRanks : torch::autograd::Function<SumOverRanks> {
  static Tensor forward(AutogradContext* ctx, const Tensor& partial, comm::RankGroup* tp) {
    ctx->mark_dirty({partial});
    tp->all_reduce_(partial, "a tensor-parallel layer");
    return partial;
  }
  static variable_list backward(AutogradContext*, variable_list grads) {
    return {grads[0], Tensor()};
  }
};

}  // namespace

Tensor sum_gradient(const Tensor& x, comm::RankGroup& tp) {
  return tp.is_alone() ? x : SumGradient::apply(x, &tp);
}

Tensor sum_over_ranks(const Tensor& partial, comm::RankGroup& tp) {
  return tp.is_alone() ? partial : SumOverRanks::apply(partial, &tp);
}

Tensor summed_linear(const Tensor& x, const Product& product, comm::RankGroup& tp) {
  const kernels::Param no_bias;
  return sum_over_ranks(
      kernels::linear(x, product.weight_OI, tp.rank() == 0 ? product.bias_O : no_bias), tp);
}

}  // namespace slime::model
