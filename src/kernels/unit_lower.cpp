#include "kernels/unit_lower.h"

#include <ATen/ATen.h>

namespace slime::kernels {

Tensor inverse_of_unit_lower(const Tensor& lower_MCC) {
  const int64_t count = lower_MCC.size(0), size = lower_MCC.size(1);
  const Tensor lower = lower_MCC.contiguous();
  // Inverses of the blocks on the diagonal, [M, C / s, s, s].
  Tensor inverse = at::ones({count, size, 1, 1}, lower.options());
  for (int64_t s = 1; s < size; s *= 2) {
    const int64_t blocks = size / (2 * s);
    const Tensor below = lower.view({count, blocks, 2 * s, blocks, 2 * s})
                             .diagonal(0, 1, 3)
                             .narrow(1, s, s)
                             .narrow(2, 0, s)
                             .permute({0, 3, 1, 2});
    const Tensor pairs = inverse.view({count, blocks, 2, s, s});
    const Tensor first = pairs.select(2, 0), second = pairs.select(2, 1);
    Tensor next = at::zeros({count, blocks, 2 * s, 2 * s}, lower.options());
    next.narrow(2, 0, s).narrow(3, 0, s).copy_(first);
    next.narrow(2, s, s).narrow(3, s, s).copy_(second);
    next.narrow(2, s, s).narrow(3, 0, s).copy_(at::matmul(second, at::matmul(below, first)).neg());
    inverse = next;
  }
  return inverse.view({count, size, size});
}

}  // namespace slime::kernels
