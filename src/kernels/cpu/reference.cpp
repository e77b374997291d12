#include "kernels/cpu/reference.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "kernels/matrix_formats.h"
#include "kernels/soft_cap.h"

namespace slime::kernels::cpu {
namespace {

Tensor wide(const Tensor& x) { return x.to(accumulator_of(x)); }

Tensor normed(const Tensor& x, double eps) {  // over the last dimension, x already wide
  return x * at::rsqrt(x.square().mean(-1, true) + eps);
}

/// d loss / d x of normed(x) * weight, with g = dy * weight.
Tensor normed_backward(const Tensor& g, const Tensor& x, double eps) {
  const Tensor r = at::rsqrt(x.square().mean(-1, true) + eps);
  return r * (g - x * r.square() * (g * x).mean(-1, true));
}

/// [T, heads, D] views of the three parts of a fused projection.
struct Heads {
  Tensor q_TND, k_TKD, v_TKD;
};
Heads split(const Tensor& qkv_TE, const RotaryShape& shape) {
  const int64_t tokens = qkv_TE.size(0), q = shape.num_heads * shape.head_dim,
                kv = shape.num_kv_heads * shape.head_dim;
  return {qkv_TE.narrow(1, 0, q).view({tokens, shape.num_heads, shape.head_dim}),
          qkv_TE.narrow(1, q, kv).view({tokens, shape.num_kv_heads, shape.head_dim}),
          qkv_TE.narrow(1, q + kv, kv).view({tokens, shape.num_kv_heads, shape.head_dim})};
}

/// sign +1 rotates, -1 rotates back.
Tensor rotated(const Tensor& x, const Tensor& cos_T1R, const Tensor& sin_T1R, int sign) {
  const int64_t half = x.size(-1) / 2;
  const Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half), s = sin_T1R * sign;
  return at::cat({a * cos_T1R - b * s, b * cos_T1R + a * s}, -1);
}

/// Rows of the keys that `segment` sees, oldest first, itself included.
Tensor chain_rows(const std::vector<Segment>& segments, size_t index, at::Device device) {
  std::vector<Tensor> ranges;
  for (int64_t i = static_cast<int64_t>(index); i >= 0;
       i = segments[static_cast<size_t>(i)].parent) {
    const Segment& segment = segments[static_cast<size_t>(i)];
    ranges.insert(ranges.begin(), at::arange(segment.begin, segment.end,
                                             at::TensorOptions(at::kLong).device(device)));
  }
  return at::cat(ranges);
}

/// True where row i of the last `rows` of `keys` positions may not look at key j.
Tensor hidden_pairs(int64_t rows, int64_t keys, int64_t window, at::Device device) {
  const auto options = at::TensorOptions(at::kLong).device(device);
  const Tensor i = at::arange(keys - rows, keys, options).unsqueeze(1),
               j = at::arange(keys, options).unsqueeze(0);
  const Tensor future = j > i;
  return window > 0 ? future.logical_or(j <= i - window) : future;
}

/// Scores are made so many queries of a segment at a time.
constexpr int64_t kQueryRows = 512;

/// Rows [begin, end) of the batch, and those of the keys that they see, the queries themselves last.
struct QueryBlock {
  int64_t begin = 0, end = 0;
  Tensor keys;  // int64
  int64_t size() const { return end - begin; }
};

/// The blocks of a segment with queries. `window`: 0: all.
std::vector<QueryBlock> query_blocks(const std::vector<Segment>& segments, size_t index,
                                     int64_t window, at::Device device) {
  const Segment& segment = segments[index];
  const Tensor chain = chain_rows(segments, index, device);
  const int64_t before = chain.size(0) - (segment.end - segment.begin);
  std::vector<QueryBlock> blocks;
  for (int64_t begin = segment.begin; begin < segment.end; begin += kQueryRows) {
    const int64_t end = std::min(begin + kQueryRows, segment.end);
    const int64_t last = before + end - segment.begin, own = before + begin - segment.begin;
    const int64_t first = window > 0 ? std::max<int64_t>(own - window + 1, 0) : 0;
    blocks.push_back({begin, end, chain.narrow(0, first, last - first)});
  }
  return blocks;
}

/// Per block: queries [N, rows, D], keys and values [N, keys, D] (key-value heads repeated),
/// scores masked.
struct Block {
  Tensor q, k, v, scores;
};
Block attention_block(const Heads& heads, const QueryBlock& queries, const RotaryShape& shape,
                      const TreeAttentionShape& attention) {
  const int64_t repeats = shape.num_heads / shape.num_kv_heads, size = queries.size();
  const Tensor& rows = queries.keys;
  Block block;
  block.q = wide(heads.q_TND.narrow(0, queries.begin, size)).transpose(0, 1);
  block.k = wide(heads.k_TKD.index_select(0, rows)).repeat_interleave(repeats, 1).transpose(0, 1);
  block.v = wide(heads.v_TKD.index_select(0, rows)).repeat_interleave(repeats, 1).transpose(0, 1);
  block.scores = at::matmul(block.q, block.k.transpose(1, 2)) * attention.scale;
  if (attention.cap > 0) soft_cap_(block.scores, attention.cap);
  block.scores.masked_fill_(hidden_pairs(size, rows.size(0), attention.window, rows.device()),
                            -INFINITY);
  return block;
}

}  // namespace

