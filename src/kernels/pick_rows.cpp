#include "kernels/pick_rows.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/device.h"

namespace slime::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor sums_of(const Tensor& x_SH, const Tensor& row_S, int64_t rows) {
  std::vector<int64_t> sizes = x_SH.sizes().vec();
  sizes[0] = rows;
  Tensor sum = at::zeros(sizes, x_SH.options());
  kernels_for(x_SH).add_rows_(sum, row_S, x_SH.contiguous());
  return sum;
}

struct PickRows : torch::autograd::Function<PickRows> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_LH, const Tensor& row_S) {
    ctx->saved_data["row"] = row_S;
    ctx->saved_data["rows"] = x_LH.size(0);
    return x_LH.index_select(0, row_S);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {sums_of(grads[0], ctx->saved_data["row"].toTensor(), ctx->saved_data["rows"].toInt()),
            Tensor()};
  }
};

struct SumRows : torch::autograd::Function<SumRows> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_SH, const Tensor& row_S,
                        int64_t rows) {
    ctx->saved_data["row"] = row_S;
    return sums_of(x_SH, row_S, rows);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {grads[0].index_select(0, ctx->saved_data["row"].toTensor()), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor pick_rows(const Tensor& x_LH, const Tensor& row_S) {
  if (!at::GradMode::is_enabled() || !x_LH.requires_grad()) return x_LH.index_select(0, row_S);
  return PickRows::apply(x_LH, row_S);
}

Tensor sum_rows(const Tensor& x_SH, const Tensor& row_S, int64_t rows) {
  if (!at::GradMode::is_enabled() || !x_SH.requires_grad()) return sums_of(x_SH, row_S, rows);
  return SumRows::apply(x_SH, row_S, rows);
}

}  // namespace slime::kernels
