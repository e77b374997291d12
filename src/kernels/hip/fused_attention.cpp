#include "kernels/hip/fused_attention.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "core/error.h"

namespace slime::kernels::hip {
namespace {

FusedFunctions cpu_functions() {
  return {[](const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale) {
            const auto [out, logsumexp] =
                at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, {}, scale);
            return FusedForward{out, logsumexp};
          },
          [](const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
             const Tensor& out, const Tensor& logsumexp, bool causal, double scale) {
            const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
                dout, q, k, v, out, logsumexp, 0.0, causal, {}, scale);
            return FusedBackward{dq, dk, dv};
          }};
}

FusedFunctions gpu_functions() {
  return {[](const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale) {
            const auto found =
                at::_scaled_dot_product_flash_attention(q, k, v, 0.0, causal, false, scale);
            return FusedForward{std::get<0>(found), std::get<1>(found)};
          },
          [](const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
             const Tensor& out, const Tensor& logsumexp, bool causal, double scale) {
            // Seed and offset of a dropout that there is not.
            const Tensor none = at::zeros({}, q.options().dtype(at::kLong));
            const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_backward(
                dout, q, k, v, out, logsumexp, {}, {}, q.size(2), k.size(2), 0.0, causal, none,
                none, scale);
            return FusedBackward{dq, dk, dv};
          }};
}

/// Columns of heads in rows, as [K, G, rows, D]: a view. `heads` of each key-value head.
Tensor by_head(const Tensor& rows_TX, int64_t first_column, const RotaryShape& heads,
               int64_t of_each) {
  return rows_TX.narrow(1, first_column, heads.num_kv_heads * of_each * heads.head_dim)
      .view({rows_TX.size(0), heads.num_kv_heads, of_each, heads.head_dim})
      .permute({1, 2, 0, 3});
}

/// What the functions read of one pair.
struct Operands {
  Tensor q, k, v;
};
Operands operands_of(const Tensor& heads_TE, const Tensor& keys_CX, const AttentionPair& pair,
                     const RotaryShape& heads) {
  const int64_t group = heads.num_heads / heads.num_kv_heads,
                queries = heads.num_heads * heads.head_dim,
                keys = heads.num_kv_heads * heads.head_dim;
  const Tensor& of_keys = keys_CX.defined() ? keys_CX : heads_TE;
  const Tensor rows = heads_TE.narrow(0, pair.query_begin, pair.query_end - pair.query_begin);
  const Tensor others = of_keys.narrow(0, pair.key_begin, pair.key_end - pair.key_begin);
  const int64_t first = keys_CX.defined() ? 0 : queries;
  // The heads of a group look at one and the same key head.
  const auto shared = [&](int64_t column) {
    return by_head(others, column, heads, 1).expand({-1, group, -1, -1});
  };
  return {by_head(rows, 0, heads, group), shared(first), shared(first + keys)};
}