Tensor ReferenceDevice::embedding(const Tensor& ids_T, const Tensor& table_VH,
                                  at::ScalarType activations) const {
  return table_VH.index_select(0, ids_T).to(activations);
}

void ReferenceDevice::add_rows_(Tensor sum_VH, const Tensor& row_T, const Tensor& x_TH) const {
  const Tensor x = x_TH.to(sum_VH.scalar_type());
  // On a GPU index_add_ adds in the order in which threads arrive; this sorts.
  if (sum_VH.is_cuda()) {
    sum_VH.index_put_({row_T}, x, /*accumulate=*/true);
  } else {
    sum_VH.index_add_(0, row_T, x);
  }
}

Tensor ReferenceDevice::linear(const Tensor& x_TI, const Matrix& weight_OI,
                               const Tensor& bias_O) const {
  Tensor y = at::mm(x_TI, numbers_of(weight_OI, x_TI.scalar_type()).t());
  if (bias_O.defined()) y.add_(bias_O);
  return y;
}

Tensor ReferenceDevice::logits(const Tensor& x_TI, const Matrix& weight_OI) const {
  return wide(at::mm(x_TI, numbers_of(weight_OI, x_TI.scalar_type()).t()));
}

Tensor ReferenceDevice::linear_input_grad(const Tensor& dy_TO, const Matrix& weight_OI) const {
  return at::mm(dy_TO, numbers_of(weight_OI, dy_TO.scalar_type()));
}

void ReferenceDevice::add_linear_weight_grad_(Tensor grad_OI, const Tensor& dy_TO,
                                              const Tensor& x_TI) const {
  if (dy_TO.scalar_type() == grad_OI.scalar_type()) {
    grad_OI.addmm_(dy_TO.t(), x_TI);
  } else {
    grad_OI.add_(at::mm(dy_TO.t(), x_TI));
  }
}

void ReferenceDevice::add_bias_grad_(Tensor grad_O, const Tensor& dy_TO) const {
  grad_O.add_(wide(dy_TO).sum(0));
}

Tensor ReferenceDevice::rms_norm(const Tensor& x_TH, const Tensor& weight_H, double eps) const {
  return (normed(wide(x_TH), eps) * weight_H).to(x_TH.scalar_type());
}

Tensor ReferenceDevice::add_rms_norm_(Tensor x_TH, const Tensor& update_TH, const Tensor& weight_H,
                                      double eps) const {
  x_TH.add_(update_TH);
  return rms_norm(x_TH, weight_H, eps);
}

Tensor ReferenceDevice::rms_norm_backward(const Tensor& dy_TH, const Tensor& x_TH,
                                          const Tensor& weight_H, double eps, Tensor grad_H) const {
  const Tensor x = wide(x_TH), dy = wide(dy_TH);
  if (grad_H.defined()) grad_H.add_((dy * normed(x, eps)).sum(0));
  return normed_backward(dy * weight_H, x, eps).to(x_TH.scalar_type());
}

Tensor ReferenceDevice::swiglu(const Tensor& gate_up_T2F) const {
  const int64_t width = gate_up_T2F.size(1) / 2;
  const Tensor gate = wide(gate_up_T2F.narrow(1, 0, width)),
               up = wide(gate_up_T2F.narrow(1, width, width));
  return (at::silu(gate) * up).to(gate_up_T2F.scalar_type());
}

