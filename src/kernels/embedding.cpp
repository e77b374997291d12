#include "kernels/embedding.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/error.h"
#include "kernels/adapters.h"
#include "kernels/device.h"
#include "kernels/trace.h"

namespace slime::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor rows_of(const Tensor& ids_T, const Param& table, at::ScalarType activations) {
  const Tensor y_TH = kernels_for(table.value).embedding(ids_T, table.value, activations);
  if (adds(table.adapters)) add_embedded_pairs_(y_TH, ids_T, *table.adapters);
  return y_TH;
}

/// `anchor` requires gradient and receives none: it ties the result to the graph.
struct Embedding : torch::autograd::Function<Embedding> {
  static Tensor forward(AutogradContext* ctx, const Tensor& anchor, const Tensor& ids_T,
                        const Param& table, at::ScalarType activations) {
    ctx->saved_data["ids"] = ids_T;
    ctx->saved_data["grad"] = table.grad;
    const MatrixAdapters* adapters = adds(table.adapters) ? table.adapters : nullptr;
    ctx->saved_data["adapters"] = reinterpret_cast<int64_t>(adapters);
    return rows_of(ids_T, table, activations);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor grad = ctx->saved_data["grad"].toTensor();
    const Tensor ids_T = ctx->saved_data["ids"].toTensor();
    if (grad.defined()) kernels_for(grad).add_rows_(grad, ids_T, grads[0]);
    const auto* adapters =
        reinterpret_cast<const MatrixAdapters*>(ctx->saved_data["adapters"].toInt());
    if (adapters != nullptr) add_embedded_pairs_grad_(*adapters, grads[0], ids_T);
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
  if (!at::GradMode::is_enabled()) return rows_of(ids_T, table_VH, activations);
  const Tensor anchor = at::zeros({}, table_VH.value.options().dtype(at::kFloat)).requires_grad_();
  return Embedding::apply(anchor, ids_T, table_VH, activations);
}

}  // namespace slime::kernels