/// |a - b| / |b|
double distance(const Tensor& a, const Tensor& exact) {
  return ((a.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

}  // namespace

FusedFunctions fused_functions(at::Device device) {
  return device.is_cpu() ? cpu_functions() : gpu_functions();
}

bool FusedAttention::may_have(at::ScalarType type, const RotaryShape& heads) {
  return (type == at::kBFloat16 || type == at::kHalf) && heads.head_dim % 8 == 0 &&
         heads.head_dim <= 256;
}

void FusedAttention::forward(const Tensor& heads_TE, const Tensor& keys_CX,
                             const AttentionLevel& level, const RotaryShape& heads, double scale,
                             Tensor out_TC, Tensor logsumexp_TN) {
  check(out_TC.size(1) == heads.num_heads * heads.head_dim, "values are as long as keys");
  const int64_t group = heads.num_heads / heads.num_kv_heads;
  const double unit = unit_of(heads_TE, heads);
  for (const AttentionPair& pair : level.pairs) {
    const int64_t begin = pair.query_begin, rows = pair.query_end - begin;
    const auto [q, k, v] = operands_of(heads_TE, keys_CX, pair, heads);
    const FusedForward made = functions_.forward(q, k, v, level.causal, scale);
    by_head(out_TC.narrow(0, begin, rows), 0, heads, group).copy_(made.out);
    logsumexp_TN.narrow(0, begin, rows)
        .view({rows, heads.num_kv_heads, group})
        .copy_(made.logsumexp.permute({2, 0, 1}) * unit);
  }
}

void FusedAttention::backward(const Tensor& dy_TC, const Tensor& y_TC, const Tensor& heads_TE,
                              const Tensor& logsumexp_TN, const AttentionLevel& level,
                              const RotaryShape& heads, double scale, Tensor dheads_TE) {
  const int64_t group = heads.num_heads / heads.num_kv_heads,
                queries = heads.num_heads * heads.head_dim,
                keys = heads.num_kv_heads * heads.head_dim;
  const double unit = unit_of(heads_TE, heads);
  for (const AttentionPair& pair : level.pairs) {
    const int64_t begin = pair.query_begin, rows = pair.query_end - begin;
    const auto [q, k, v] = operands_of(heads_TE, {}, pair, heads);
    const Tensor statistics = (logsumexp_TN.narrow(0, begin, rows) / unit)
                                  .view({rows, heads.num_kv_heads, group})
                                  .permute({1, 2, 0})
                                  .contiguous();
    const auto of_rows = [&](const Tensor& x_TC) {
      return by_head(x_TC.narrow(0, begin, rows), 0, heads, group);
    };
    const FusedBackward made = functions_.backward(of_rows(dy_TC), q, k, v, of_rows(y_TC),
                                                   statistics, level.causal, scale);
    of_rows(dheads_TE).copy_(made.dq);
    const Tensor others = dheads_TE.narrow(0, pair.key_begin, pair.key_end - pair.key_begin);
    const auto of_group = [](const Tensor& dx) {
      return dx.size(1) == 1 ? dx : dx.sum(1, /*keepdim=*/true, at::kFloat);
    };
    by_head(others, queries, heads, 1).copy_(of_group(made.dk));
    by_head(others, queries + keys, heads, 1).copy_(of_group(made.dv));
  }
}

const std::string& FusedAttention::problem(at::ScalarType type, int64_t head_dim,
                                           at::Device device) {
  const auto [found, is_new] = tried_.try_emplace({type, head_dim});
  Tried& tried = found->second;
  if (!is_new) return tried.problem;
  try {
    tried.problem = found_problem(type, head_dim, device, tried);
  } catch (const c10::Error& error) {
    tried.problem = error.what_without_backtrace();
  } catch (const std::exception& error) {
    tried.problem = error.what();
  }
  if (!tried.problem.empty())
    tell_(
        fmt::format("heads of {} in {} are attended by plain products, not by LibTorch's fused "
                    "attention: {}",
                    head_dim, c10::toString(type), tried.problem));
  return tried.problem;
}

double FusedAttention::unit_of(const Tensor& heads_TE, const RotaryShape& heads) const {
  const auto found = tried_.find({heads_TE.scalar_type(), heads.head_dim});
  check(found != tried_.end(), "fused attention was tried before it is used");
  return found->second.unit;
}

std::string FusedAttention::found_problem(at::ScalarType type, int64_t head_dim, at::Device device,
                                          Tried& tried) {
  // Ranges as trees have them: a row and what is before it, each by itself, and one that looks at the other. Every number is a
  // function of its place: the same each time, and nothing is taken from the run's random numbers.
  constexpr int64_t kRows = 70, kPrefix = 37;
  const RotaryShape heads{4, 2, head_dim, 0};
  const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
  const AttentionLevel own{{{0, kPrefix, 0, kPrefix}, {kPrefix, kRows, kPrefix, kRows}}, true},
      earlier{{{kPrefix, kRows, 0, kPrefix}}, false};
  const at::TensorOptions wide = at::TensorOptions(at::kDouble).device(device);
  const auto made_up = [&](int64_t columns, double step) {  // evenly in [-1.5, 1.5)
    const Tensor spread = (at::arange(kRows * columns, wide) * step).sin().mul(43758.5453);
    return spread.frac().abs().sub(0.5).mul(3).view({kRows, columns}).to(type);
  };
  const int64_t queries = heads.num_heads * head_dim, keys = heads.num_kv_heads * head_dim;
  const Tensor heads_TE = made_up(queries + 2 * keys, 12.9898), dy_TC = made_up(queries, 78.233);

  // By plain products: the one softmax over all that a row sees, and the gradients of all.
  const int64_t group = heads.num_heads / heads.num_kv_heads;
  const auto of_heads = [&](const Tensor& x, int64_t first, int64_t of_each) {  // [K, G, T, D]
    return by_head(x.to(at::kDouble), first, heads, of_each);
  };
  const Tensor q = of_heads(heads_TE, 0, group), k = of_heads(heads_TE, queries, 1),
               v = of_heads(heads_TE, queries + keys, 1), dy = of_heads(dy_TC, 0, group);
  const Tensor later = at::ones({kRows, kRows}, wide).triu(1).to(at::kBool);
  const Tensor scores = (at::matmul(q, k.transpose(2, 3)) * scale).masked_fill(later, -INFINITY);
  const Tensor p = scores.softmax(-1), y = at::matmul(p, v);
  const Tensor ds = p * (at::matmul(dy, v.transpose(2, 3)) - (dy * y).sum(-1, true)) * scale;
  const Tensor exact_dq = at::matmul(ds, k),
               exact_dk = at::matmul(ds.transpose(2, 3), q).sum(1, true),
               exact_dv = at::matmul(p.transpose(2, 3), dy).sum(1, true);
  const Tensor exact_TN = scores.logsumexp(-1).permute({2, 0, 1}).reshape({kRows, -1});

  // Statistics of the first range, which sees nothing else.
  const Tensor y_TC = at::zeros({kRows, queries}, heads_TE.options());
  const Tensor more_TC = at::zeros_like(y_TC);
  const Tensor statistics = at::zeros({kRows, heads.num_heads}, wide.dtype(at::kFloat));
  const Tensor more_TN = at::full_like(statistics, -INFINITY);
  forward(heads_TE, {}, own, heads, scale, y_TC, statistics);
  const auto of_first = [&](double unit) {
    return distance(statistics.narrow(0, 0, kPrefix) * unit, exact_TN.narrow(0, 0, kPrefix));
  };
  // Of the precision of scores: a softmax's statistics are float32.
  constexpr double kStatistics = 1e-2, kNumbers = 3e-2;
  if (of_first(M_LN2) < of_first(1)) tried.unit = M_LN2;
  if (const double error = of_first(tried.unit); !(error < kStatistics))
    return fmt::format("statistics of its softmax differ by {:.2g}", error);
  statistics.mul_(tried.unit);
  forward(heads_TE, {}, earlier, heads, scale, more_TC, more_TN);
  const Tensor all_TN = at::logaddexp(statistics, more_TN);
  if (const double error = distance(all_TN, exact_TN); !(error < kStatistics))
    return fmt::format("statistics of its softmax over several ranges differ by {:.2g}", error);
  const auto share = [&](const Tensor& part_TN, const Tensor& part_TC) {
    return of_heads(part_TC, 0, group) * (part_TN - all_TN)
                                             .exp()
                                             .view({kRows, heads.num_kv_heads, group, 1})
                                             .permute({1, 2, 0, 3});
  };
  const Tensor merged = share(statistics, y_TC) + share(more_TN, more_TC);
  if (const double error = distance(merged, y); !(error < kNumbers))
    return fmt::format("its results differ by {:.2g}", error);

  // Gradients of both levels with the statistics and results of the whole softmax.
  const Tensor whole_TC = merged.permute({2, 0, 1, 3}).reshape({kRows, queries}).to(type);
  const Tensor dheads_TE = at::zeros_like(heads_TE), dmore_TE = at::zeros_like(heads_TE);
  backward(dy_TC, whole_TC, heads_TE, all_TN, own, heads, scale, dheads_TE);
  backward(dy_TC, whole_TC, heads_TE, all_TN, earlier, heads, scale, dmore_TE);
  const Tensor sum_TE = dheads_TE.to(at::kDouble) + dmore_TE.to(at::kDouble);
  const double errors[] = {distance(of_heads(sum_TE, 0, group), exact_dq),
                           distance(of_heads(sum_TE, queries, 1), exact_dk),
                           distance(of_heads(sum_TE, queries + keys, 1), exact_dv)};
  for (const double error : errors)
    if (!(error < kNumbers))
      return fmt::format("its gradients differ by {:.2g}, {:.2g} and {:.2g}", errors[0], errors[1],
                         errors[2]);
  return {};
}

}  // namespace slime::kernels::hip
