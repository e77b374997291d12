// Cases of experts/visits (kernel_cases_for_tests.h).
#define SLIME_KERNELS_ON_CPU

#include "kernels/cuda/experts/visits.h"
#include "kernels/cuda/vendor/kernel_cases_for_tests.h"

namespace slime::kernels::cuda {
namespace {

constexpr auto kVisitType = at::kBFloat16;

double error_of_visits(BlockExecutor& executor, bool has_norm) {
  const int64_t rows = 3, visits = 5, hidden = 264;
  const Tensor x = random({rows * visits, hidden}, kVisitType), weight = at::rand({rows, visits});
  const Tensor place = at::randperm(rows * visits).view({rows, visits});
  const Tensor more = random({rows, hidden}, kVisitType), base = random({rows, hidden}, kVisitType);
  const Tensor norm = random({hidden}, kVisitType),
               residual = unwritten({rows, hidden}, kVisitType);
  const Tensor out = unwritten({rows, hidden}, kVisitType);
  VisitSum call;
  call.rows_SH = x.data_ptr();
  call.place_TK = place.data_ptr<int64_t>();
  call.weight_TK = weight.data_ptr<float>();
  call.more_TH = more.data_ptr();
  call.rows = rows, call.per_token = visits, call.hidden = hidden;
  if (has_norm) {
    call.base_TH = base.data_ptr(), call.residual_TH = residual.data_ptr();
    call.norm_H = norm.data_ptr();
    call.eps = 1e-6F;
  }
  call.out_TH = out.data_ptr();
  sum_visits(call, &executor);
  // In the order of k, and rounded as the kernel says: so bits are equal but for the norm's.
  Tensor sum = at::zeros({rows, hidden});
  for (int64_t k = 0; k < visits; ++k)
    sum += weight.select(1, k).unsqueeze(1) * x.index_select(0, place.select(1, k)).to(at::kFloat);
  sum = (sum.to(kVisitType).to(at::kFloat) + more.to(at::kFloat)).to(kVisitType);
  if (!has_norm) return error_of_bits(out, sum);
  const Tensor both = (base.to(at::kFloat) + sum.to(at::kFloat)).to(kVisitType);
  const Tensor wide = both.to(at::kDouble);
  const Tensor exact = wide * (wide.square().mean(-1, true) + 1e-6).rsqrt() * norm.to(at::kDouble);
  return std::max(error_of_bits(residual, both), error_of(out, exact, rounding_bound(kVisitType)));
}

double error_of_gated_backward(BlockExecutor& executor) {
  const int64_t rows = 5, width = 264;
  const Tensor dgated = random({rows, width}, kVisitType),
               gate_up = random({rows, 2 * width}, kVisitType);
  const Tensor weight = at::rand({rows}), dgate_up = unwritten({rows, 2 * width}, kVisitType);
  const Tensor weighted = unwritten({rows, width}, kVisitType), dweight = unwritten({rows});
  GatedBackward call;
  call.dgated_SF = dgated.data_ptr(), call.gate_up_S2F = gate_up.data_ptr();
  call.weight_S = weight.data_ptr<float>();
  call.dgate_up_S2F = dgate_up.data_ptr(), call.weighted_SF = weighted.data_ptr();
  call.dweight_S = dweight.data_ptr<float>();
  call.rows = rows, call.width = width;
  gated_backward(call, &executor);
  const Tensor gate = gate_up.narrow(1, 0, width).to(at::kDouble),
               up = gate_up.narrow(1, width, width).to(at::kDouble), sigmoid = gate.sigmoid();
  const Tensor by = weight.to(at::kDouble).unsqueeze(1), dy = dgated.to(at::kDouble);
  const Tensor dgate = dy * by * up * sigmoid * (1 + gate * (1 - sigmoid));
  const Tensor gated = gate * sigmoid * up;
  const double bound = 2 * rounding_bound(kVisitType);
  return std::max({error_of(weighted, gated * by, bound),
                   error_of(dgate_up, at::cat({dgate, dy * by * gate * sigmoid}, 1), bound),
                   error_of(dweight, (dy * gated).sum(1), bound)});
}

double error_of_grouped_product(BlockExecutor& executor) {
  const std::vector<int32_t> starts{0, 2, 2, 7};
  const int64_t rows = 7, inputs = 30, outputs = 131;
  const Tensor x = random({rows, inputs}, at::kHalf),
               weight = random({3, inputs, outputs}, at::kHalf);
  const Tensor y = unwritten({rows, outputs}, at::kHalf);
  PlainGroupedProduct call;
  call.number = Number::kFloat16;
  call.x_SI = x.data_ptr(), call.weight = weight.data_ptr();
  call.expert_stride = inputs * outputs, call.output_stride = 1, call.input_stride = outputs;
  call.starts_E1 = starts.data();
  call.rows = rows, call.experts = 3;
  call.inputs = static_cast<int>(inputs), call.outputs = static_cast<int>(outputs);
  call.y_SO = y.data_ptr();
  plain_grouped_product(call, &executor);
  const Tensor wide = x.to(at::kDouble), matrix = weight.to(at::kDouble);
  return error_of(
      y,
      at::cat({at::mm(wide.narrow(0, 0, 2), matrix[0]), at::mm(wide.narrow(0, 2, 5), matrix[2])}),
      rounding_bound(at::kHalf));
}

double error_of_grouped_gradient(BlockExecutor& executor) {
  const std::vector<int32_t> starts{0, 2, 2, 7};
  const int64_t rows = 7, inputs = 18, outputs = 35;
  const Tensor x = random({rows, inputs}), dy = random({rows, outputs});
  const Tensor grad = random({3, outputs, inputs}), exact = grad.to(at::kDouble);
  PlainGroupedGradient call;
  call.dy_SO = dy.data_ptr(), call.x_SI = x.data_ptr();
  call.starts_E1 = starts.data();
  call.experts = 3;
  call.inputs = static_cast<int>(inputs), call.outputs = static_cast<int>(outputs);
  call.grad_EOI = grad.data_ptr<float>();
  plain_grouped_gradient(call, &executor);
  for (const auto& [expert, begin, count] : {std::tuple{0, 0, 2}, std::tuple{2, 2, 5}})
    exact[expert].add_(at::mm(dy.to(at::kDouble).narrow(0, begin, count).t(),
                              x.to(at::kDouble).narrow(0, begin, count)));
  return error_of(grad, exact, 2e-6);
}

}  // namespace

std::vector<KernelCase> expert_cases() {
  return {
      {"experts/visits",
       "SumsOfVisits",
       [](BlockExecutor& on) { return error_of_visits(on, false); },
       {absent_thread(30)}},
      {"experts/visits",
       "SumsOfVisitsWithANorm",
       [](BlockExecutor& on) { return error_of_visits(on, true); },
       {exchange_mistake(16), barrier_mistake(), absent_thread(30)}},
      {"experts/visits",
       "GatedBackward",
       error_of_gated_backward,
       {exchange_mistake(4), absent_thread(31)}},
      {"experts/visits", "GroupedProduct", error_of_grouped_product, {absent_thread(2)}},
      {"experts/visits", "GroupedGradient", error_of_grouped_gradient, {absent_thread(200)}},
  };
}

}  // namespace slime::kernels::cuda