Tensor ReferenceDevice::swiglu_backward(const Tensor& dy_TF, const Tensor& gate_up_T2F) const {
  const int64_t width = gate_up_T2F.size(1) / 2;
  const Tensor gate = wide(gate_up_T2F.narrow(1, 0, width)),
               up = wide(gate_up_T2F.narrow(1, width, width));
  const Tensor dy = wide(dy_TF), sigmoid = at::sigmoid(gate);
  const Tensor dgate = dy * up * sigmoid * (1 + gate * (1 - sigmoid));
  return at::cat({dgate, dy * gate * sigmoid}, 1).to(gate_up_T2F.scalar_type());
}

Tensor ReferenceDevice::norm_rotate(const Tensor& qkv_TE, const Tensor& positions_T,
                                    const Tensor& q_norm_D, const Tensor& k_norm_D,
                                    const Tensor& cos_PR, const Tensor& sin_PR,
                                    const RotaryShape& shape) const {
  const Tensor cos = cos_PR.index_select(0, positions_T).unsqueeze(1);
  const Tensor sin = sin_PR.index_select(0, positions_T).unsqueeze(1);
  const Heads in = split(qkv_TE, shape);
  Tensor out_TE = qkv_TE.clone();
  const Heads out = split(out_TE, shape);
  const auto apply = [&](const Tensor& x_in, const Tensor& weight, Tensor x_out) {
    Tensor x = wide(x_in);
    if (weight.defined()) x = normed(x, shape.norm_eps) * weight;
    x_out.copy_(rotated(x, cos, sin, 1));
  };
  apply(in.q_TND, q_norm_D, out.q_TND);
  apply(in.k_TKD, k_norm_D, out.k_TKD);
  return out_TE;
}

Tensor ReferenceDevice::norm_rotate_backward(const Tensor& dy_TE, const Tensor& qkv_TE,
                                             const Tensor& positions_T, const Tensor& q_norm_D,
                                             const Tensor& k_norm_D, const Tensor& cos_PR,
                                             const Tensor& sin_PR, const RotaryShape& shape,
                                             Tensor q_norm_grad_D, Tensor k_norm_grad_D) const {
  const Tensor cos = cos_PR.index_select(0, positions_T).unsqueeze(1);
  const Tensor sin = sin_PR.index_select(0, positions_T).unsqueeze(1);
  const Heads dy = split(dy_TE, shape);
  Tensor dx_TE = dy_TE.clone();
  const Heads dx = split(dx_TE, shape);
  const auto apply = [&](const Tensor& dy_part, Tensor dx_part, const Tensor& x_in,
                         const Tensor& weight, Tensor grad) {
    Tensor g = rotated(wide(dy_part), cos, sin, -1);
    if (weight.defined()) {
      const Tensor x = wide(x_in);
      if (grad.defined()) grad.add_((g * normed(x, shape.norm_eps)).sum(at::IntArrayRef({0, 1})));
      g = normed_backward(g * weight, x, shape.norm_eps);
    }
    dx_part.copy_(g);
  };
  const Heads x = qkv_TE.defined() ? split(qkv_TE, shape) : Heads{};
  apply(dy.q_TND, dx.q_TND, x.q_TND, q_norm_D, q_norm_grad_D);
  apply(dy.k_TKD, dx.k_TKD, x.k_TKD, k_norm_D, k_norm_grad_D);
  return dx_TE;
}

Tensor ReferenceDevice::tree_attention(const Tensor& heads_TE, const std::vector<Segment>& segments,
                                       const RotaryShape& heads, const TreeAttentionShape& shape,
                                       Tensor& logsumexp_TN) const {
  const Heads in = split(heads_TE, heads);
  const int64_t tokens = heads_TE.size(0);
  Tensor y_TND = at::empty({tokens, heads.num_heads, heads.head_dim}, heads_TE.options());
  logsumexp_TN =
      at::empty({tokens, heads.num_heads}, heads_TE.options().dtype(accumulator_of(heads_TE)));
  for (size_t i = 0; i < segments.size(); ++i) {
    if (!segments[i].has_queries) continue;
    for (const QueryBlock& queries : query_blocks(segments, i, shape.window, heads_TE.device())) {
      const Block block = attention_block(in, queries, heads, shape);
      y_TND.narrow(0, queries.begin, queries.size())
          .copy_(at::matmul(block.scores.softmax(-1), block.v).transpose(0, 1));
      logsumexp_TN.narrow(0, queries.begin, queries.size()).copy_(block.scores.logsumexp(-1).t());
    }
  }
  return y_TND.view({tokens, heads.num_heads * heads.head_dim});
}

