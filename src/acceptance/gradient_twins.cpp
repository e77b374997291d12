#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <array>
#include <string>

#include "acceptance/kernel_twins.h"
#include "kernels/adamw.h"
#include "kernels/cpu/adamw.h"
#include "kernels/cpu/reference.h"
#include "model/save.h"

namespace slime::acceptance {
namespace {

using kernels::RotaryShape;

/// Of gradients of weights, which are added in float32.
constexpr double kSummed = 2e-5;

void compare_norm_gradients(const Comparison& beside, at::ScalarType type, int64_t rows,
                            int64_t hidden) {
  const std::string what =
      fmt::format("rms_norm_backward {} {} x {}", model::dtype_word(type), rows, hidden);
  beside.attempt(what, [&] {
    const Tensor x = beside.numbers({rows, hidden}, type),
                 dy = beside.numbers({rows, hidden}, type);
    const Tensor dsum = beside.numbers({rows, hidden}, type),
                 weight = beside.numbers({hidden}, type);
    Tensor grad = beside.there(at::ones({hidden})), exact = at::ones({hidden}, at::kDouble);
    const kernels::Device& device = beside.side().device;
    beside.near(what,
                device.rms_norm_backward(beside.there(dy), beside.there(x), beside.there(weight),
                                         1e-6, grad),
                reference().rms_norm_backward(wide(dy), wide(x), wide(weight), 1e-6, exact),
                2 * rounding(type));
    beside.near(what + ", weight", grad, exact, kSummed);
    beside.near("add_" + what,
                device.add_rms_norm_backward(beside.there(dsum), beside.there(dy), beside.there(x),
                                             beside.there(weight), 1e-6, Tensor()),
                reference().add_rms_norm_backward(wide(dsum), wide(dy), wide(x), wide(weight), 1e-6,
                                                  Tensor()),
                2 * rounding(type));
  });
}

void compare_activation_gradient(const Comparison& beside, at::ScalarType type, int64_t rows,
                                 int64_t width) {
  const std::string what =
      fmt::format("swiglu_backward {} {} x {}", model::dtype_word(type), rows, width);
  beside.attempt(what, [&] {
    const Tensor x = beside.numbers({rows, 2 * width}, type),
                 dy = beside.numbers({rows, width}, type);
    beside.near(what, beside.side().device.swiglu_backward(beside.there(dy), beside.there(x)),
                reference().swiglu_backward(wide(dy), wide(x)), 2 * rounding(type));
  });
}

void compare_product_gradients(const Comparison& beside, at::ScalarType type, int64_t rows,
                               int64_t inputs, int64_t outputs) {
  const std::string shape =
      fmt::format("{} {} x {} x {}", model::dtype_word(type), rows, inputs, outputs);
  beside.attempt("gradients of linear " + shape, [&] {
    const kernels::Device& device = beside.side().device;
    const Tensor x = beside.numbers({rows, inputs}, type),
                 dy = beside.numbers({rows, outputs}, type);
    const Tensor weight = beside.numbers({outputs, inputs}, type);
    beside.near("linear_input_grad " + shape,
                device.linear_input_grad(beside.there(dy), beside.there(weight)),
                reference().linear_input_grad(wide(dy), wide(weight)), 2 * rounding(type));
    const Tensor start = beside.numbers({outputs, inputs}, at::kFloat);
    const Tensor grad = beside.there(start).clone();
    device.add_linear_weight_grad_(grad, beside.there(dy), beside.there(x));
    beside.near("add_linear_weight_grad_ " + shape, grad, wide(start) + wide(dy).t().mm(wide(x)),
                kSummed);
  });
}

void compare_rotation_gradient(const Comparison& beside, at::ScalarType type, int64_t rows,
                               const RotaryShape& shape) {
  const int64_t dim = shape.head_dim, heads = shape.num_heads + 2 * shape.num_kv_heads;
  const std::string what = fmt::format("norm_rotate_backward {} {} x {} heads of {}",
                                       model::dtype_word(type), rows, shape.num_heads, dim);
  beside.attempt(what, [&] {
    const Tensor x = beside.numbers({rows, heads * dim}, type),
                 dy = beside.numbers({rows, heads * dim}, type);
    const Tensor angle = at::rand({100, dim / 2}) * 6,
                 positions = at::randint(100, {rows}, at::kLong);
    const Tensor q = beside.numbers({dim}, type), k = beside.numbers({dim}, type);
    const Tensor cosine = angle.cos(), sine = angle.sin(), zeros = at::zeros({dim});
    Tensor dq = beside.there(zeros).clone(), dk = beside.there(zeros).clone();
    Tensor dq_exact = wide(zeros).clone(), dk_exact = wide(zeros).clone();
    beside.near(
        what,
        beside.side().device.norm_rotate_backward(
            beside.there(dy), beside.there(x), beside.there(positions), beside.there(q),
            beside.there(k), beside.there(cosine), beside.there(sine), shape, dq, dk),
        reference().norm_rotate_backward(wide(dy), wide(x), positions, wide(q), wide(k),
                                         wide(cosine), wide(sine), shape, dq_exact, dk_exact),
        2 * rounding(type));
    beside.near(what + ", norm of queries", dq, dq_exact, kSummed);
    beside.near(what + ", norm of keys", dk, dk_exact, kSummed);
  });
}

void compare_softmax(const Comparison& beside, int64_t vocabulary) {
  const std::string what = fmt::format("softmax_statistics 19 x {}", vocabulary);
  beside.attempt(what, [&] {
    const kernels::Device& device = beside.side().device;
    const int64_t rows = 19;
    const Tensor logits = beside.numbers({rows, vocabulary}, at::kFloat) * 5;
    const Tensor target = at::randint(vocabulary, {rows}, at::kLong);
    std::array<Tensor, 3> a, b;
    for (Tensor& x : a) x = beside.there(at::empty({rows}));
    for (Tensor& x : b) x = at::empty({rows}, at::kDouble);
    device.softmax_statistics(beside.there(logits), beside.there(target), 0.7, a[0], a[1], a[2]);
    reference().softmax_statistics(wide(logits), target, 0.7, b[0], b[1], b[2]);
    constexpr std::array kNames{"log-prob", "entropy", "logsumexp"};
    // The entropy is the difference of float32 numbers some ten times its size.
    for (std::size_t i = 0; i < a.size(); ++i)
      beside.near(what + ", " + kNames[i], a[i], b[i], i == 1 ? 2e-5 : 5e-6);
    const Tensor dlogprob = at::randn({rows}), dentropy = at::randn({rows});
    const Tensor exact = reference().softmax_gradient(wide(logits), target, {0.7}, b[2], b[1],
                                                      wide(dlogprob), wide(dentropy), at::kDouble);
    beside.near(
        fmt::format("softmax_gradient 19 x {}", vocabulary),
        device.softmax_gradient(beside.there(logits).clone(), beside.there(target), {0.7}, a[2],
                                a[1], beside.there(dlogprob), beside.there(dentropy), at::kFloat),
        exact, 2e-5);
  });
}

}  // namespace

void compare_gradients(const Side& side, const Tell& tell) {
  const at::NoGradGuard no_grad;
  const Comparison beside("gradients", side, tell);
  for (const at::ScalarType type : side.types) {
    for (const int64_t rows : {1, 129}) {
      for (const int64_t hidden : {72, 2560}) compare_norm_gradients(beside, type, rows, hidden);
      compare_activation_gradient(beside, type, rows, 136);
      compare_product_gradients(beside, type, rows, 136, 72);
    }
    for (const RotaryShape& shape : {RotaryShape{5, 1, 64, 1e-6}, RotaryShape{8, 2, 128, 1e-6}})
      compare_rotation_gradient(beside, type, 77, shape);
    if (side.is_quick) continue;
    compare_norm_gradients(beside, type, 1200, 8192);
    compare_activation_gradient(beside, type, 1000, 9728);
    compare_product_gradients(beside, type, 1000, 2560, 6144);
    compare_rotation_gradient(beside, type, 1201, {32, 8, 128, 1e-6});
  }
  for (const int64_t vocabulary : {7, 4099}) compare_softmax(beside, vocabulary);
  if (!side.is_quick) compare_softmax(beside, 151936);
}

void compare_optimizer(const Side& side, const Tell& tell) {
  const at::NoGradGuard no_grad;
  const Comparison beside("optimizer", side, tell);
  const int64_t count = side.is_quick ? 70'001 : 4'000'001;
  const std::vector<kernels::AdamRange> ranges = {
      {0, 64, true}, {128, 60'000, false}, {60'032, count, true}};
  const std::string what = fmt::format("adamw_ float32 {}", count);
  beside.attempt(what, [&] {
    const Tensor start = beside.numbers({count}, at::kFloat);
    const Tensor weights = beside.there(start).clone(), first = at::zeros_like(weights),
                 second = at::zeros_like(weights);
    const Tensor exact = wide(start).clone(), exact_first = at::zeros_like(exact),
                 exact_second = at::zeros_like(exact);
    for (int64_t step = 1; step <= 3; ++step) {
      const Tensor grad = (at::arange(count, at::kFloat) * 0.37 * step).sin();
      const kernels::AdamStep how{.lr = 1e-2, .weight_decay = 0.1, .grad_scale = 0.5, .step = step};
      kernels::adamw_(weights, weights, first, second, beside.there(grad), ranges, how);
      kernels::cpu::adamw_(exact, exact, exact_first, exact_second, wide(grad), ranges, how);
    }
    beside.near(what, weights, exact, 1e-6);
    const Tensor sum = at::full({1}, kernels::sum_of_squares(beside.there(start)), at::kDouble);
    beside.near(fmt::format("sum_of_squares {}", count), sum, wide(start).square().sum().view({1}),
                1e-9);
  });
}

}  // namespace slime::acceptance
