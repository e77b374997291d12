#include "kernels/matrix.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "core/error.h"

namespace slime::kernels {

Matrix Matrix::without_adapters() const {
  Matrix base = *this;
  base.adapters = nullptr;
  return base;
}

Matrix Matrix::rows(int64_t begin, int64_t count) const {
  Matrix part = *this;
  part.adapter_row += begin;
  part.values = values.narrow(0, begin, count);
  if (scale_row_O.defined()) part.scale_row_O = scale_row_O.narrow(0, begin, count);
  return part;
}

Matrix Matrix::stacked(int64_t count) const {
  Matrix stack = *this;
  stack.values = values.view({count, -1, values.size(-1)});
  if (!scales.defined()) return stack;
  stack.scales = scales.view({count, -1, scales.size(-1)});
  stack.scale_row_O = scale_row_O.narrow(0, 0, stack.outputs());
  return stack;
}

Matrix Matrix::of_expert(int64_t expert) const {
  Matrix one = *this;
  one.values = values.select(0, expert);
  if (scales.defined()) one.scales = scales.select(0, expert);
  return one;
}

void Matrix::refuse() const {
  throw BugError(fmt::format("{}: a kernel for plain matrices got one {}",
                             name == nullptr ? "a matrix without a name" : *name,
                             adapters != nullptr ? "with adapters" : "in another format"));
}

MatrixParam MatrixParam::rows(int64_t begin, int64_t count) const {
  return {matrix.rows(begin, count), grad.defined() ? grad.narrow(0, begin, count) : Tensor()};
}

}  // namespace slime::kernels
