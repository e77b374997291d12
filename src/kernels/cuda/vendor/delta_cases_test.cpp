// Cases of src/kernels/cuda/delta (kernel_cases_for_tests.h).
#define SLIME_KERNELS_ON_CPU

#include "kernels/cuda/delta/delta_gates.h"
#include "kernels/cuda/delta/paged_delta.h"
#include "kernels/cuda/vendor/kernel_cases_for_tests.h"

namespace slime::kernels::cuda {
namespace {

Tensor as_double(const Tensor& x) { return x.to(at::kDouble); }

double error_of_rates(BlockExecutor& executor) {
  const int64_t rows = 70, heads = 5;
  const Tensor wide_a = random({rows, 12}, at::kBFloat16),
               wide_b = random({rows, 12}, at::kBFloat16) * 3;
  const Tensor a_log = random({heads}), bias = random({heads}) * 15;
  const Tensor decay = unwritten({rows, heads}), rate = unwritten({rows, heads});
  DeltaRateCall call;
  call.a_TN = wide_a.data_ptr(), call.b_TN = wide_b.data_ptr();
  call.row_stride = 12;
  call.of_weights = Number::kFloat32;
  call.a_log_N = a_log.data_ptr(), call.bias_N = bias.data_ptr();
  call.decay_TN = decay.data_ptr<float>(), call.rate_TN = rate.data_ptr<float>();
  call.rows = rows, call.heads = heads;
  delta_rates(call, &executor);
  const Tensor a = as_double(wide_a).narrow(1, 0, heads), b = as_double(wide_b).narrow(1, 0, heads);
  const Tensor exact = -as_double(a_log).exp() * at::softplus(a + as_double(bias));
  return std::max(error_of(decay, exact, 2e-6), error_of(rate, b.sigmoid(), 2e-6));
}

double error_of_gated_norm(BlockExecutor& executor) {
  const int64_t rows = 3, heads = 3, size = 72;
  const Tensor x = random({rows, heads, size}), weight = random({size}, at::kBFloat16);
  const Tensor z = random({rows, heads * size + 8}, at::kBFloat16);
  const Tensor out = unwritten({rows, heads, size}, at::kBFloat16);
  GatedNormCall call;
  call.x_TC = x.data_ptr<float>(), call.z_TC = z.data_ptr();
  call.row_stride = z.size(1);
  call.weight_V = weight.data_ptr(), call.out_TC = out.data_ptr();
  call.rows = rows, call.heads = heads, call.value_dim = size;
  call.eps = 1e-6F;
  gated_norm(call, &executor);
  const Tensor wide = as_double(x);
  const Tensor gate = as_double(z).narrow(1, 0, heads * size).view({rows, heads, size});
  const Tensor normed = wide * (wide.square().mean(-1, true) + 1e-6).rsqrt();
  return error_of(out, normed * as_double(weight) * at::silu(gate), rounding_bound(at::kBFloat16));
}

struct DeltaSizes {
  int64_t key_heads = 1, value_heads = 2, key_dim = 0, value_dim = 0;
  at::ScalarType type = at::kFloat;
};

/// Sequences of four rows, of none behind a state, of one and of one without a state; token by token in float64.
double error_of_rule(BlockExecutor& executor, const DeltaSizes& sizes) {
  const auto [key_heads, value_heads, key_dim, value_dim, type] = sizes;
  constexpr int64_t kTaps = 4;
  constexpr double kUnitEps = 1e-6;
  const int64_t channels = 2 * key_heads * key_dim + value_heads * value_dim;
  const int64_t tokens_size = (kTaps - 1) * channels,
                state_size = value_heads * key_dim * value_dim;
  const std::vector<int32_t> starts{0, 4, 5, 6}, row_sequence{0, 0, 0, 0, 1, 2}, place{2, 0, -1};
  const Tensor mixed = random({6, channels}, type), taps = random({channels, kTaps}, type);
  const Tensor decay = -at::rand({6, value_heads}) * 0.4, rate = at::rand({6, value_heads});
  const Tensor states = random({3, tokens_size + state_size}) * 0.3,
               exact_states = as_double(states);
  const Tensor unit = unwritten({6, channels}), out = unwritten({6, value_heads, value_dim});
  DeltaRows call;
  call.number = to_number(type), call.of_taps = to_number(type);
  call.mixed_TE = mixed.data_ptr();
  call.row_stride = channels;
  call.decay_TN = decay.data_ptr<float>(), call.rate_TN = rate.data_ptr<float>();
  call.tap_EJ = taps.data_ptr();
  call.row_sequence_T = row_sequence.data(), call.query_starts = starts.data();
  call.state_S = place.data();
  call.states = states.data_ptr<float>();
  call.state_stride = states.size(1);
  call.unit_TE = unit.data_ptr<float>(), call.out_TC = out.data_ptr<float>();
  call.rows = 6;
  call.unit_eps = static_cast<float>(kUnitEps);
  call.sequences = 3, call.taps = kTaps;
  call.key_heads = static_cast<int>(key_heads), call.value_heads = static_cast<int>(value_heads);
  call.key_dim = static_cast<int>(key_dim), call.value_dim = static_cast<int>(value_dim);
  paged_delta(call, &executor);

  const Tensor exact = at::zeros({6, value_heads, value_dim}, at::kDouble);
  for (size_t s = 0; s < 2; ++s) {
    const Tensor own = exact_states[place[s]];
    const Tensor before = own.narrow(0, 0, tokens_size).view({kTaps - 1, channels});
    const Tensor matrix =
        own.narrow(0, tokens_size, state_size).view({value_heads, key_dim, value_dim});
    for (int64_t row = starts[s]; row < starts[s + 1]; ++row) {
      const Tensor window = at::cat({before.clone(), as_double(mixed).narrow(0, row, 1)});
      before.copy_(window.narrow(0, 1, kTaps - 1));
      const Tensor x = at::silu((as_double(taps).t() * window).sum(0));
      const auto heads = [&](int64_t begin, int64_t count, int64_t size) {
        return x.narrow(0, begin, count * size).view({count, size});
      };
      const auto unit_length = [&](const Tensor& y) {
        return (y * (y.square().sum(-1, true) + kUnitEps).rsqrt())
            .repeat_interleave(value_heads / key_heads, 0);
      };
      const Tensor query = unit_length(heads(0, key_heads, key_dim)) / std::sqrt(double(key_dim));
      const Tensor key = unit_length(heads(key_heads * key_dim, key_heads, key_dim));
      const Tensor value = heads(2 * key_heads * key_dim, value_heads, value_dim);
      matrix.mul_(as_double(decay[row]).exp().view({value_heads, 1, 1}));
      const Tensor seen = at::einsum("nd,ndv->nv", {key, matrix});
      const Tensor written = as_double(rate[row]).unsqueeze(-1) * (value - seen);
      matrix.add_(at::einsum("nd,nv->ndv", {key, written}));
      exact[row].copy_(at::einsum("nd,ndv->nv", {query, matrix}));
    }
  }
  // Sums over up to 128 numbers, of states that are sums over rows.
  return std::max(error_of(out, exact, 1e-5), error_of(states, exact_states, 1e-5));
}

}  // namespace

std::vector<KernelCase> delta_cases() {
  std::vector<KernelCase> cases;
  cases.push_back({"delta/delta_gates", "RatesOfDeltaNets", error_of_rates, {absent_thread(7)}});
  cases.push_back({"delta/delta_gates",
                   "GatedNorms",
                   error_of_gated_norm,
                   {exchange_mistake(16), absent_thread(40)}});
  const auto rule = [&](const char* what, const DeltaSizes& sizes) {
    cases.push_back({"delta/paged_delta",
                     what,
                     [sizes](BlockExecutor& on) { return error_of_rule(on, sizes); },
                     {exchange_mistake(8), barrier_mistake(), absent_thread(1)}});
  };
  rule("DeltaRule", {.key_dim = 128, .value_dim = 40, .type = at::kBFloat16});
  rule("DeltaRuleOfSmallHeads", {.key_heads = 2, .value_heads = 4, .key_dim = 16, .value_dim = 8});
  return cases;
}

}  // namespace slime::kernels::cuda
