#include "kernels/with_value.h"

#include <torch/csrc/autograd/custom_function.h>

#include "core/error.h"

namespace slime::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct WithValue : torch::autograd::Function<WithValue> {
  static Tensor forward(AutogradContext* /*ctx*/, const Tensor& /*computed*/, const Tensor& value) {
    return value.clone();
  }
  static variable_list backward(AutogradContext* /*ctx*/, variable_list grads) {
    return {grads[0], Tensor()};
  }
};

}  // namespace

Tensor with_value(const Tensor& computed, const Tensor& value) {
  check(computed.sizes() == value.sizes() && computed.scalar_type() == value.scalar_type(),
        "both computations give the same sizes and precision");
  return WithValue::apply(computed, value.detach());
}

}  // namespace slime::kernels
