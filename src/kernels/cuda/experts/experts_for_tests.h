#pragma once

/// Routed experts of tests, and plain loops on the CPU that compute with them.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "kernels/cuda/fp8/codes_for_tests.h"
#include "kernels/cuda/gpu_test_tensors.h"
#include "kernels/matrix_formats.h"
#include "kernels/routed_experts.h"

namespace slime::kernels {

struct ExpertShape {
  const char* name = "";
  int64_t hidden = 0, width = 0, experts = 0;
  RouterRule rule;
  bool has_bias = false;
  double of_bias = 0;  // how far selection biases are apart
};

inline RoutedExperts random_experts(const ExpertShape& shape) {
  const auto matrix = [](int64_t outputs, int64_t inputs) {
    return (numbers({outputs, inputs}, at::kFloat) / std::sqrt(static_cast<double>(inputs)))
        .to(at::kBFloat16);
  };
  RoutedExperts out;
  out.router_EH = matrix(shape.experts, shape.hidden) * 2;
  if (shape.has_bias) out.selection_bias_E = numbers({shape.experts}, at::kFloat) * shape.of_bias;
  out.rule = shape.rule;
  out.gate_up =
      Matrix(matrix(shape.experts * 2 * shape.width, shape.hidden)).stacked(shape.experts);
  out.down = Matrix(matrix(shape.experts * shape.hidden, shape.width)).stacked(shape.experts);
  return out;
}

inline RoutedExperts experts_on_gpu(const RoutedExperts& from) {
  RoutedExperts out = from;
  out.selection_bias_E = to_gpu(from.selection_bias_E);
  for (Matrix* matrix :
       {&out.router_EH, &out.gate_up, &out.down, &out.shared_gate_up, &out.shared_down})
    for (Tensor* tensor : {&matrix->values, &matrix->scales, &matrix->scale_row_O})
      *tensor = to_gpu(*tensor);
  return out;
}

/// Whom rows visit, from the best score on; scores in double.
struct Choice {
  Tensor expert_TK, score_TK;
};
inline Choice choice_of(const Tensor& x_TH, const RoutedExperts& experts) {
  const Tensor logits = wide(x_TH).mm(wide(experts.router_EH.plain()).t());
  const Tensor scores = experts.rule.is_sigmoid ? logits.sigmoid() : logits.softmax(-1);
  const Tensor choice =
      experts.selection_bias_E.defined() ? scores + wide(experts.selection_bias_E) : scores;
  const Tensor expert_TK = std::get<1>(choice.topk(experts.rule.per_token, -1));
  return {expert_TK, scores.gather(1, expert_TK)};
}

/// In double, visit by visit, with the numbers that codes mean: of the weights, and beside them of what is multiplied with
/// them.
struct Expected {
  Tensor y_TH;
  std::vector<int64_t> visited;  // experts that the first so many rows visit; [T + 1]
};

inline Expected expected_of(const Tensor& x_TH, const RoutedExperts& experts) {
  const bool are_codes = experts.gate_up.format == MatrixFormat::kFp8Blocks;
  const Tensor x = wide(x_TH), input_TH = are_codes ? wide(as_codes_mean(x_TH)) : x;
  auto [expert_TK, weight_TK] = choice_of(x_TH, experts);
  if (experts.rule.normalizes) weight_TK = weight_TK / weight_TK.sum(-1, true);
  weight_TK = weight_TK * experts.rule.scaling;
  const int64_t width = experts.width();
  const Tensor gate_up = numbers_of(experts.gate_up, at::kDouble),
               down = numbers_of(experts.down, at::kDouble);
  Expected out{at::zeros_like(x), {0}};
  std::vector<bool> is_visited(static_cast<size_t>(experts.count()), false);
  for (int64_t t = 0; t < x.size(0); ++t) {
    for (int64_t k = 0; k < experts.rule.per_token; ++k) {
      const auto e = expert_TK[t][k].item<int64_t>();
      is_visited[static_cast<size_t>(e)] = true;
      const Tensor both = gate_up[e].mv(input_TH[t]);
      Tensor gated = at::silu(both.narrow(0, 0, width)) * both.narrow(0, width, width);
      if (are_codes) gated = wide(as_codes_mean(gated.to(at::kBFloat16).unsqueeze(0)))[0];
      out.y_TH[t].add_(down[e].mv(gated) * weight_TK[t][k]);
    }
    out.visited.push_back(std::count(is_visited.begin(), is_visited.end(), true));
  }
  if (experts.shared_down.defined()) {
    const int64_t shared = experts.shared_down.inputs();
    const Tensor both = x.mm(numbers_of(experts.shared_gate_up, at::kDouble).t());
    const Tensor gated = at::silu(both.narrow(1, 0, shared)) * both.narrow(1, shared, shared);
    out.y_TH.add_(gated.mm(numbers_of(experts.shared_down, at::kDouble).t()));
  }
  return out;
}

/// Of nine rows in ten, the worst: in single rows an intermediate rounds the other way, and they
/// visit another expert.
inline double error_of_most_rows(const Tensor& a, const Tensor& exact) {
  const Tensor x = wide(a.cpu()), y = wide(exact);
  return ((x - y).norm(2, {1}) / y.norm(2, {1})).quantile(0.9).item<double>();
}

/// Compares GPU kernels with expected_of() for so many first rows each, and counts what they visit. Steps of more than
/// `most_counted` rows count no visits.
inline void expect_equal_to_loops(const ExpertShape& shape, const RoutedExperts& experts,
                                  std::initializer_list<int64_t> row_counts, int64_t most_counted) {
  const RoutedExperts fast = experts_on_gpu(experts);
  const Tensor x_TH = numbers({std::max(row_counts), shape.hidden}, at::kBFloat16);
  const Expected expected = expected_of(x_TH, experts);
  const Tensor gpu_x_TH = to_gpu(x_TH);
  const ExpertKernels* kernels = expert_kernels_for(gpu_x_TH);
  ASSERT_NE(kernels, nullptr);
  for (const int64_t rows : row_counts) {
    const Tensor x = gpu_x_TH.narrow(0, 0, rows);
    if (!kernels->has_routed_experts(x, fast)) GTEST_SKIP() << "this GPU has no such kernels";
    const VisitedExperts before = kernels->visited_experts();
    const Tensor y_TH = kernels->routed_experts(x, fast);
    const VisitedExperts after = kernels->visited_experts();
    // What is rounded are gated numbers and what a visit returns. Now and then the code of a gated number is the next one, an
    // eighth of it off, which counts where there are few.
    EXPECT_LT(relative_error(y_TH, expected.y_TH.narrow(0, 0, rows)),
              experts.gate_up.format == MatrixFormat::kFp8Blocks ? 3e-2 : 8e-3)
        << rows << " rows";
    const bool is_counted = rows <= most_counted;
    EXPECT_EQ(after.calls - before.calls, is_counted ? 1 : 0);
    EXPECT_EQ(after.experts - before.experts,
              is_counted ? expected.visited[static_cast<size_t>(rows)] : 0)
        << rows << " rows";
    EXPECT_TRUE(at::equal(kernels->routed_experts(x, fast), y_TH)) << "the same to the bit";
  }
}

}  // namespace slime::kernels
