#include "model/layers/head_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/device.h"
#include "kernels/trace.h"

namespace slime::model {
namespace {

using comm::RankGroup;
using kernels::Param;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor as_summed(const Tensor& x) { return x.to(kernels::accumulator_of(x)); }

/// Numbers of a token on all ranks.
double numbers_of_token(const Tensor& x_TC, const RankGroup& ranks) {
  return static_cast<double>(x_TC.size(1) * ranks.size());
}

/// [2, T]: of queries and of keys 1 / sqrt(mean of squares + eps).
Tensor scales_of_heads(const Heads& heads, double eps, RankGroup& ranks) {
  const int64_t rows = heads.query_TC.size(0);
  const auto part = [&](const Tensor& x_TC) {
    // Of an even number of rows, which is what collectives between GPUs take (kernels/gpu/peer_collectives.h).
    const Tensor mean_T = as_summed(x_TC).square().sum(1).div_(numbers_of_token(x_TC, ranks));
    return rows % 2 == 0 ? mean_T : at::constant_pad_nd(mean_T, {0, 1});
  };
  const Tensor mean_2T = at::stack({part(heads.query_TC), part(heads.key_TC)});
  ranks.all_reduce_(mean_2T, "norms over the heads of all ranks");
  return mean_2T.narrow(1, 0, rows).add_(eps).rsqrt_();
}

Tensor scaled_heads(const Tensor& x_TC, const Tensor& scale_T, const Tensor& weight_C) {
  return (as_summed(x_TC) * scale_T.unsqueeze(1) * weight_C).to(x_TC.scalar_type());
}

Heads scaled_heads(const Heads& heads, const Tensor& scale_2T, const HeadNorms& weights) {
  return {scaled_heads(heads.query_TC, scale_2T[0], weights.query_C.value),
          scaled_heads(heads.key_TC, scale_2T[1], weights.key_C.value)};
}

/// With r the scale of a token's n numbers x, of all ranks, y = r w x:
///
///   dw = sum over tokens of r x dy,   dx = r w dy - r^3 x / n * (sum over the numbers of x w dy)
struct NormOverRanks : torch::autograd::Function<NormOverRanks> {
  static variable_list forward(AutogradContext* ctx, const Tensor& query_TC, const Tensor& key_TC,
                               const HeadNorms& weights, double eps, RankGroup* ranks) {
    const Heads heads{query_TC, key_TC};
    const Tensor scale_2T = scales_of_heads(heads, eps, *ranks);
    ctx->save_for_backward({query_TC, key_TC, scale_2T});
    ctx->saved_data["query"] = weights.query_C.value;
    ctx->saved_data["query_grad"] = weights.query_C.grad;
    ctx->saved_data["key"] = weights.key_C.value;
    ctx->saved_data["key_grad"] = weights.key_C.grad;
    ctx->saved_data["ranks"] = reinterpret_cast<int64_t>(ranks);
    const Heads normed = scaled_heads(heads, scale_2T, weights);
    return {normed.query_TC, normed.key_TC};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    RankGroup& ranks = *reinterpret_cast<RankGroup*>(ctx->saved_data["ranks"].toInt());
    const variable_list saved = ctx->get_saved_variables();
    const auto kept = [&](const char* name) { return ctx->saved_data[name].toTensor(); };
    NormPart query(saved[0], saved[2][0], grads[0], {kept("query"), kept("query_grad")});
    NormPart key(saved[1], saved[2][1], grads[1], {kept("key"), kept("key_grad")});
    const Tensor dot_2T = at::stack({query.dot_T(), key.dot_T()});
    ranks.all_reduce_(dot_2T, "the backward of norms over the heads of all ranks");
    return {query.input_grad(dot_2T[0], ranks), key.input_grad(dot_2T[1], ranks), Tensor(),
            Tensor(), Tensor()};
  }

 private:
  /// The backward of queries, or of keys. Adds into the weight's gradient.
  struct NormPart {
    NormPart(const Tensor& in_TC, const Tensor& scale_T, const Tensor& grad_TC,
             const Param& weight_C)
        : type(in_TC.scalar_type()), x_TC(as_summed(in_TC)), scale_T1(scale_T.unsqueeze(1)) {
      const Tensor wide_grad_TC = as_summed(grad_TC);
      weighted_TC = wide_grad_TC * weight_C.value;
      if (weight_C.grad.defined())
        Tensor(weight_C.grad).add_((wide_grad_TC * x_TC * scale_T1).sum(0));
    }
    Tensor dot_T() const { return (x_TC * weighted_TC).sum(1); }
    Tensor input_grad(const Tensor& dot_T, const RankGroup& ranks) const {
      const Tensor mean_T1 = dot_T.unsqueeze(1) / numbers_of_token(x_TC, ranks);
      return (scale_T1 * (weighted_TC - scale_T1.square() * mean_T1 * x_TC)).to(type);
    }

    at::ScalarType type;
    Tensor x_TC, scale_T1, weighted_TC;
  };
};

}  // namespace

Heads normed_over_ranks(const Heads& heads, const HeadNorms& weights, double eps,
                        const TensorParallel& tp) {
  const kernels::TraceRange range("norms over the heads of all ranks");
  if (!at::GradMode::is_enabled() || !heads.query_TC.requires_grad())
    return scaled_heads(heads, scales_of_heads(heads, eps, tp.ranks), weights);
  const variable_list normed =
      NormOverRanks::apply(heads.query_TC, heads.key_TC, weights, eps, &tp.ranks);
  return {normed[0], normed[1]};
}

}  // namespace slime::model