Tensor ReferenceDevice::tree_attention_backward(const Tensor& dy_TC, const Tensor& y_TC,
                                                const Tensor& heads_TE, const Tensor& logsumexp_TN,
                                                const std::vector<Segment>& segments,
                                                const RotaryShape& heads,
                                                const TreeAttentionShape& shape) const {
  const Heads in = split(heads_TE, heads);
  const int64_t tokens = heads_TE.size(0), repeats = heads.num_heads / heads.num_kv_heads,
                dim = heads.head_dim;
  Tensor dheads_TE = at::zeros_like(heads_TE, accumulator_of(heads_TE));
  const Heads out = split(dheads_TE, heads);
  const Tensor dy_TND = wide(dy_TC).view({tokens, heads.num_heads, dim});
  const Tensor delta_TN = (dy_TND * wide(y_TC).view_as(dy_TND)).sum(-1);
  for (size_t i = 0; i < segments.size(); ++i) {
    if (!segments[i].has_queries) continue;
    for (const QueryBlock& queries : query_blocks(segments, i, shape.window, heads_TE.device())) {
      const Block block = attention_block(in, queries, heads, shape);
      const auto of_block = [&](const Tensor& x) {
        return x.narrow(0, queries.begin, queries.size());
      };
      const Tensor p = (block.scores - of_block(logsumexp_TN).t().unsqueeze(-1)).exp();
      const Tensor dy = of_block(dy_TND).transpose(0, 1);
      Tensor ds = p *
                  (at::matmul(dy, block.v.transpose(1, 2)) - of_block(delta_TN).t().unsqueeze(-1)) *
                  shape.scale;
      if (shape.cap > 0)  // what is hidden has no weight, and a slope of 0 instead of none
        ds *= soft_cap_slope(block.scores.clamp_min(-shape.cap), shape.cap);
      of_block(out.q_TND).copy_(at::matmul(ds, block.k).transpose(0, 1));
      // The sum over the queries that share a key head.
      const auto add = [&](Tensor target_TKD, const Tensor& grad_NSD) {
        const int64_t keys = queries.keys.size(0);
        target_TKD.index_add_(
            0, queries.keys,
            grad_NSD.view({heads.num_kv_heads, repeats, keys, dim}).sum(1).transpose(0, 1));
      };
      add(out.k_TKD, at::matmul(ds.transpose(1, 2), block.q));
      add(out.v_TKD, at::matmul(p.transpose(1, 2), dy));
    }
  }
  return dheads_TE.to(heads_TE.scalar_type());
}

void ReferenceDevice::softmax_statistics(const Tensor& logits_RV, const Tensor& target_R,
                                         double temperature, Tensor& logprob_R, Tensor& entropy_R,
                                         Tensor& logsumexp_R) const {
  const Tensor u = logits_RV / temperature;
  logsumexp_R.copy_(u.logsumexp(-1));
  const Tensor target_u_R = u.gather(1, target_R.clamp_min(0).unsqueeze(1)).squeeze(1);
  logprob_R.copy_(target_u_R.masked_fill(target_R < 0, 0) - logsumexp_R);
  const Tensor p = (u - logsumexp_R.unsqueeze(1)).exp();
  entropy_R.copy_(logsumexp_R - (p * u).sum(-1));
}

void ReferenceDevice::softmax_backward_(Tensor logits_RV, const Tensor& target_R,
                                        double temperature, const Tensor& logsumexp_R,
                                        const Tensor& entropy_R, const Tensor& dlogprob_R,
                                        const Tensor& dentropy_R) const {
  const Tensor log_p = logits_RV / temperature - logsumexp_R.unsqueeze(1);
  const Tensor p = log_p.exp();
  Tensor du = -p * dlogprob_R.unsqueeze(1);
  if (dentropy_R.defined()) du -= p * (log_p + entropy_R.unsqueeze(1)) * dentropy_R.unsqueeze(1);
  du.scatter_add_(1, target_R.clamp_min(0).unsqueeze(1),
                  dlogprob_R.masked_fill(target_R < 0, 0).unsqueeze(1));
  logits_RV.copy_(du / temperature);
}

}  // namespace slime::kernels::cpu
