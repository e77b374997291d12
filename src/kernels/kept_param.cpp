#include "kernels/kept_param.h"

#include "kernels/adapters.h"

namespace slime::kernels {

using torch::autograd::AutogradContext;

void keep(AutogradContext* ctx, const std::string& name, const Matrix& matrix) {
  auto& saved = ctx->saved_data;
  saved[name] = matrix.values;
  if (matrix.is_plain()) return;
  saved[name + "_name"] = reinterpret_cast<int64_t>(matrix.name);
  saved[name + "_scales"] = matrix.scales;
  saved[name + "_scale_rows"] = matrix.scale_row_O;
  // Off in the forward pass is off in its backward.
  const MatrixAdapters* adapters = adds(matrix.adapters) ? matrix.adapters : nullptr;
  saved[name + "_adapters"] = reinterpret_cast<int64_t>(adapters);
  saved[name + "_adapter_row"] = matrix.adapter_row;
  saved[name + "_adapter_pass"] = static_cast<int64_t>(matrix.adapter_pass);
  saved[name + "_format"] = static_cast<int64_t>(matrix.format);
}

Matrix kept_matrix(AutogradContext* ctx, const std::string& name) {
  auto& saved = ctx->saved_data;
  Matrix matrix(saved[name].toTensor());
  if (saved.count(name + "_format") == 0) return matrix;
  matrix.name = reinterpret_cast<const std::string*>(saved[name + "_name"].toInt());
  matrix.scales = saved[name + "_scales"].toTensor();
  matrix.scale_row_O = saved[name + "_scale_rows"].toTensor();
  matrix.adapters = reinterpret_cast<const MatrixAdapters*>(saved[name + "_adapters"].toInt());
  matrix.adapter_row = saved[name + "_adapter_row"].toInt();
  matrix.adapter_pass = static_cast<uint64_t>(saved[name + "_adapter_pass"].toInt());
  matrix.format = static_cast<MatrixFormat>(saved[name + "_format"].toInt());
  return matrix;
}

void keep(AutogradContext* ctx, const std::string& name, const Param& param) {
  ctx->saved_data[name] = param.value;
  ctx->saved_data[name + "_grad"] = param.grad;
}

Param kept_param(AutogradContext* ctx, const std::string& name) {
  return {ctx->saved_data[name].toTensor(), ctx->saved_data[name + "_grad"].toTensor()};
}

void keep(AutogradContext* ctx, const std::string& name, const MatrixParam& param) {
  keep(ctx, name, param.matrix);
  ctx->saved_data[name + "_grad"] = param.grad;
}

MatrixParam kept_matrix_param(AutogradContext* ctx, const std::string& name) {
  return {kept_matrix(ctx, name), ctx->saved_data[name + "_grad"].toTensor()};
}

}  // namespace slime::kernels
