// Cases of src/kernels/cuda/training but for adamw and softmax (kernel_cases_for_tests.h).
#define SLIME_KERNELS_ON_CPU

#include "kernels/cpu/reference.h"
#include "kernels/cuda/training/rows_backward.h"
#include "kernels/cuda/vendor/kernel_cases_for_tests.h"

namespace slime::kernels::cuda {
namespace {

const cpu::ReferenceDevice& gradient_twin() {
  static const cpu::ReferenceDevice device;
  return device;
}
Tensor exactly(const Tensor& x) { return x.defined() ? x.to(at::kDouble) : x; }

/// Rows of one number of packs and of more than a block has threads; the gradient of the weight by column sums.
double error_of_norm_backward(BlockExecutor& executor, at::ScalarType type, int64_t hidden,
                              bool has_more) {
  const int64_t rows = 3;
  const Tensor x = random({rows, hidden}, type), dy = random({rows, hidden}, type);
  const Tensor weight = random({hidden}, has_more ? at::kFloat : type),
               dsum = random({rows, hidden}, type);
  const Tensor dx = unwritten({rows, hidden}, type),
               partial = unwritten({num_partial_rows(), hidden});
  const Tensor grad = random({hidden});
  NormBackwardCall call;
  call.number = to_number(type);
  call.dy_TH = dy.data_ptr(), call.x_TH = x.data_ptr(), call.weight_H = weight.data_ptr();
  call.has_float_weight = has_more;
  call.dsum_TH = has_more ? dsum.data_ptr() : nullptr;
  call.dx_TH = dx.data_ptr(), call.partial_BH = partial.data_ptr<float>();
  call.rows = rows, call.hidden = hidden;
  call.eps = 1e-6F;
  const Tensor exact_grad = exactly(grad);
  Tensor exact =
      gradient_twin().rms_norm_backward(exactly(dy), exactly(x), exactly(weight), 1e-6, exact_grad);
  if (has_more) exact += exactly(dsum);
  rms_norm_backward(call, &executor);
  add_column_sums(partial.data_ptr<float>(), partial.size(0), hidden, grad.data_ptr<float>(),
                  &executor);
  return std::max(error_of(dx, exact, rounding_bound(type)), error_of(grad, exact_grad, 4e-6));
}

double error_of_gate_backward(BlockExecutor& executor, at::ScalarType type) {
  const Tensor dy = random({3, 136}, type), gate_up = random({3, 272}, type),
               made = unwritten({3, 272}, type);
  swiglu_backward(to_number(type), dy.data_ptr(), gate_up.data_ptr(), made.data_ptr(), 3, 136,
                  &executor);
  return error_of(made, gradient_twin().swiglu_backward(exactly(dy), exactly(gate_up)),
                  rounding_bound(type));
}

/// Two softmaxes over 7 and 5 keys become the one over 12; in row 2 there is nothing more.
double error_of_merge(BlockExecutor& executor, at::ScalarType type) {
  const int64_t rows = 3, heads = 5, dim = 24;
  const Tensor a = random({rows, heads, 7}, at::kDouble), b = random({rows, heads, 5}, at::kDouble);
  const Tensor v = random({12, dim}, at::kDouble);
  const auto attended = [&](const Tensor& scores, int64_t first) {
    return at::matmul(scores.softmax(-1), v.narrow(0, first, scores.size(2)));
  };
  const Tensor out = attended(a, 0).to(type), more = attended(b, 7).to(type);
  const Tensor all = at::cat({a, b}, 2), exact = attended(all, 0), sum = all.logsumexp(-1);
  const Tensor logsumexp = a.logsumexp(-1).to(at::kFloat), of_more = b.logsumexp(-1).to(at::kFloat);
  of_more[2].fill_(-INFINITY);
  exact[2].copy_(out[2]);
  sum[2].copy_(logsumexp[2]);
  merge_attention(to_number(type), out.data_ptr(), logsumexp.data_ptr<float>(), more.data_ptr(),
                  of_more.data_ptr<float>(), rows, heads, dim, &executor);
  return std::max(error_of(out, exact, rounding_bound(type)), error_of(logsumexp, sum, 2e-6));
}

double error_of_added_rows(BlockExecutor& executor, at::ScalarType type, bool has_float_sum) {
  const int64_t columns = 520, count = 22;
  const Tensor x = random({count, columns}, type);
  const Tensor sum = random({6, columns}, has_float_sum ? at::kFloat : type), exact = exactly(sum);
  const auto [sorted, from] = at::randint(5, {count}, at::kLong).sort(/*stable=*/true, 0, false);
  AddRowsCall call;
  call.number = to_number(type);
  call.has_float_sum = has_float_sum;
  call.x_TH = x.data_ptr();
  call.sorted_T = sorted.data_ptr<int64_t>(), call.from_T = from.data_ptr<int64_t>();
  call.sum_VH = sum.data_ptr();
  call.rows = count, call.columns = columns;
  add_rows(call, &executor);
  exact.index_add_(0, sorted, exactly(x).index_select(0, from));
  return error_of(sum, exact, rounding_bound(has_float_sum ? at::kFloat : type));
}

struct BackRotation {
  at::ScalarType type = at::kFloat;
  int64_t dim = 0;
  bool has_norms = true, has_float_norms = false;
};

double error_of_back_rotation(BlockExecutor& executor, const BackRotation& shape) {
  const auto& [type, dim, has_norms, has_float_norms] = shape;
  const int64_t rows = 4, q = 3, kv = 2;
  const RotaryShape heads{q, kv, dim, 1e-6};
  const Tensor dy = random({rows, (q + 2 * kv) * dim}, type), qkv = random(dy.sizes(), type);
  const auto of_norms = has_float_norms ? at::kFloat : type;
  const Tensor q_norm = has_norms ? random({dim}, of_norms) : Tensor(),
               k_norm = has_norms ? random({dim}, of_norms) : Tensor();
  const Tensor angles = random({9, dim / 2}), cosine = angles.cos(), sine = angles.sin();
  const Tensor positions = at::tensor({int64_t{0}, int64_t{8}, int64_t{3}, int64_t{1}});
  const Tensor made = unwritten(dy.sizes(), type);
  const Tensor q_partial = unwritten({num_partial_rows() * q, dim}),
               k_partial = unwritten({num_partial_rows() * kv, dim});
  RotateBackwardCall call;
  call.forward.number = to_number(type);
  call.forward.qkv_TE = has_norms ? qkv.data_ptr() : nullptr;
  call.forward.out_TE = made.data_ptr();
  call.forward.positions_T = positions.data_ptr<int64_t>();
  if (has_norms)
    call.forward.q_norm_D = q_norm.data_ptr(), call.forward.k_norm_D = k_norm.data_ptr();
  call.forward.has_float_norms = has_float_norms;
  call.forward.cos_PR = cosine.data_ptr<float>(), call.forward.sin_PR = sine.data_ptr<float>();
  call.forward.rows = rows;
  call.forward.num_heads = q, call.forward.num_kv_heads = kv;
  call.forward.head_dim = static_cast<int>(dim);
  call.forward.eps = 1e-6F;
  call.dy_TE = dy.data_ptr();
  if (has_norms)
    call.q_partial_BD = q_partial.data_ptr<float>(),
    call.k_partial_BD = k_partial.data_ptr<float>();
  norm_rotate_backward(call, &executor);
  const auto zeros = [&] { return has_norms ? at::zeros({dim}, at::kDouble) : Tensor(); };
  const Tensor q_grad = zeros(), k_grad = zeros();
  const Tensor exact = gradient_twin().norm_rotate_backward(
      exactly(dy), has_norms ? exactly(qkv) : Tensor(), positions, exactly(q_norm), exactly(k_norm),
      exactly(cosine), exactly(sine), heads, q_grad, k_grad);
  const double worst = error_of(made, exact, rounding_bound(type));
  if (!has_norms) return worst;
  return std::max(
      {worst, error_of(q_partial.sum(0), q_grad, 4e-6), error_of(k_partial.sum(0), k_grad, 4e-6)});
}

}  // namespace

std::vector<KernelCase> training_cases() {
  std::vector<KernelCase> cases;
  const auto norms = [&](const char* what, at::ScalarType type, int64_t hidden, bool has_more) {
    cases.push_back(
        {"training/rows_backward",
         what,
         [=](BlockExecutor& on) { return error_of_norm_backward(on, type, hidden, has_more); },
         {exchange_mistake(16), absent_thread(20)}});
  };
  norms("NormBackward", at::kFloat, 200, false);
  norms("NormBackwardInBFloats", at::kBFloat16, 1032, true);
  norms("NormBackwardOfLongRows", at::kHalf, 8320, true);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const std::string of = type == at::kFloat ? "Floats" : "BFloats";
    cases.push_back({"training/rows_backward",
                     "GateBackwardIn" + of,
                     [type](BlockExecutor& on) { return error_of_gate_backward(on, type); },
                     {absent_thread(3)}});
    cases.push_back({"training/rows_backward",
                     "MergedAttentionIn" + of,
                     [type](BlockExecutor& on) { return error_of_merge(on, type); },
                     {barrier_mistake(), absent_thread(0)}});
    cases.push_back(
        {"training/add_rows",
         "AddedRowsIn" + of,
         [type](BlockExecutor& on) { return error_of_added_rows(on, type, type == at::kFloat); },
         {absent_thread(1)}});
  }
  cases.push_back({"training/add_rows",
                   "AddedRowsOfHalvesInFloats",
                   [](BlockExecutor& on) { return error_of_added_rows(on, at::kHalf, true); },
                   {absent_thread(100)}});
  const auto back = [&](const char* what, const BackRotation& shape,
                        BlockExecutor::Options mistake) {
    cases.push_back({"training/rotate_backward",
                     what,
                     [shape](BlockExecutor& on) { return error_of_back_rotation(on, shape); },
                     {mistake, absent_thread(2)}});
  };
  back("BackRotation", {.dim = 48}, exchange_mistake(16));
  back("BackRotationWithoutNorms", {.type = at::kHalf, .dim = 20, .has_norms = false},
       absent_thread(1));
  back("WideBackRotation", {.type = at::kBFloat16, .dim = 128, .has_float_norms = true},
       exchange_mistake(4));
  back("WideBackRotationOfLongHeads", {.type = at::kHalf, .dim = 256}, exchange_mistake(8));
  return cases;
}

}  // namespace slime::kernels::cuda
