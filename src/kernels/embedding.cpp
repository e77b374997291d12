#include "kernels/embedding.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/error.h"
#include "kernels/device.h"
#include "kernels/trace.h"

namespace slime::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// `anchor` requires gradient and receives none: it ties the result to the graph.
struct Embedding : torch::autograd::Function<Embedding> {
  static Tensor forward(AutogradContext* ctx, const Tensor& anchor, const Tensor& ids_T,
                        const Param& table, at::ScalarType activations) {
    ctx->saved_data["ids"] = ids_T;
    ctx->saved_data["grad"] = table.grad;
    return kernels_for(table.value).embedding(ids_T, table.value, activations);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor grad = ctx->saved_data["grad"].toTensor();
    if (grad.defined())
      kernels_for(grad).add_rows_(grad, ctx->saved_data["ids"].toTensor(), grads[0]);
    return {Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor embedding(const Tensor& ids_T, const Param& table_VH, at::ScalarType activations) {
  const TraceRange range("embedding");
  // On a GPU the check would wait for it; who makes the ids there has checked them.
  if (ids_T.is_cpu() && ids_T.numel() > 0) {
    const auto [low, high] = ids_T.aminmax();
    check(low.item<int64_t>() >= 0 && high.item<int64_t>() < table_VH.value.size(0),
          "token ids are inside the vocabulary");
  }
  if (!at::GradMode::is_enabled())
    return kernels_for(table_VH.value).embedding(ids_T, table_VH.value, activations);
  const Tensor anchor = at::zeros({}, table_VH.value.options().dtype(at::kFloat)).requires_grad_();
  return Embedding::apply(anchor, ids_T, table_VH, activations);
}

}  // namespace slime::kernels
